"""All kinds of natural order by name, and random orders beside them."""

from collections.abc import Mapping

from eval.natural_order.kind import Kind
from eval.natural_order.kinds_knowing import KINDS_KNOWING
from eval.natural_order.kinds_labels import KINDS_LABELS, KINDS_LISTS
from eval.natural_order.kinds_sorted import KINDS_RANDOM, KINDS_SORTED
from eval.natural_order.kinds_stories import KINDS_STORIES
from eval.natural_order.kinds_styles import KINDS_STYLES, KINDS_TOPICS

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kinds in (
        KINDS_LABELS,
        KINDS_STYLES,
        KINDS_TOPICS,
        KINDS_SORTED,
        KINDS_STORIES,
        KINDS_LISTS,
        KINDS_KNOWING,
        KINDS_RANDOM,
    )
    for kind in kinds
}
