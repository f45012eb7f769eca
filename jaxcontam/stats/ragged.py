"""The randomisation test for rows of different lengths.

Dimension key
    K  rows
    B  Monte Carlo re-draws
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.results import OrderNumbers
from jaxcontam.stats.effect import mde_of
from jaxcontam.stats.evalue import LAMBDAS
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.randomisation import (
    LOG10_E_MAX,
    MODEL_TOLERANCE,
    N_MONTE_CARLO,
    power_of_ten,
    randomisation_test,
)


def rows_test(
    rows: Sequence[np.ndarray],
    *,
    relative_tolerance: float = MODEL_TOLERANCE,
    seed: int = 0,
) -> OrderNumbers:
    """`randomisation_test` of rows that may differ in length, centred row by row.

    Null hypothesis: within each row every version was equally likely to be the
    published one, independently over rows. The effect is the mean gain a row.

    Args:
        rows: One float64 array a row, at least two values, the published one first.
        relative_tolerance: Ties, relative to the sum of the rows' largest values.
        seed: Seeds the Monte Carlo cross-check alone.

    Raises:
        ValueError: If a value is not finite or a row has fewer than two.
    """
    if not rows or min(map(len, rows)) < 2:
        raise ValueError("every row must have at least 2 values, of at least 1 row")
    if len({len(row) for row in rows}) == 1:
        return randomisation_test(
            np.stack(rows),
            np.ones(len(rows)),
            relative_tolerance=relative_tolerance,
            seed=seed,
        )
    if not all(np.isfinite(row).all() for row in rows):
        raise ValueError("log-likelihoods must be finite")
    tolerance = relative_tolerance * sum(float(np.abs(row).max()) for row in rows)
    centred = [row - row.mean() for row in rows]
    tail = lattice_tail((row - row[0] for row in centred), tolerance)
    log10_floor = -sum(math.log10(len(row)) for row in rows)
    log10_p = min(0.0, max(tail.log10_upper, log10_floor))
    log10_lower = min(log10_p, max(tail.log10_lower, log10_floor))
    p_floor = power_of_ten(log10_floor)
    effect, effect_se = _effect(rows)
    differs = sum(float(np.ptp(row)) for row in rows) > tolerance
    mde = mde_of(effect_se, p_floor=p_floor, differs=differs)
    log10_e = _log_e(centred) / math.log(10)
    return OrderNumbers(
        statistic=float(sum(row[0] for row in centred)),
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=power_of_ten(log10_lower),
        p_monte_carlo=_monte_carlo_p(centred, tolerance, seed),
        p_floor=p_floor,
        e_value=10.0 ** min(log10_e, LOG10_E_MAX),
        effect=effect,
        effect_se=effect_se,
        mde=None if mde is None else max(mde, tolerance / len(rows)),
        scores="centred",
    )


def ragged_sums(rows: Sequence[np.ndarray], *, n_draws: int, seed: int) -> np.ndarray:
    """(n_draws,) float64 sums of one uniformly random value a row."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums_B = np.zeros(n_draws)
    for row in rows:
        sums_B += row[rng.integers(len(row), size=n_draws)]
    return sums_B


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """(K, longest) float64, short rows filled up with NaN: how archives keep them."""
    matrix_KM = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        matrix_KM[k, : len(row)] = row
    return matrix_KM


def unpadded(matrix_KM: np.ndarray) -> list[np.ndarray]:
    """Undo `padded`.

    Raises:
        ValueError: If a row has a hole.
    """
    rows = []
    for row in matrix_KM:
        length = int(np.count_nonzero(~np.isnan(row)))
        if np.isnan(row[:length]).any():
            raise ValueError("a row of scores has a hole")
        rows.append(row[:length])
    return rows


def _monte_carlo_p(centred: Sequence[np.ndarray], tolerance: float, seed: int) -> float:
    sums_B = ragged_sums(centred, n_draws=N_MONTE_CARLO, seed=seed)
    published = float(sum(row[0] for row in centred))
    n_as_large = int(np.count_nonzero(sums_B >= published - tolerance))
    return (1 + n_as_large) / (1 + N_MONTE_CARLO)


def _effect(rows: Sequence[np.ndarray]) -> tuple[float, float | None]:
    """Mean gain a row, and its standard error."""
    K = len(rows)
    gains_K = np.array([row[0] - row[1:].mean() for row in rows])
    if all(len(row) > 2 for row in rows):
        # The spread of the counterfactuals of each row; its published version has
        # the same under the null.
        variance = sum(
            float(row[1:].var(ddof=1)) * len(row) / (len(row) - 1) for row in rows
        )
        se = variance**0.5 / K
    else:
        se = float(gains_K.std(ddof=1)) / K**0.5
    return float(gains_K.mean()), se


def _log_e(centred: Sequence[np.ndarray]) -> float:
    """Log of the soft-rank e-value; see `soft_rank_log_e`."""
    pooled = float(np.mean([row.var(ddof=1) for row in centred])) ** 0.5
    if pooled == 0.0:
        return 0.0
    log_e_L = np.zeros(len(LAMBDAS))
    for row in centred:
        bets_LM = LAMBDAS[:, None] * (row / pooled)[None, :]
        top_L1 = bets_LM.max(axis=1, keepdims=True)
        mean_L = np.log(np.exp(bets_LM - top_L1).mean(axis=1)) + top_L1[:, 0]
        log_e_L += bets_LM[:, 0] - mean_L
    return float(np.logaddexp.reduce(log_e_L) - np.log(len(LAMBDAS)))
