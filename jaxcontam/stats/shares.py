"""Intervals of shares that were counted."""

import math

# Normal quantile of a two-sided interval of 95 %.
_Z = 1.959964


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share; Wilson (1927), which behaves at 0 and 1.

    Raises:
        ValueError: If there is no trial, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes must be 0 to trials, got {successes} of {trials}")
    share, z2 = successes / trials, _Z * _Z / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z / (1 + z2) * math.sqrt(share * (1 - share) / trials + z2 / 4 / trials)
    return max(0.0, middle - half), min(1.0, middle + half)
