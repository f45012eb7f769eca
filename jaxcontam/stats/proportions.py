"""Shares that were counted: intervals, whether one is larger, how often a test rejects.

Dimension key
    R  draws
    K  strata
    M  columns
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from jaxcontam.stats.result import Rejection

# Normal quantile of a two-sided interval of 95 %.
_Z = 1.959964


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share; Wilson (1927), which behaves at 0 and 1."""
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"successes must be 0 to trials, got {successes} of {trials}")
    share, z2 = successes / trials, _Z * _Z / trials
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z / (1 + z2) * math.sqrt(share * (1 - share) / trials + z2 / 4 / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


def rate_interval(
    successes: int, trials: int
) -> tuple[float, float, float] | tuple[None, None, None]:
    """A share with its `wilson_interval`; three times None without a trial."""
    if not trials:
        return None, None, None
    return successes / trials, *wilson_interval(successes, trials)


@dataclasses.dataclass(frozen=True, slots=True)
class RateTest:
    """One-sided p-values that the first share is no larger.

    Barnard's is at the worst common share; None for more than a million tables.
    """

    fisher: float
    barnard: float | None


def rate_test(found: int, n: int, found_control: int, n_control: int) -> RateTest:
    """Test that a share is larger than that of a control set.

    Null hypothesis: whether an item is found does not depend on its set. Barnard's test
    is the sharper one for small samples; both are exact.

    Source:
        Fisher 1935; Barnard 1945, "A New Test for 2 x 2 Tables", with the pooled
        statistic. Both by scipy.
    """
    from scipy import stats

    for count, items in ((found, n), (found_control, n_control)):
        if items < 1 or not 0 <= count <= items:
            raise ValueError(f"counts must be 0 to their items, got {count} of {items}")
    table = [[found, found_control], [n - found, n_control - found_control]]
    given_sums = stats.fisher_exact(table, alternative="greater")
    fisher = float(given_sums.pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    barnard = None
    # Barnard's test goes through all tables, for minutes where they are more.
    if (n + 1) * (n_control + 1) <= 10**6:
        barnard = float(stats.barnard_exact(table, alternative="greater").pvalue)
    return RateTest(fisher=fisher, barnard=barnard)


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

    P(T* <= T) is the p-value of the negated scores.
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
