"""All kinds of natural order by name, and random orders beside them."""

from collections.abc import Mapping

from eval.natural_order import (
    kinds_labels,
    kinds_lists,
    kinds_random,
    kinds_sorted,
    kinds_stories,
    kinds_styles,
    kinds_topics,
)
from eval.natural_order.kind import Kind

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for module in (
        kinds_labels,
        kinds_styles,
        kinds_topics,
        kinds_sorted,
        kinds_stories,
        kinds_lists,
        kinds_random,
    )
    for kind in module.KINDS
}
