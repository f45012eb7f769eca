"""Corrections for several tests."""

import numpy as np


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values, in the order given; controls the familywise error.

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    n = len(p_values)
    ascending = np.argsort(p_values, kind="stable")
    scaled = p_values[ascending] * (n - np.arange(n))
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted
