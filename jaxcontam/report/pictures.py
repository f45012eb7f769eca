"""What the plots of a test are drawn from."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NullPicture:
    """What one test saw, for its plots.

    Attributes:
        null_sums: (n,) float64; the statistic with columns drawn at random.
        observed: The statistic of the published order.
        contributions: (K,) float64; the published score of each stratum, in file order.
    """

    null_sums: np.ndarray
    observed: float
    contributions: np.ndarray
