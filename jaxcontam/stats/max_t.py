"""Several statistics of one published order in a single exact p-value.

Dimension key
    Q  statistics
    K  strata
    M  columns, M = m + 1
    B  re-draws; B + 1 columns with the published one first
"""

import dataclasses

import numpy as np

# Sums of the same numbers in another order differ by less than this, relative.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MaxTResult:
    """Result of `max_t`.

    Attributes:
        statistic: Highest standardised statistic of the published order.
        winner: Index of that statistic.
        p_value: One-sided, in [1 / (B + 1), 1]: that the highest would be so high.
        p_adjusted: (Q,) that the highest would be as high as each one is.
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
    the published order's and each other column has all its Q statistics from one
    random order of the file. Choosing the best statistic after looking is what the
    p-value accounts for. A statistic that never varies counts as 0.

    Args:
        statistics_QB: (Q, B + 1) float64, large is evidence; column 0 published. All
            rows of a column from the same draw; see `shared_sums`.
        tolerances: (Q,) or one number: values of a statistic that differ by no more
            are ties, and ties count against detection.

    Raises:
        ValueError: If a value is not finite or there is no draw.

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

    Args:
        values_QKM: (Q, K, M) float64 scores of the same orders, column 0 published.
        n_draws: B.
        seed: The same seed gives the same sums.

    Returns:
        (Q, B + 1) float64, the published sums first: input of `max_t`.
    """
    Q, K, M = values_QKM.shape
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums = np.zeros((Q, n_draws + 1))
    columns = np.zeros(n_draws + 1, np.int64)
    for k in range(K):
        columns[1:] = rng.integers(M, size=n_draws)
        sums += values_QKM[:, k, columns]
    return sums
