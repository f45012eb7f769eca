"""All kinds of natural order by name, and random orders beside them."""

from collections.abc import Mapping

from eval.natural_order.kind import Kind
from eval.natural_order.kinds_knowing import KINDS_KNOWING
from eval.natural_order.kinds_labels import KINDS_LABELS, KINDS_LISTS
from eval.natural_order.kinds_sorted import KINDS_RANDOM, KINDS_SORTED
from eval.natural_order.kinds_stories import KINDS_STORIES
from eval.natural_order.kinds_styles import KINDS_STYLES, KINDS_TOPICS

_STYLED = (*KINDS_LABELS, *KINDS_STYLES, *KINDS_TOPICS)
_TOLD = (*KINDS_SORTED, *KINDS_STORIES, *KINDS_LISTS, *KINDS_KNOWING)
KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (*_STYLED, *_TOLD, *KINDS_RANDOM)
}
