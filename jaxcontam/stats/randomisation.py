"""The randomisation test of a (K, m + 1) matrix: whole orders, versions, any matrix.

Row k holds one stratum's log-likelihoods: column 0 of the published version, columns
1..m of counterfactuals that would have been equally likely had the model never seen
the file. Under that null the published column is uniform among the m + 1 of its row,
independently over rows, so the law of the sum of scores is known exactly.

Dimension key
    K  strata
    M  columns, M = m + 1; may differ from row to row
    N  values of all rows together
    L  mixture components of an e-value
    B  Monte Carlo re-draws
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from jaxcontam.stats.exact_tail import LatticeTail, best_tilt, lattice_tail
from jaxcontam.stats.result import OrderNumbers, order_effect
from jaxcontam.stats.rows import Matrix, Rows, flat_rows, summed_rows

SEVERAL = 2**12
"""Rows beyond which the normal law may be nearer to a sum than a grid is."""
MANY = 2**16
"""Rows beyond which no grid is laid, unless a few of them make up the sum."""
# Constant of the Berry-Esseen inequality for summands of different laws.
_ESSEEN = 0.56
# Further from normal than this, a few rows make up the sum.
_MOST_DISTANCE = 0.05
# Values that are looked at together.
_CHUNK = 2**20
# Of a sum of all rows, as a share of its terms: numpy adds two by two, chunks in turn.
_ROUNDING = 256 * float(np.finfo(np.float64).eps)

ScoreKind = Literal["centred", "studentised", "auto"]

MODEL_TOLERANCE = 1e-6
"""Relative tie tolerance for sums of float32 log-probabilities."""
MATRIX_TOLERANCE = 1e-9
"""Relative tie tolerance for matrices of other origin."""
LARGEST = 1e100
"""Squares of larger numbers overflow; a log-likelihood is far below them."""
SMALLEST_P = 1e-300
"""p-values are quoted no smaller; `log10_p` has no such limit."""

N_MONTE_CARLO = 99_999
LOG10_E_MAX = 300.0
"""e-values are quoted no larger than 10 to this."""
MIN_ORDERS_TO_STUDENTISE = 9
"""`auto` leaves rows of fewer counterfactual orders as they are."""
SD_RATIO_TO_STUDENTISE = 4.0
"""`auto` studentises where the rows' 10th and 90th percentile are further apart."""
LAMBDAS = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
"""Bets of different boldness; their mean is a martingale like each of them."""
# Sums over several rows are tabulated up to this many: few enough to stay in cache.
_TABLE_SIZE = 2**14
# Blocks of very many rows; their sums have the spread of the rows' to a percent.
_BLOCKS = 2**13


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowScores:
    """Scores of a matrix and what makes two of them tied.

    Attributes:
        rows: K rows, each symmetric in its columns.
        differences: Less column 0, so that rounding of a mean makes no ties.
        tolerance: Sums that differ by no more are ties.
    """

    rows: Rows
    differences: Rows
    tolerance: float
    kind: str

    @property
    def published(self) -> np.ndarray:
        """(K,) scores of the published version."""
        return self.rows.first


def randomisation_test(
    loglik_KM: Matrix,
    boundaries_K: np.ndarray,
    *,
    scores: ScoreKind = "centred",
    relative_tolerance: float = MODEL_TOLERANCE,
    seed: int = 0,
    n_draws: int = N_MONTE_CARLO,
) -> OrderNumbers:
    """Exact p-value that the published version's scores are this large by chance.

    Null hypothesis: within each row the versions are exchangeable. Valid in finite
    samples at any K >= 1, m >= 1, with ties and with a constant scorer (p = 1). Blind
    to versions that were not compared: examples that were seen in other orders.

    Args:
        loglik_KM: Column 0 the published version; rows may differ in length.
        boundaries_K: Boundaries that the published version gains; divides the effect.
        scores: Rows minus their mean, or also over their standard deviation, or
            `auto`, which studentises very unequal rows (see `row_scores`).
        relative_tolerance: Ties, relative to the sum of the rows' largest values.
        seed: Seeds the cross-check alone.
        n_draws: Draws of the Monte Carlo cross-check; 0 leaves it out.

    Raises:
        ValueError: If a value is not finite or the shapes disagree.

    Source:
        Within-shard permutation as in Oren et al., arXiv:2310.17623, section 3.2,
        with the exact law of the sum in place of the t-test.
    """
    rows = flat_rows(loglik_KM)
    if boundaries_K.shape != rows.sizes.shape:
        raise ValueError(
            f"boundaries must have shape {rows.sizes.shape}, got {boundaries_K.shape}"
        )
    log10_floor = -float(np.log10(rows.sizes).sum())
    log10_e = soft_rank_log_e(loglik_KM) / math.log(10)
    p_floor = power_of_ten(log10_floor)
    ties = relative_tolerance * float(_magnitudes(rows).sum())
    effect = order_effect(loglik_KM, boundaries_K, p_floor=p_floor, tolerance=ties)
    # As large as the matrix twice: only now.
    scored = row_scores(loglik_KM, kind=scores, relative_tolerance=relative_tolerance)
    tail = _tail(scored.differences, scored.tolerance)
    log10_p = min(0.0, max(tail.log10_upper, log10_floor))
    log10_lower = min(log10_p, max(tail.log10_lower, log10_floor))
    monte_carlo = None
    if n_draws > 0:
        monte_carlo = monte_carlo_p(
            scored.rows, tolerance=scored.tolerance, seed=seed, n_draws=n_draws
        )
    return OrderNumbers(
        statistic=float(scored.published.sum()),
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=power_of_ten(log10_lower),
        p_monte_carlo=monte_carlo,
        p_floor=p_floor,
        e_value=10.0 ** min(log10_e, LOG10_E_MAX),
        **effect._asdict(),
        scores=scored.kind,
    )


def row_scores(
    loglik_KM: Matrix, *, kind: ScoreKind, relative_tolerance: float
) -> RowScores:
    """Scores of each row, symmetric functions of its m + 1 values.

    `auto` studentises where every m >= 9 and the 90th percentile of the rows' standard
    deviations exceeds four times the 10th (constant rows left out). A row whose values
    are tied scores 0; the tolerance is divided row by row like the scores.
    """
    rows = flat_rows(loglik_KM)
    ties_K = relative_tolerance * _magnitudes(rows)
    varies_K = rows.ranges() > ties_K
    sd_K = np.sqrt(rows.variances())
    if kind == "auto":
        kind = "centred"
        if rows.sizes.min() > MIN_ORDERS_TO_STUDENTISE and varies_K.any():
            low, high = np.percentile(sd_K[varies_K], [10, 90])
            if high > SD_RATIO_TO_STUDENTISE * low:
                kind = "studentised"
    factor_K = np.ones(len(sd_K))
    if kind == "studentised":
        # A tied row is multiplied by 0, others are divided by their deviation.
        factor_K = np.where(varies_K, 1 / np.where(varies_K, sd_K, 1.0), 0.0)
    factor_N = rows.spread(factor_K)
    return RowScores(
        Rows(rows.minus(rows.means()).flat * factor_N, rows.sizes),
        Rows(rows.minus(rows.first).flat * factor_N, rows.sizes),
        float((ties_K * factor_K).sum()),
        kind,
    )


def row_spread(loglik_KM: Matrix) -> float:
    """Mean absolute distance, in nats, of a value from the mean of its row.

    0 if it is rounding. No exchange of columns changes it: a test stays exact when its
    scores are divided by it.
    """
    rows = flat_rows(loglik_KM)
    spread = float(np.abs(rows.minus(rows.means()).flat).mean())
    largest = float(np.abs(rows.flat).max())
    return spread if spread > MODEL_TOLERANCE * largest else 0.0


def monte_carlo_p(
    values: Rows, *, tolerance: float, seed: int, n_draws: int = N_MONTE_CARLO
) -> float:
    """p-value (1 + #{T* >= T}) / (B + 1) from B random columns per row.

    Sums that differ by no more than the tolerance count as ties, against detection.
    """
    sums_B = redrawn_sums(values, n_draws=n_draws, seed=seed)
    # In turn, as a draw's are added.
    published = sum(values.first.tolist())
    n_as_large = int(np.count_nonzero(sums_B >= published - tolerance))
    return (1 + n_as_large) / (1 + n_draws)


def redrawn_sums(values: Rows, *, n_draws: int, seed: int) -> np.ndarray:
    """Sums of one uniformly random column per row, `n_draws` times.

    Sums of several rows are tabulated over all their column choices first: the same
    law, fewer draws. Beyond `MANY` rows of one length, blocks of rows share their draws
    (see `_turned`): each sum has the same law, and sums depend on each other a little.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    sums_B, drawn_B = np.zeros(n_draws), np.empty(n_draws)
    if len(values.sizes) > MANY and (values.sizes == values.sizes[0]).all():
        values = _turned(values, rng)
    for table in summed_rows(values.split(), _TABLE_SIZE):
        # `clip` only skips the bounds check: the draws are inside by construction.
        np.take(table, rng.integers(len(table), size=n_draws), out=drawn_B, mode="clip")
        sums_B += drawn_B
    return sums_B


def _turned(values: Rows, rng: np.random.Generator) -> Rows:
    """Sums of `_BLOCKS` blocks of rows whose columns are turned by random steps.

    Column c of a block is the sum over its rows k of column (u_k + c) mod M: whichever
    c is drawn, the columns are uniform and independent over rows.
    """
    M = int(values.sizes[0])
    matrix_KM = values.flat.reshape(-1, M)
    sums = np.empty((_BLOCKS, M))
    for b, block in enumerate(np.array_split(matrix_KM, _BLOCKS)):
        steps = rng.integers(M, size=len(block))[:, None] + np.arange(M)
        sums[b] = np.take_along_axis(block, steps % M, axis=1).sum(axis=0)
    return Rows(sums.ravel(), np.full(_BLOCKS, M))


def soft_rank_log_e(loglik_KM: Matrix) -> float:
    """Natural log of an e-value against exchangeable columns; large is evidence.

    Mean over lambda of prod_k exp(lambda a_k0) / mean_j exp(lambda a_kj), where a is
    centred and divided by the standard deviation pooled over all strata. Its
    expectation under the null is 1. Zero for a constant scorer.

    Source:
        Soft-rank e-values as in Ramdas et al., "Game-theoretic statistics and safe
        anytime-valid inference" (2023), section on permutation e-values.
    """
    rows = flat_rows(loglik_KM)
    pooled = float(np.sqrt(rows.variances().mean()))
    if pooled == 0.0:
        return 0.0
    standardised = Rows(rows.minus(rows.means()).flat / pooled, rows.sizes)
    log_e_L = np.empty(len(LAMBDAS))
    for i, boldness in enumerate(LAMBDAS):
        bets = Rows(boldness * standardised.flat, standardised.sizes)
        top_K = bets.largest()
        weights = bets.minus(top_K)
        np.exp(weights.flat, out=weights.flat)
        # Row by row: a sum by halves differs in the last digit.
        log_e_L[i] = np.cumsum(bets.first - (np.log(weights.means()) + top_K))[-1]
    return float(np.logaddexp.reduce(log_e_L) - np.log(len(LAMBDAS)))


def _tail(differences: Rows, tolerance: float) -> LatticeTail:
    """Bracket of the p-value: on a grid, by the normal law of many rows, or by both."""
    K, normal = len(differences.sizes), None
    if K > SEVERAL:
        normal = normal_tail(differences, tolerance)
    if normal is not None and K > MANY:
        return normal
    grid = lattice_tail(differences.split(), tolerance)
    if normal is None:
        return grid
    # Each end is a bound, so the nearer one is.
    return LatticeTail(
        log10_upper=min(grid.log10_upper, normal.log10_upper),
        log10_lower=max(grid.log10_lower, normal.log10_lower),
    )


def _magnitudes(rows: Rows) -> np.ndarray:
    """(K,) largest absolute value of each row: what ties are relative to."""
    return Rows(np.abs(rows.flat), rows.sizes).largest()


def power_of_ten(exponent: float) -> float:
    """10^exponent, not below `SMALLEST_P`."""
    return max(10.0**exponent, SMALLEST_P) if exponent > -400 else SMALLEST_P


_LN10 = math.log(10)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tilted:
    """The sum of all rows, each weighed by exp(theta * difference).

    `log_mass` is the log of the product of the rows' mean weights, `third` the sum of
    their third absolute central moments; the last two bound `log_mass` and `mean`.
    """

    log_mass: float
    mean: float
    variance: float
    third: float
    log_rounding: float
    rounding: float

    @property
    def distance(self) -> float:
        """Bound of how far the distribution function is from the normal one."""
        if self.variance <= 0:
            return 1.0
        sd = self.variance**0.5
        moved = self.rounding / sd
        return min(1.0, 1.0001 * _ESSEEN * self.third / sd**3 + moved)


def normal_tail(differences: Rows, tolerance: float) -> LatticeTail | None:
    """Bracket the probability that the sum of one random column a row is >= 0.

    A grid that rounds every row adds up what it rounded: with 10^5 rows more than the
    sum's own spread. So long a sum is close to normal, and Berry and Esseen say how
    close: the bracket is as rigorous as that of `lattice_tail`. Rows are tilted first,
    by exp(theta * difference), so that a far tail is the middle of another law.

    Differences are those to column 0; sums down to `-tolerance` count as ties, against
    detection. None where a few rows make up the sum, which is then not normal.

    Source:
        Shevtsova, "An improvement of convergence rate estimates in the Lyapunov
        theorem" (2010): 0.56 for summands of different laws. The tilt is that of
        Cramer and Esscher; the error doubles under it, by partial integration.
    """
    top = float(np.abs(differences.flat).max())
    if top * len(differences.sizes) <= tolerance:
        return LatticeTail(0.0, 0.0)
    # In units of the largest difference no power overflows.
    slack = tolerance / top
    tilted = functools.cache(functools.partial(_tilted, differences, top))
    if tilted(0.0).distance > _MOST_DISTANCE:
        return None
    theta = best_tilt(lambda t: (tilted(t).mean, tilted(t).variance), slack)
    law = tilted(theta)
    sd, ahead = law.variance**0.5, law.mean + slack
    log_scale, error = law.log_mass + theta * slack, law.distance
    if sd == 0.0:
        log_share = 0.0
    else:
        log_share = (theta * sd) ** 2 / 2 - theta * ahead
        log_share += float(log_ndtr(ahead / sd - theta * sd))
    rounding = law.log_rounding + _ROUNDING * ((theta * sd) ** 2 + theta * abs(ahead))
    error *= 1 + (theta > 0)
    log_upper = min(0.0, float(np.logaddexp(log_share, math.log(error))))
    log_lower = -math.inf
    if math.log(error) < log_share:
        log_lower = log_share + math.log1p(-math.exp(math.log(error) - log_share))
    return LatticeTail(
        log10_upper=min(0.0, (log_scale + log_upper + rounding) / _LN10),
        log10_lower=min(0.0, (log_scale + log_lower - rounding) / _LN10),
    )


def _tilted(differences: Rows, top: float, theta: float) -> _Tilted:
    log_mass = mean = variance = third = magnitude = shift = 0.0
    for part in _chunks(differences):
        values_N, starts_K = part.flat / top, part.starts
        exponents_N = theta * values_N
        largest_K = np.maximum.reduceat(exponents_N, starts_K)
        weights_N = np.exp(exponents_N - part.spread(largest_K))
        totals_K = np.add.reduceat(weights_N, starts_K)
        weights_N /= part.spread(totals_K)
        means_K = np.add.reduceat(weights_N * values_N, starts_K)
        away_N = np.abs(values_N - part.spread(means_K))
        weights_N *= away_N * away_N
        log_mass += float((np.log(totals_K / part.sizes) + largest_K).sum())
        mean += float(means_K.sum())
        variance += float(weights_N.sum())
        third += float((weights_N * away_N).sum())
        # Sums of weights are off by an eps a column, and by that of the exponents.
        magnitude += float(
            (np.log(part.sizes) + largest_K + part.sizes / 256 + 1).sum()
        )
        shift += float(np.abs(means_K).sum())
    return _Tilted(
        *(log_mass, mean, variance, third), _ROUNDING * magnitude, _ROUNDING * shift
    )


def _chunks(rows: Rows) -> Iterator[Rows]:
    """Whole rows of about `_CHUNK` values together."""
    ends_K = np.cumsum(rows.sizes)
    first = 0
    while first < len(ends_K):
        begin = int(ends_K[first - 1]) if first else 0
        last = int(np.searchsorted(ends_K, begin + _CHUNK, side="right"))
        last = max(last, first + 1)
        end = int(ends_K[last - 1])
        yield Rows(rows.flat[begin:end], rows.sizes[first:last])
        first = last
