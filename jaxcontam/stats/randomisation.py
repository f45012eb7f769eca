"""The randomisation test of a (K, m + 1) matrix: the engine of every proof.

Row k holds one stratum's log-likelihoods: column 0 of the published version, columns
1..m of counterfactuals that would have been equally likely had the model never seen
the file. Under that null the published column is uniform among the m + 1 of its row,
independently over rows, so the law of the sum of scores is known exactly.

Dimension key
    K  strata
    M  columns, M = m + 1
    B  Monte Carlo re-draws
"""

import dataclasses
import math
from typing import Literal

import numpy as np

from jaxcontam.results import OrderNumbers
from jaxcontam.stats.effect import order_effect
from jaxcontam.stats.evalue import soft_rank_log_e
from jaxcontam.stats.lattice import lattice_tail

ScoreKind = Literal["centred", "studentised", "auto"]

MODEL_TOLERANCE = 1e-6
"""Relative tie tolerance for sums of float32 log-probabilities."""
MATRIX_TOLERANCE = 1e-9
"""Relative tie tolerance for matrices of other origin."""
SMALLEST_P = 1e-300
"""p-values are quoted no smaller; `log10_p` has no such limit."""

N_MONTE_CARLO = 99_999
LOG10_E_MAX = 300.0
"""e-values are quoted no larger than 10 to this."""
# Sums over several rows are tabulated up to this many: few enough to stay in cache.
_TABLE_SIZE = 2**14
_MIN_ORDERS_TO_STUDENTISE = 9
_SD_RATIO_TO_STUDENTISE = 4.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of a matrix and what makes two of them tied.

    Attributes:
        values: (K, M) float64, each row symmetric in its columns.
        tolerance: Sums that differ by no more are ties.
        kind: `centred` or `studentised`.
    """

    values: np.ndarray
    tolerance: float
    kind: str


def randomisation_test(
    loglik_KM: np.ndarray,
    boundaries_K: np.ndarray,
    *,
    scores: ScoreKind = "centred",
    relative_tolerance: float = MODEL_TOLERANCE,
    seed: int = 0,
) -> OrderNumbers:
    """Exact p-value that the published version's scores are this large by chance.

    Null hypothesis: within each row the m + 1 versions are exchangeable. The
    p-value is valid in finite samples at any K >= 1, m >= 1, with ties and with a
    constant scorer (p = 1). It says nothing of versions that were not compared: a
    model that saw the examples in other orders is not found.

    Args:
        loglik_KM: (K, m + 1) float64, column 0 the published version.
        boundaries_K: Example boundaries that the published version gains in each
            stratum; divides the effect.
        scores: Rows minus their mean, or also over their standard deviation, or
            `auto`, which studentises very unequal rows (see `row_scores`).
        relative_tolerance: Ties, relative to the sum of the rows' largest values.
        seed: Seeds the Monte Carlo cross-check alone.

    Raises:
        ValueError: If a value is not finite or the shapes disagree.

    Source:
        Within-shard permutation as in Oren et al., arXiv:2310.17623, section 3.2,
        with the exact law of the sum in place of the t-test.
    """
    K, M = loglik_KM.shape
    if K < 1 or M < 2:
        raise ValueError(f"matrix must have K >= 1 rows and 2 columns, got {(K, M)}")
    if boundaries_K.shape != (K,):
        raise ValueError(f"boundaries must have shape {(K,)}, got {boundaries_K.shape}")
    if not np.isfinite(loglik_KM).all():
        raise ValueError("log-likelihoods must be finite")
    scored = row_scores(loglik_KM, kind=scores, relative_tolerance=relative_tolerance)
    values_KM, tolerance = scored.values, scored.tolerance
    tail = lattice_tail(values_KM - values_KM[:, :1], tolerance)
    log10_floor = -K * math.log10(M)
    log10_p = min(0.0, max(tail.log10_upper, log10_floor))
    log10_lower = min(log10_p, max(tail.log10_lower, log10_floor))
    statistic = float(values_KM[:, 0].sum())
    log10_e = soft_rank_log_e(loglik_KM) / math.log(10)
    p_floor = power_of_ten(log10_floor)
    ties = relative_tolerance * float(np.abs(loglik_KM).max(axis=1).sum())
    effect = order_effect(loglik_KM, boundaries_K, p_floor=p_floor, tolerance=ties)
    return OrderNumbers(
        statistic=statistic,
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=power_of_ten(log10_lower),
        p_monte_carlo=monte_carlo_p(values_KM, tolerance=tolerance, seed=seed),
        p_floor=p_floor,
        e_value=10.0 ** min(log10_e, LOG10_E_MAX),
        effect=effect.effect,
        effect_se=effect.effect_se,
        mde=effect.mde,
        scores=scored.kind,
    )


def row_scores(
    loglik_KM: np.ndarray,
    *,
    kind: ScoreKind,
    relative_tolerance: float,
) -> Scores:
    """Scores of each row, symmetric functions of its m + 1 values.

    `auto` studentises where m >= 9 and the 90th percentile of the rows' standard
    deviations exceeds four times the 10th (constant rows left out): a symmetric
    rule, so the test stays exact. A row whose values are tied scores 0, and the
    tolerance is divided row by row like the scores.

    Args:
        loglik_KM: (K, m + 1) float64.
        kind: How to score.
        relative_tolerance: Ties, relative to each row's largest value.
    """
    ties_K = relative_tolerance * np.abs(loglik_KM).max(axis=1)
    centred_KM = loglik_KM - loglik_KM.mean(axis=1, keepdims=True)
    sd_K = loglik_KM.std(axis=1, ddof=1)
    varies_K = np.ptp(loglik_KM, axis=1) > ties_K
    if kind == "auto":
        kind = "studentised" if _unequal(sd_K[varies_K], loglik_KM) else "centred"
    if kind == "centred":
        return Scores(centred_KM, float(ties_K.sum()), "centred")
    scale_K = np.where(varies_K, sd_K, 1.0)
    studentised_KM = np.where(varies_K[:, None], centred_KM / scale_K[:, None], 0.0)
    tolerance = float((ties_K / scale_K)[varies_K].sum())
    return Scores(studentised_KM, tolerance, "studentised")


def monte_carlo_p(
    values_KM: np.ndarray,
    *,
    tolerance: float,
    seed: int,
    n_draws: int = N_MONTE_CARLO,
) -> float:
    """p-value (1 + #{T* >= T}) / (B + 1) from B random columns a row.

    Args:
        values_KM: (K, M) float64 scores, column 0 the published version.
        tolerance: Sums that differ by no more are ties, and count against detection.
        seed: Seeds the draws.
        n_draws: B.
    """
    sums_B = redrawn_sums(values_KM, n_draws=n_draws, seed=seed)
    published = float(values_KM[:, 0].sum())
    n_as_large = int(np.count_nonzero(sums_B >= published - tolerance))
    return (1 + n_as_large) / (1 + n_draws)


def redrawn_sums(values_KM: np.ndarray, *, n_draws: int, seed: int) -> np.ndarray:
    """Sums of one uniformly random column a row, `n_draws` times.

    Sums of several rows are tabulated over all their column choices first, so that
    one draw and one look-up serve them together: the same law, fewer draws.

    Args:
        values_KM: (K, M) float64 scores.
        n_draws: B.
        seed: The same seed gives the same sums.

    Returns:
        (B,) float64.
    """
    M = values_KM.shape[1]
    rows_a_table = max(1, int(math.log(_TABLE_SIZE, M) + 1e-9))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums_B, drawn_B = np.zeros(n_draws), np.empty(n_draws)
    for start in range(0, len(values_KM), rows_a_table):
        table = np.zeros(1)
        for row_M in values_KM[start : start + rows_a_table]:
            table = np.add.outer(table, row_M).ravel()
        # `clip` only skips the bounds check: the draws are inside by construction.
        np.take(table, rng.integers(len(table), size=n_draws), out=drawn_B, mode="clip")
        sums_B += drawn_B
    return sums_B


def _unequal(sd: np.ndarray, loglik_KM: np.ndarray) -> bool:
    if loglik_KM.shape[1] - 1 < _MIN_ORDERS_TO_STUDENTISE or len(sd) == 0:
        return False
    low, high = np.percentile(sd, [10, 90])
    return bool(high > _SD_RATIO_TO_STUDENTISE * low)


def power_of_ten(exponent: float) -> float:
    """10^exponent, not below `SMALLEST_P`."""
    return max(10.0**exponent, SMALLEST_P) if exponent > -400 else SMALLEST_P
