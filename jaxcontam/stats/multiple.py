"""Corrections for several tests."""

import numpy as np


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values; controls the familywise error under any dependence.

    Args:
        p_values: (n,) float64 in [0, 1], in any order.

    Returns:
        (n,) float64, in the order given, at most 1.

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    n = len(p_values)
    ascending = np.argsort(p_values, kind="stable")
    scaled = p_values[ascending] * (n - np.arange(n))
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted
