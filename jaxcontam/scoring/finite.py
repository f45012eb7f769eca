"""A model whose scores are not finite is refused, by the place of the text."""

import contextlib
from collections.abc import Callable, Iterator

from jaxcontam.errors import InputError


@contextlib.contextmanager
def finite_scores(place: Callable[[int], str]) -> Iterator[None]:
    """Refuse a score that is not finite; `place` names that of an index."""
    # Imports JAX.
    from jaxcontam.scoring.run_batches import NonFiniteScoreError

    try:
        yield
    except NonFiniteScoreError as e:
        raise InputError(
            f"{place(e.sequence)} is not finite",
            hint="check the checkpoint: its weights may hold NaN or be truncated",
        ) from e
