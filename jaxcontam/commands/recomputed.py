"""Whether what a report states is what its evidence gives when computed again."""

import dataclasses
import math

import numpy as np

from jaxcontam.results import Local, Neighbours

# Sums in another version of NumPy may differ in the last digits.
_RTOL = 1e-6


def same(a: object, b: object, noise: float = 0.0) -> bool:
    """Whether a stated value is the recomputed one, up to the last digits.

    Args:
        a: As stated: a number, words, a list of such, or a part of a result.
        b: As recomputed.
        noise: Absolute difference that is no fault; see `noise_of`.
    """
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=_RTOL, abs_tol=noise)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(
            same(x, y, noise) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, Local | Neighbours) and isinstance(b, Local | Neighbours):
        return same(dataclasses.astuple(a), dataclasses.astuple(b), noise)
    return a == b


def noise_of(scores: np.ndarray) -> float:
    """What rounding may leave of a difference of sums of these scores.

    Args:
        scores: Any shape, nats; NaN where nothing was scored.
    """
    return _RTOL * 1e-6 * float(np.nansum(np.abs(scores)))
