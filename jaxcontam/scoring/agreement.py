"""Agreement of log-probabilities: two lists that can be of one model and one text."""

import numpy as np

REPEATS_WITHIN = 1e-3
"""Nats by which the same request may differ without a word."""

MEAN_WITHIN = 0.05
"""Nats by which the numbers of one model may differ on average: bfloat16 resolves a
logit of 16 to an eighth, and engines compute otherwise for other batches."""

EACH_WITHIN = 0.3
"""Nats by which each of them may differ."""


def is_same(first: np.ndarray, second: np.ndarray) -> bool:
    """True if two lists of log-probabilities can be of one model and one text."""
    if first.shape != second.shape:
        return False
    change = np.abs(first - second)
    return change.max(initial=0.0) <= EACH_WITHIN and (
        change.sum() <= MEAN_WITHIN * max(1, change.size)
    )
