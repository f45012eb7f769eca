"""The methods of `--compare`, which ask for something else than the second piece."""

from collections.abc import Callable, Mapping

from jaxcontam.methods.replication.cdd import cdd
from jaxcontam.methods.replication.comparison_inputs import ComparisonInputs, Found
from jaxcontam.methods.replication.first_instances import first_instances
from jaxcontam.methods.replication.ts_guessing import (
    ts_guessing_option,
    ts_guessing_word,
)
from jaxcontam.progress import Progress

COMPARISONS: Mapping[str, Callable[[ComparisonInputs, Progress | None], Found]] = {
    "first_instances": first_instances,
    "cdd": cdd,
    "ts_guessing_word": ts_guessing_word,
    "ts_guessing_option": ts_guessing_option,
}
"""By the name in `REPLICATION_METHODS`."""
