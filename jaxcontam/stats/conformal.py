"""Conformal p-values and thresholds: one text against a pool of known non-members.

Valid for a text that is exchangeable with the pool: drawn as the pool was, and no
member. A text of another kind or date may stand out without having been trained on.

Dimension key
    N  texts
    L  non-members of the pool
"""

import dataclasses
import math

import numpy as np

# As for true-positive rates: products such as 0.05 * 100 are not exact.
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class ConformalThreshold:
    """A threshold with a false-positive rate that holds on average over pools.

    Attributes:
        threshold: Texts above it count as members.
        rate: Mean false-positive rate over pools, at most the wanted one.
        low: Lower end of the interval of the rate that this very threshold has on new
            non-members.
        high: Upper end; ties can only make the rate smaller.
    """

    threshold: float
    rate: float
    low: float
    high: float


def conformal_p_values(scores: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Probability that a non-member scores as high, from a pool of non-members.

    Null hypothesis, of each text by itself: exchangeable with the pool. All p-values
    share the pool, so that they depend on each other, positively: Benjamini and
    Hochberg's procedure still holds (Bates et al. 2023).

    Args:
        scores: (N,) float64, higher = more likely a member; NaN stays NaN.
        pool: (L,) float64, L >= 1.

    Returns:
        (N,) float64, (1 + #{pool >= score}) / (L + 1).

    Raises:
        ValueError: If the pool is empty or not finite.

    Source:
        Vovk, Gammerman and Shafer (2005); Bates et al., "Testing for outliers with
        conformal p-values", arXiv:2104.08279.
    """
    pool_L = _checked_pool(pool)
    scores_N = np.asarray(scores, np.float64)
    n_as_high_N = len(pool_L) - np.searchsorted(pool_L, scores_N, side="left")
    p_N = (1 + n_as_high_N) / (len(pool_L) + 1)
    return np.where(np.isnan(scores_N), np.nan, p_N)


def threshold_at_fpr(
    pool: np.ndarray, fpr: float, *, level: float = 0.95
) -> ConformalThreshold:
    """The threshold above which a text has a conformal p-value of at most `fpr`.

    Args:
        pool: (L,) float64 scores of non-members.
        fpr: Wanted false-positive rate, in (0, 1).
        level: Of the interval of the rate, given this pool.

    Raises:
        ValueError: If `fpr` is outside (0, 1), or the pool holds fewer than
            1 / fpr - 1 scores: no p-value could be that small.

    Source:
        The rate above the k-th largest of L continuous scores is Beta(k, L + 1 - k);
        Vovk (2012), "Conditional validity of inductive conformal predictors".
    """
    from scipy.special import betaincinv

    pool_L = _checked_pool(pool)
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must be in (0, 1), got {fpr}")
    L = len(pool_L)
    k = math.floor(fpr * (L + 1) + _SLACK)
    if k < 1:
        raise ValueError(
            f"pool must hold at least {math.ceil(1 / fpr - 1 - _SLACK)} scores for a "
            f"rate of {fpr}, got {L}"
        )
    low, high = (
        float(betaincinv(k, L + 1 - k, q)) for q in ((1 - level) / 2, (1 + level) / 2)
    )
    return ConformalThreshold(float(pool_L[L - k]), k / (L + 1), low, high)


def _checked_pool(pool: np.ndarray) -> np.ndarray:
    pool_L = np.sort(np.asarray(pool, np.float64))
    if len(pool_L) < 1:
        raise ValueError("pool must hold at least 1 score")
    if not np.isfinite(pool_L).all():
        raise ValueError("pool must be finite")
    return pool_L
