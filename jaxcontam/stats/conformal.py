"""Texts against a pool of known non-members: p-values, thresholds, the share seen.

Valid for texts that are exchangeable with the pool: drawn as the pool was, and no
members. A text of another kind or date may stand out without having been trained on.

Dimension key
    N  texts
    L  non-members of the pool
    D  documents of the pool
    J  depths of the pool
"""

import dataclasses
import math

import numpy as np

# As for true-positive rates: products such as 0.05 * 100 are not exact.
_SLACK = 1e-9

LEVEL = 0.95
"""Coverage of the lower bound on the share."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConformalThreshold:
    """A threshold with a false-positive rate that holds on average over pools.

    Texts above the threshold count as members. `rate` is the mean rate over pools, at
    most the wanted one; `low` and `high` are of the rate of this one, None with several
    scores a document. Ties can only make the rate smaller than `high`.
    """

    threshold: float
    rate: float
    low: float | None
    high: float | None


def conformal_p_values(
    scores_N: np.ndarray, pool_L: np.ndarray, *, clusters_L: np.ndarray | None = None
) -> np.ndarray:
    """Probability that a non-member scores as high, from a pool of non-members.

    Null hypothesis, of each text by itself: exchangeable with the pool, or, where the
    pool comes from documents, of a new document that is exchangeable with these. All
    p-values share the pool and depend on each other positively: Benjamini and
    Hochberg's procedure still holds (Bates et al. 2023).

    (1 + #{pool >= score}) / (L + 1); with documents (1 + sum over documents of the
    share of their texts at or above the score) / (D + 1). A score of NaN stays NaN.

    Source:
        Vovk, Gammerman and Shafer (2005); Bates et al., "Testing for outliers with
        conformal p-values", arXiv:2104.08279. With documents Lee, Barber and Willett,
        "Distribution-free inference with hierarchical data", arXiv:2306.06342.
    """
    pool_L, weight_L = _checked_pool(pool_L, clusters_L)
    scores_N = np.asarray(scores_N, np.float64)
    # From each place on: the weight of this text and of all above it.
    above_L = np.append(_at_or_above(weight_L), 0.0)
    as_high_N = above_L[np.searchsorted(pool_L, scores_N, side="left")]
    p_N = (1 + as_high_N) / (weight_L.sum() + 1)
    return np.where(np.isnan(scores_N), np.nan, np.minimum(p_N, 1.0))


def threshold_at_fpr(
    pool_L: np.ndarray, fpr: float, *, clusters_L: np.ndarray | None = None
) -> ConformalThreshold:
    """The threshold above which a text has a conformal p-value of at most `fpr`.

    The pool must hold 1 / fpr - 1 scores or documents: no p-value could be that small.

    Source:
        The rate above the k-th largest of L continuous scores is Beta(k, L + 1 - k);
        Vovk (2012), "Conditional validity of inductive conformal predictors". Nothing
        like it is known of documents with several scores each: no interval then.
    """
    from scipy.special import betaincinv

    pool_L, weight_L = _checked_pool(pool_L, clusters_L)
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must be in (0, 1), got {fpr}")
    D = round(float(weight_L.sum()))
    k = math.floor(fpr * (D + 1) + _SLACK)
    if k < 1:
        raise ValueError(
            f"pool must hold at least {math.ceil(1 / fpr - 1 - _SLACK)} scores for a "
            f"rate of {fpr}, got {D}"
        )
    # The lowest score that leaves a weight of at most fpr (D + 1) - 1 above it.
    above_L = np.append(_at_or_above(weight_L)[1:], 0.0)
    first = int(np.argmax(above_L <= fpr * (D + 1) - 1 + _SLACK))
    threshold = float(pool_L[first])
    if len(pool_L) > D:
        rate = (1 + float(weight_L[pool_L > threshold].sum())) / (D + 1)
        return ConformalThreshold(threshold, rate, None, None)
    ends = (1 - 0.95) / 2, (1 + 0.95) / 2
    low, high = (float(betaincinv(k, D + 1 - k, q)) for q in ends)
    return ConformalThreshold(threshold, k / (D + 1), low, high)


def share_seen(scores: np.ndarray, pool: np.ndarray) -> tuple[float, float]:
    """Lower bound of the share of texts that do not score as unseen texts do.

    Assumption: the texts of the file that were not seen, however many, are
    exchangeable with the pool. Then m of them put a number that is beta-binomial,
    (m; j, L + 1 - j), above the j-th highest score of the pool, and k seen texts add
    at most k. A k is ruled out where more stand above than that explains, at one of
    several j, corrected for their number; the bound is the smallest k that is left.
    Exact at any size and with any ties. There is no upper bound but 1.

    Returns:
        The share that was seen, at least, at `LEVEL`; and a guess at it from the lower
        half of the pool, not below the bound.

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
        explains = p_J.min() * len(depth_J) > 1 - LEVEL
        low, high = (low, k) if explains else (k + 1, high)
    below = (N - int(above_J[0])) / N / (1 - half / (L + 1))
    return low / N, max(low / N, 1 - below)


def _at_or_above(weight_L: np.ndarray) -> np.ndarray:
    """(L,) sums from each place to the end, thirds of a document without rounding."""
    return np.round(np.cumsum(weight_L[::-1])[::-1], 12)


def _checked_pool(
    pool_L: np.ndarray, clusters_L: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Scores ascending, and what each counts: its share of its document."""
    pool_L = np.asarray(pool_L, np.float64)
    if len(pool_L) < 1:
        raise ValueError("pool must hold at least 1 score")
    if not np.isfinite(pool_L).all():
        raise ValueError("pool must be finite")
    weight_L = np.ones(len(pool_L))
    if clusters_L is not None:
        if len(clusters_L) != len(pool_L):
            raise ValueError("clusters must have one code a text")
        _, codes_L, sizes = np.unique(
            clusters_L, return_inverse=True, return_counts=True
        )
        weight_L = 1 / sizes[codes_L]
    order = np.argsort(pool_L, kind="stable")
    return pool_L[order], weight_L[order]
