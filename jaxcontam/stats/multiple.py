"""Several tests: Holm and max-T for claims, BH, BY and e-BH for screening.

Dimension key
    N  hypotheses
    Q  statistics of one published order
    K  strata
    M  columns, M = m + 1
    B  re-draws; B + 1 columns with the published one first
"""

import dataclasses
import math

import numpy as np
from scipy.special import gammaincc

# Sums of the same numbers in another order differ by less than this, relative.
_ROUNDING = 1e-12


def holm(p_values_N: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values; controls the familywise error under any dependence.

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    n = len(p_values_N)
    ascending = np.argsort(p_values_N, kind="stable")
    scaled = p_values_N[ascending] * (n - np.arange(n))
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted


def fisher(p_values_N: np.ndarray) -> float:
    """Fisher's combined p-value; small if some null hypothesis of several is false.

    It does not say which, and holds its level only if the p-values are independent.
    Where they are discrete it errs upwards.

    Args:
        p_values_N: In [0, 1]; below the smallest normal float they count as that.

    Returns:
        P(chi2 with 2 N degrees of freedom >= -2 sum of log p), in [0, 1].

    Raises:
        ValueError: If there is none, or one is outside [0, 1].

    Source:
        Fisher (1932), "Statistical Methods for Research Workers", section 21.1.
    """
    if not len(p_values_N) or not ((p_values_N >= 0) & (p_values_N <= 1)).all():
        raise ValueError(f"p_values must be some numbers in [0, 1], got {p_values_N}")
    logs_N = np.log(np.maximum(p_values_N, np.finfo(np.float64).tiny))
    # The upper tail of a chi-square at 2 x with 2 N degrees of freedom.
    return float(gammaincc(len(logs_N), -logs_N.sum()))


def benjamini_hochberg(p_values_N: np.ndarray) -> np.ndarray:
    """Adjusted p-values that control the false discovery rate under independence.

    Also where p-values depend on each other positively, as conformal p-values of one
    pool do.

    Source:
        Benjamini and Hochberg (1995), "Controlling the false discovery rate".
    """
    return _step_up(p_values_N, p_values_N * len(p_values_N))


def benjamini_yekutieli(p_values_N: np.ndarray) -> np.ndarray:
    """Adjusted p-values that control the false discovery rate, whatever the dependence.

    Rejecting all that are at most q leaves an expected share of at most q of the
    rejections false. Weaker than Holm's claim that each one is true.

    Source:
        Benjamini and Yekutieli (2001), "The control of the false discovery rate in
        multiple testing under dependency", theorem 1.3.
    """
    n = len(p_values_N)
    harmonic = float((1 / np.arange(1, n + 1)).sum())
    return _step_up(p_values_N, p_values_N * n * harmonic)


def e_bh(e_values_N: np.ndarray) -> np.ndarray:
    """Levels from which on e-BH rejects each hypothesis, whatever the dependence.

    Rejecting all that are at most q is e-BH at q: the false discovery rate is at most
    q. Infinity is allowed.

    Source:
        Wang and Ramdas (2022), "False discovery rate control with e-values",
        arXiv:2009.02824.
    """
    with np.errstate(divide="ignore"):
        inverse = 1 / np.asarray(e_values_N, np.float64)
    return _step_up(inverse, inverse * len(inverse))


def calibrated_e(log10_p: float) -> float:
    """The e-value 1 / (2 sqrt(p)) of a p-value, at most 1e300, for tests without one.

    Source:
        Vovk and Wang, arXiv:1912.06116: the calibrator kappa p^(kappa - 1) at
        kappa = 0.5.
    """
    if log10_p > 0:
        raise ValueError(f"log10_p must be at most 0, got {log10_p}")
    return 10.0 ** min(-0.5 * log10_p - math.log10(2), 300.0)


def _step_up(order_by_N: np.ndarray, scaled_N: np.ndarray) -> np.ndarray:
    """Smallest of scaled / rank over the own and all higher ranks, at most 1."""
    n = len(order_by_N)
    ascending = np.argsort(order_by_N, kind="stable")
    per_rank = scaled_N[ascending] / np.arange(1, n + 1)
    adjusted = np.empty(n)
    adjusted[ascending] = np.minimum.accumulate(per_rank[::-1])[::-1]
    return np.minimum(1.0, adjusted)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaxTResult:
    """Result of `max_t`, one-sided.

    `p_value`, at least 1 / (B + 1), is that the highest would be so high; `p_adjusted`,
    (Q,), that it would be as high as each one is.
    """

    statistic: float
    winner: int
    p_value: float
    p_adjusted: np.ndarray


def max_t(
    statistics_QB: np.ndarray, *, tolerances: np.ndarray | float = 0.0
) -> MaxTResult:
    """Exact p-value of the best of several statistics, however dependent they are.

    Null hypothesis: the B + 1 columns are exchangeable, as they are when column 0 is
    the published order's and each other column has all its Q statistics from one random
    order of the file; see `shared_sums`. A statistic that never varies counts as 0.
    Values that differ by no more than the tolerances are ties, against detection.

    Source:
        Westfall and Young (1993), "Resampling-Based Multiple Testing", single-step
        maxT, with Monte Carlo draws and the added 1 of Phipson and Smyth (2010).
    """
    Q, n_columns = statistics_QB.shape
    if Q < 1 or n_columns < 2:
        raise ValueError(f"statistics need a row and 2 columns, got {(Q, n_columns)}")
    if not np.isfinite(statistics_QB).all():
        raise ValueError("statistics must be finite")
    rounding_Q = _ROUNDING * np.abs(statistics_QB).max(axis=1)
    ties_Q = np.maximum(np.broadcast_to(tolerances, (Q,)), rounding_Q)
    # Mean and spread over all columns, the published one too, do not tell which
    # column that is; so the standardised columns are exchangeable as well.
    varies_Q = np.ptp(statistics_QB, axis=1) > ties_Q
    scale_Q = np.where(varies_Q, statistics_QB.std(axis=1), 1.0)
    centred = statistics_QB - statistics_QB.mean(axis=1, keepdims=True)
    standardised = np.where(varies_Q[:, None], centred / scale_Q[:, None], 0.0)
    slack_Q = np.where(varies_Q, ties_Q / scale_Q, 0.0)
    published_Q = standardised[:, 0]
    highest_B = np.sort((standardised[:, 1:] + slack_Q[:, None]).max(axis=0))
    n_as_high_Q = len(highest_B) - np.searchsorted(highest_B, published_Q, "left")
    p_adjusted_Q = (1 + n_as_high_Q) / n_columns
    winner = int(published_Q.argmax())
    return MaxTResult(
        statistic=float(published_Q[winner]),
        winner=winner,
        p_value=float(p_adjusted_Q[winner]),
        p_adjusted=p_adjusted_Q,
    )


def shared_sums(values_QKM: np.ndarray, *, n_draws: int, seed: int) -> np.ndarray:
    """Sums over strata of Q scores, each draw choosing one column a stratum for all.

    (Q, B + 1) float64, the published sums first, as for `max_t`.
    """
    Q, K, M = values_QKM.shape
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums = np.zeros((Q, n_draws + 1))
    columns = np.zeros(n_draws + 1, np.int64)
    for k in range(K):
        columns[1:] = rng.integers(M, size=n_draws)
        sums += values_QKM[:, k, columns]
    return sums
