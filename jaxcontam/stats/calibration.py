"""How often a test rejects where nothing is to be found.

Dimension key
    R  draws
    K  strata
    M  columns
"""

from collections.abc import Callable

import numpy as np

from jaxcontam.stats.result import Rejection

LEVELS = (0.05, 0.01)


def rejection(p_values_R: np.ndarray, level: float) -> Rejection:
    """Share of p-values at or below a level, with its Clopper-Pearson interval."""
    from scipy import stats

    n, k = len(p_values_R), int(np.count_nonzero(p_values_R <= level))
    low = float(stats.beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(stats.beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return Rejection(level=level, n_rejected=k, rate=k / n, low=low, high=high)


def distance_from_uniform(p_values_R: np.ndarray) -> tuple[float, float]:
    """Kolmogorov-Smirnov distance from the uniform law, and its p-value."""
    from scipy import stats

    found = stats.kstest(p_values_R, "uniform")
    return float(found.statistic), float(found.pvalue)


def randomised(p_value: float, p_opposite: float, uniform: float) -> float:
    """P(T* > T) + uniform * P(T* = T), which is uniform under the null even with ties.

    Args:
        p_value: P(T* >= T).
        p_opposite: P(T* <= T), the p-value of the negated scores.
        uniform: A draw from U(0, 1).
    """
    above = max(0.0, 1.0 - p_opposite)
    return above + uniform * max(0.0, p_value - above)


def relabelled_p_values(
    loglik_KM: np.ndarray,
    p_value: Callable[[np.ndarray], float],
    *,
    n_draws: int,
    seed: int,
) -> np.ndarray:
    """p-values of a matrix with a random column of each row in the published place.

    The law that an exact test refers to, so only approximate tests learn from it.

    Args:
        loglik_KM: (K, m + 1) float64.
        p_value: Matrix -> p-value of the approximate test.
        n_draws: R.
        seed: Seeds the columns.

    Returns:
        (R,) float64.
    """
    K, M = loglik_KM.shape
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    rows_K, found_R = np.arange(K), np.empty(n_draws)
    for draw in range(n_draws):
        column_K = rng.integers(M, size=K)
        relabelled_KM = loglik_KM.copy()
        relabelled_KM[:, 0] = loglik_KM[rows_K, column_K]
        relabelled_KM[rows_K, column_K] = loglik_KM[:, 0]
        found_R[draw] = p_value(relabelled_KM)
    return found_R
