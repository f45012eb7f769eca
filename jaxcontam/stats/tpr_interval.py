"""Interval of a true-positive rate where a handful of non-members set the threshold.

Dimension key
    P  members
    Q  non-members
    K  numbers of non-members that may lie above the true threshold
"""

from collections.abc import Callable

import numpy as np

# Probability of the numbers that are left out as too unlikely, on each side.
_NEGLIGIBLE = 1e-9
_BISECTIONS = 50
_LEVEL = 0.95


def few_tpr_interval(
    members: np.ndarray, nonmembers: np.ndarray, fpr: float
) -> tuple[float, float]:
    """95 % interval of the members' share above the threshold of a false-positive rate.

    The true threshold, which `fpr` of all non-members exceed, lies between two
    non-members of this sample: below the k-th largest with k binomial. For each k the
    share above the one and above the other has Clopper and Pearson's limits; the ends
    are quantiles of their mixture over k. The bootstrap does worse where k is small:
    it never draws a score above the largest that was seen. The low end is 0 where the
    true threshold may well lie above all non-members.

    Args:
        members: (P,) scores, higher = more likely a member.
        nonmembers: (Q,) likewise.
        fpr: In (0, 1).

    Returns:
        The low and the high end.

    Raises:
        ValueError: If a group is empty or `fpr` is outside (0, 1).

    Source:
        Own construction from confidence distributions; its coverage is simulated in
        the tests. Clopper and Pearson (1934) for the limits.
    """
    from scipy.special import betainc
    from scipy.stats import binom

    P, Q = len(members), len(nonmembers)
    if min(P, Q) < 1 or not 0 < fpr < 1:
        raise ValueError(
            f"members and nonmembers must not be empty and fpr in (0, 1), "
            f"got {P, Q, fpr}"
        )
    first = int(binom.ppf(_NEGLIGIBLE, Q, fpr))
    last = int(binom.ppf(1 - _NEGLIGIBLE, Q, fpr))
    k_K = np.arange(first, last + 1)
    weight_K = binom.pmf(k_K, Q, fpr)
    weight_K /= weight_K.sum()
    # With k above it the true threshold lies between edges k and k + 1, descending.
    edges = np.concatenate(
        [[np.inf], np.sort(np.asarray(nonmembers, np.float64))[::-1], [-np.inf]]
    )
    sorted_P = np.sort(np.asarray(members, np.float64))
    n_low_K = P - np.searchsorted(sorted_P, edges[k_K], side="right")
    n_high_K = P - np.searchsorted(sorted_P, edges[k_K + 1], side="right")

    def low_mass(share: float) -> float:
        # A share of no member has all its mass at 0.
        below_K = betainc(np.maximum(n_low_K, 1), P - n_low_K + 1, share)
        return float(weight_K @ np.where(n_low_K == 0, 1.0, below_K))

    def high_mass(share: float) -> float:
        below_K = betainc(n_high_K + 1, np.maximum(P - n_high_K, 1), share)
        return float(weight_K @ np.where(n_high_K == P, 0.0, below_K))

    error = (1 - _LEVEL) / 2
    return _crossing(low_mass, error), _crossing(high_mass, 1 - error)


def _crossing(mass: Callable[[float], float], target: float) -> float:
    """Where a function that rises from 0 to 1 first reaches the target."""
    if mass(0.0) >= target:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if mass(middle) >= target else (middle, high)
    return high
