"""How many texts of a file were seen, at least: their ranks among unseen texts.

Dimension key
    N  texts of the file
    L  texts of the pool
    J  depths of the pool
"""

import dataclasses

import numpy as np

LEVEL = 0.95
"""How often, at least, the lower bound is no larger than the share."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShareSeen:
    """Result of `share_seen`.

    Attributes:
        low: Share of the file that was seen, at least, at `LEVEL`.
        estimate: The same at a guess, from the lower half of the pool; not below `low`.
    """

    low: float
    estimate: float


def share_seen(scores: np.ndarray, pool: np.ndarray) -> ShareSeen:
    """Lower bound of the share of texts that do not score as unseen texts do.

    Assumption: the texts of the file that were not seen, however many, are
    exchangeable with the pool. Then m of them put a number that is beta-binomial,
    (m; j, L + 1 - j), above the j-th highest score of the pool, and k seen texts add
    at most k. A k is ruled out where more stand above than that explains, at one of
    several j, corrected for their number; the bound is the smallest k that is left.
    Exact at any size and with any ties. Seen texts that score as unseen ones do stay
    unfound: there is no upper bound but 1.

    Args:
        scores: (N,) float64, higher = more likely seen, N >= 1.
        pool: (L,) float64 of texts that were not seen, L >= 1.

    Raises:
        ValueError: If one is empty or not finite.

    Source:
        Meinshausen and Rice (2006), arXiv:math/0501289, for bounds from counts above
        thresholds, with ranks in a pool in place of a known null as in Bates et al.,
        arXiv:2104.08279. The estimate: Storey (2002), at the median of the pool. Liu et
        al., arXiv:2510.09717, estimate the share from the same p-values, no bound.
    """
    from scipy.stats import betabinom

    scores_N, pool_L = np.asarray(scores, np.float64), np.asarray(pool, np.float64)
    N, L = len(scores_N), len(pool_L)
    if not N or not L:
        raise ValueError(f"scores and pool must not be empty, got {N} and {L}")
    if not (np.isfinite(scores_N).all() and np.isfinite(pool_L).all()):
        raise ValueError("scores and pool must be finite")
    half = (L + 1) // 2
    depth_J = half >> np.arange(half.bit_length())
    cut_J = np.sort(pool_L)[::-1][depth_J - 1]
    above_J = (scores_N > cut_J[:, None]).sum(axis=1)
    # One seen text more takes 1 from what is to be explained and at most 1 from what
    # unseen texts explain, so that p-values grow with k.
    low, high = 0, N
    while low < high:
        k = (low + high) // 2
        p_J = betabinom.sf(above_J - k - 1, N - k, depth_J, L + 1 - depth_J)
        if p_J.min() * len(depth_J) > 1 - LEVEL:
            high = k
        else:
            low = k + 1
    below = (N - int(above_J[0])) / N / (1 - half / (L + 1))
    return ShareSeen(low / N, max(low / N, 1 - below))
