"""Exact tail probability of a sum of independent discrete uniforms.

T* - T is a sum over strata of one difference d[k, j] = a[k, j] - a[k, 0] each, all
equally likely. Differences are rounded to a grid and convolved: rounding every one up
bounds the probability from above, rounding down from below, so the bracket is rigorous.
Short rows are first added up, all combinations of their columns: fewer roundings, and
fewer rows to convolve. Few enough combinations are counted instead, exactly.

Rows are read once, one at a time, and kept as counts of grid cells. The grid is a power
of two: dividing by it is exact, and a coarser one nests in a finer one.

Dimension key
    K  strata
    M  columns, M = m + 1; may differ from row to row
    C  grid cells
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from jaxcontam.stats.rows import summed_rows

_EPS = float(np.finfo(np.float64).eps)
# Direct convolution is as fast where the shorter law has no more cells.
_SHORT = 128
# Tilted masses sum to 1. Tails of less than this are cut off, and counted as error.
_NEGLIGIBLE = 1e-18
# exp of the tilt over the cells of two laws may span this many factors of e.
_MAX_SPREAD = 600.0
# The textbook bound of an FFT's relative error in the 2-norm is 7 half-eps a stage
# (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2) for radix 2;
# thrice that leaves room for other radices and for real transforms.
_FFT_ERROR = 10 * _EPS


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GridLaw:
    """Weights of low, low + 1, ..., as shares of `total`; the last one is positive.

    The total exceeds their sum where some weight lies far off.
    """

    low: int
    weights: np.ndarray
    total: float


@dataclasses.dataclass(frozen=True, slots=True)
class LogTail:
    """Natural logs of P(sum >= -slack) and of bounds of its error.

    `log_error` bounds the probability's absolute error, rounding aside; `log_rounding`
    that of `log_tail` by rounding.
    """

    log_tail: float
    log_error: float
    log_rounding: float


_LN10 = math.log(10)
# Combinations of columns up to this many are counted, half against half.
_ENUMERABLE = 2**28
# Rows are added up while their combinations are at most this many.
_MERGED = 2**12
# The bracket aimed at, as a difference of natural logarithms.
_WIDTH = 0.03
# The finest grid: cells a standard deviation of the sum.
_CELLS_PER_SD = 2**16
# Cells of all rows together are kept to this many by a coarser grid.
_MAX_CELLS = 2**20
_MAX_DIRECT_CELLS = 2**15
# Cells a difference of a table that saves the sorting of a row.
_TABLE_CELLS = 16
# Standard deviations of a row within which the grid is kept as fine as it could be.
_SPREAD = 8.0
# Differences whose tilted weight is below exp of this beside the row's largest one are
# no part of the lower bound, and are moved up to where it is exp of this in the upper.
_LOG_FAINT = -60.0
# The tilt is found on rows of about this many cells; it need not be exact.
_TILT_CELLS = 256
_TILT_STEPS = 60
# exp(tilt) of the tolerance stays representable beside the masses that are cut off.
_MAX_EXPONENT = 200.0
# An FFT result is used where its error bound is at most this share of the tail.
_FFT_SHARE = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class LatticeTail:
    """Rigorous bracket of P(sum of differences >= -tolerance), as log10.

    P(sum >= 0) may lie below; `log10_lower` is -inf if rounding down empties the tail.
    """

    log10_upper: float
    log10_lower: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """A row's differences as counts of floors of difference / 2^exponent, ascending.

    `on_grid` counts those that are the cell's lower end exactly.
    """

    exponent: int
    offsets: np.ndarray
    counts: np.ndarray
    on_grid: np.ndarray


def lattice_tail(rows: Iterable[np.ndarray], tolerance: float) -> LatticeTail:
    """Bracket the probability that the sum of one random column a row is >= 0.

    Column 0 of each row is zero by construction. A generator is read once. Sums down to
    `-tolerance` count as ties, against detection.

    Source:
        Convolution of integer-rounded scores as in exact network algorithms; the
        tilt is the one of Cramer and Chernoff.
    """
    if tolerance < 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    rows = filter(np.any, map(_finite, rows))
    few, n_combinations = [], 1
    for row_M in rows:
        few.append(row_M)
        n_combinations *= len(row_M)
        if n_combinations > _ENUMERABLE:
            break
    else:
        log10_exact = math.log10(_counted_share(few, tolerance))
        return LatticeTail(log10_exact, log10_exact)
    cells, sd, reach = _binned(summed_rows(itertools.chain(few, rows), _MERGED))
    if reach <= tolerance:
        return LatticeTail(0.0, 0.0)
    theta = _best_tilt(cells, sd, tolerance)
    bracket = _bracket(cells, sd, tolerance, theta, by_fft=True)
    bracket = bracket or _bracket(cells, sd, tolerance, theta, by_fft=False)
    assert bracket is not None
    return bracket


def _finite(row: np.ndarray) -> np.ndarray:
    row_M = np.asarray(row, np.float64)
    if not np.isfinite(row_M).all():
        raise ValueError("differences must be finite")
    return row_M


def _counted_share(rows: Sequence[np.ndarray], tolerance: float) -> float:
    """Share of all column combinations whose sum is at least -tolerance."""
    # Sums of two halves of the rows, as equal in number as may be.
    left, right = np.zeros(1), np.zeros(1)
    for row_M in sorted(rows, key=len, reverse=True):
        if len(left) > len(right):
            left, right = right, left
        left = np.add.outer(left, row_M).ravel()
    fewer, more = sorted((left, right), key=len)
    n_below = int(np.searchsorted(np.sort(fewer), -tolerance - more).sum())
    n_all = len(fewer) * len(more)
    return (n_all - n_below) / n_all


def _binned(rows: Iterable[np.ndarray]) -> tuple[list[_Cells], float, float]:
    """Rows on grids as fine as each needs, the sum's deviation, its largest size."""
    cells, sd, spread, reach = [], 0.0, 0.0, 0.0
    for row_M in rows:
        top = float(np.abs(row_M).max())
        row_sd = top * float((row_M / top).std())
        sd, reach = math.hypot(sd, row_sd), reach + top
        spread += min(float(np.ptp(row_M)), _SPREAD * row_sd)
        exponent = _exponent(max(sd / _CELLS_PER_SD, spread / _MAX_CELLS))
        cells.append(_counted(row_M, exponent))
    return cells, sd, reach


def _counted(row_M: np.ndarray, exponent: int) -> _Cells:
    """A row on a grid of cells of 2^exponent; a table of cells where that is short."""
    scaled_M = np.ldexp(row_M, -exponent)
    floors_M = np.floor(scaled_M)
    low = floors_M.min()
    if floors_M.max() - low < _TABLE_CELLS * len(row_M):
        table_C = np.bincount((floors_M - low).astype(np.int64))
        filled_C = np.flatnonzero(table_C > 0)
        counts_C, offsets_C = table_C[filled_C], filled_C + int(low)
    else:
        floors_C, counts_C = np.unique(floors_M, return_counts=True)
        offsets_C = floors_C.astype(np.int64)
    on_grid_C = np.zeros(len(offsets_C), np.int32)
    exact = floors_M[scaled_M == floors_M]
    np.add.at(on_grid_C, np.searchsorted(offsets_C, exact.astype(np.int64)), 1)
    return _Cells(exponent, offsets_C, counts_C.astype(np.int32), on_grid_C)


def _exponent(cell: float) -> int:
    """Exponent of the largest power of two that is at most `cell`."""
    return math.frexp(cell)[1] - 1


def _coarse(row: _Cells) -> tuple[np.ndarray, np.ndarray]:
    """Mean difference and count of each of about `_TILT_CELLS` cells of a row."""
    span = int(row.offsets[-1] - row.offsets[0])
    shift = max(0, span.bit_length() - _TILT_CELLS.bit_length() + 1)
    codes = (row.offsets >> shift) - (row.offsets[0] >> shift)
    counts = np.bincount(codes, weights=row.counts)
    sums = np.bincount(codes, weights=row.counts * row.offsets.astype(np.float64))
    found = counts > 0
    return np.ldexp(sums[found] / counts[found], row.exponent), counts[found]


def _best_tilt(rows: Sequence[_Cells], sd: float, tolerance: float) -> float:
    """Theta >= 0 at which the tilted mean of the sum is about -tolerance."""
    values, counts = zip(*map(_coarse, rows), strict=True)
    sizes_K = np.array(list(map(len, values)))
    starts_K = np.cumsum(sizes_K) - sizes_K
    values_C, counts_C = np.concatenate(values) / sd, np.concatenate(counts)
    below_top_C = values_C - np.repeat(np.maximum.reduceat(values_C, starts_K), sizes_K)

    def moments(theta: float) -> tuple[float, float]:
        weights_C = counts_C * np.exp(theta * below_top_C)
        totals_K = np.add.reduceat(weights_C, starts_K)
        means_K = np.add.reduceat(weights_C * values_C, starts_K) / totals_K
        squares_C = weights_C * (values_C - np.repeat(means_K, sizes_K)) ** 2
        variances_K = np.add.reduceat(squares_C, starts_K) / totals_K
        return float(means_K.sum()), float(variances_K.sum())

    ceiling = _MAX_EXPONENT * sd / tolerance if tolerance > 0 else math.inf
    return best_tilt(moments, tolerance / sd, ceiling) / sd


def best_tilt(
    moments: Callable[[float], tuple[float, float]],
    slack: float,
    ceiling: float = math.inf,
) -> float:
    """Theta >= 0 whose tilted mean is about `-slack`: Newton, kept inside.

    `moments` gives the mean and the variance of a sum that is tilted by theta.
    """
    theta, low, high = 0.0, 0.0, ceiling
    for _ in range(_TILT_STEPS):
        mean, variance = moments(theta)
        gap = mean + slack
        # A hundredth of a standard deviation off costs nothing.
        is_near = abs(gap) <= 0.01 * math.sqrt(variance)
        if is_near or variance == 0 or (theta == 0 and gap >= 0):
            break
        low, high = (low, theta) if gap >= 0 else (theta, high)
        theta -= gap / variance
        if not low < theta < high:
            theta = (low + high) / 2 if high < math.inf else 2 * low + 1
    return theta


def _lowest_kept(row: _Cells, theta: float) -> int:
    """Lowest offset whose tilted weight is not faint beside that of the highest."""
    lowest, highest = int(row.offsets[0]), int(row.offsets[-1])
    log_ratio = (highest - lowest) * math.ldexp(theta, row.exponent)
    if log_ratio <= -_LOG_FAINT:
        return lowest
    return highest - math.floor(-_LOG_FAINT * (highest - lowest) / log_ratio)


def _bracket(
    rows: Sequence[_Cells], sd: float, tolerance: float, theta: float, *, by_fft: bool
) -> LatticeTail | None:
    """The bracket on one grid; None if the FFT is not exact enough for it."""
    lowest = [_lowest_kept(row, theta) for row in rows]
    # Rounding moves the sum by up to a cell a row, and its logarithm by theta times it.
    wanted = _WIDTH / (max(theta, 1 / sd) * len(rows))
    ranges = [
        math.ldexp(int(row.offsets[-1]) - low + 1, row.exponent)
        for row, low in zip(rows, lowest, strict=True)
    ]
    smallest = sum(ranges) / (_MAX_CELLS if by_fft else _MAX_DIRECT_CELLS)
    exponent = max(
        _exponent(max(wanted, smallest)),
        max(row.exponent for row in rows),
        min(map(_exact_exponent, rows)),
    )
    cell = math.ldexp(1.0, exponent)
    slack, tilt = math.floor(tolerance / cell), min(theta * cell, _MAX_EXPONENT)
    pairs = [
        _rounded(row, exponent, low) for row, low in zip(rows, lowest, strict=True)
    ]
    tails = []
    for laws in zip(*pairs, strict=True):
        tail = log_tail(laws, slack=slack, tilt=tilt, by_fft=by_fft)
        if by_fft and tail.log_error > tail.log_tail + math.log(_FFT_SHARE):
            return None
        tails.append(tail)
    lower, upper = tails
    log_upper = float(np.logaddexp(upper.log_tail, upper.log_error))
    log_lower = -math.inf
    if lower.log_error < lower.log_tail:
        share = math.exp(lower.log_error - lower.log_tail)
        log_lower = lower.log_tail + math.log1p(-share) - lower.log_rounding
    return LatticeTail(
        log10_upper=min(0.0, (log_upper + upper.log_rounding) / _LN10),
        log10_lower=min(0.0, log_lower / _LN10),
    )


def _exact_exponent(row: _Cells) -> int:
    """The coarsest grid that needs no rounding; that of the row itself if none does."""
    if (row.counts != row.on_grid).any():
        return row.exponent
    bits = int(np.bitwise_or.reduce(row.offsets))
    return row.exponent + (bits & -bits).bit_length() - 1


def _rounded(row: _Cells, exponent: int, lowest: int) -> tuple[GridLaw, GridLaw]:
    """A row on a coarser grid, rounded down and up, none down below `lowest`."""
    n_faint = int(np.searchsorted(row.offsets, lowest))
    total = float(row.counts.sum())
    offsets, counts = row.offsets[n_faint:], row.counts[n_faint:]
    shift = min(exponent - row.exponent, 62)
    low = lowest >> shift
    codes = (offsets >> shift) - low
    is_on_grid = offsets & ((1 << shift) - 1) == 0
    down = np.bincount(codes, weights=counts)
    stays = np.bincount(codes, weights=np.where(is_on_grid, row.on_grid[n_faint:], 0))
    up = np.append(stays, 0.0)
    up[1:] += down - stays
    up[0] += float(row.counts[:n_faint].sum())
    up = up if up[-1] > 0 else up[:-1]
    return GridLaw(low, down, total), GridLaw(low, up, total)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A tilted law: masses from `low` on, its largest value, what may be missing."""

    low: int
    top: int
    mass_C: np.ndarray
    error: float


def log_tail(
    laws: Sequence[GridLaw], *, slack: int, tilt: float, by_fft: bool
) -> LogTail:
    """Log P(sum of one draw from each law >= -slack), with an error bound.

    Each law is tilted by exp(tilt * offset), so that the tail in question holds a good
    part of the mass, and tilted laws are convolved two by two, the shortest first. Long
    ones go through the FFT, whose absolute error is then a small relative one; it and
    what the cutting of far tails can have changed are carried along.

    The laws' largest values must be able to reach `-slack`. Any tilt of at least 0 is
    right; one that brings the tilted mean to `-slack` is best. The error of an FFT may
    exceed a small tail; direct sums of positive terms have no such limit.
    """
    nodes, log_scale, n_terms = [], tilt * slack, 0
    for law in laws:
        node, log_mass = _tilted(law, tilt)
        nodes.append(node)
        log_scale += log_mass
    total_top = sum(node.top for node in nodes)
    # Taking the tilt back multiplies what was cut by at most exp(tilt * slack).
    negligible = _NEGLIGIBLE * math.exp(-tilt * slack)

    def cut(node: _Node, threshold: float) -> _Node:
        # Cells that cannot reach the threshold any more are no part of the tail.
        hopeless = -slack - (total_top - node.top) - node.low
        return _without_tails(node, max(0, hopeless), threshold)

    # A second node that is 0 for sure, should there be one law only.
    leaves = [cut(node, negligible) for node in nodes]
    leaves += [_Node(0, 0, np.ones(1), 0.0)] if len(leaves) == 1 else []
    heap = [(len(node.mass_C), i, node) for i, node in enumerate(leaves)]
    heapq.heapify(heap)
    n_nodes = len(heap)
    while True:
        _, _, a = heapq.heappop(heap)
        _, _, b = heapq.heappop(heap)
        if not (len(a.mass_C) and len(b.mass_C)):
            # All that was left is error.
            left = a.error + b.error + 2 * negligible
            return LogTail(-math.inf, log_scale + math.log(left), 0.0)
        # Masses are at most 1, but for what rounding adds.
        error = 1.001 * (a.error + b.error) + a.error * b.error
        if not heap and tilt * (len(a.mass_C) + len(b.mass_C)) < _MAX_SPREAD:
            found = _tail_of_two(a, b, slack, tilt)
            n_terms += len(a.mass_C) + len(b.mass_C)
            break
        n_terms += min(len(a.mass_C), len(b.mass_C))
        mass_C, fft_error = _convolve(a.mass_C, b.mass_C, by_fft=by_fft)
        node = _Node(a.low + b.low, a.top + b.top, mass_C, error + fft_error)
        if not heap:
            # Masses of values >= -slack, times exp(-tilt * (value + slack)).
            above_C = np.arange(node.low, node.low + len(mass_C)) + slack
            tail_C = above_C >= 0
            found = float((mass_C[tail_C] * np.exp(-tilt * above_C[tail_C])).sum())
            error, n_terms = node.error, n_terms + len(mass_C)
            break
        node = cut(node, max(negligible, node.error / 8 if by_fft else 0.0))
        heapq.heappush(heap, (len(node.mass_C), n_nodes, node))
        n_nodes += 1
    magnitude = abs(log_scale) + tilt * total_top
    rounding = _EPS * (n_terms + 8 * magnitude + 800 * len(nodes))
    return LogTail(
        log_scale + math.log(found) if found > 0 else -math.inf,
        log_scale + math.log(error) if error > 0 else -math.inf,
        rounding,
    )


def _tail_of_two(a: _Node, b: _Node, slack: int, tilt: float) -> float:
    """Sum over a + b >= -slack of the masses times exp(-tilt * (a + b + slack))."""
    # From each cell of b up, untilted relative to that cell's place in the array.
    cells_C = np.arange(len(b.mass_C))
    from_C = np.cumsum((b.mass_C * np.exp(-tilt * cells_C))[::-1])[::-1]
    # For each cell of `a`: how far the lowest b carries it above the threshold.
    above_C = a.low + np.arange(len(a.mass_C)) + b.low + slack
    first_C = np.maximum(-above_C, 0)
    reaches_C = first_C < len(from_C)
    above_C, first_C = above_C[reaches_C], first_C[reaches_C]
    weights_C = a.mass_C[reaches_C] * np.exp(-tilt * above_C)
    return float((weights_C * from_C[first_C]).sum())


def _tilted(law: GridLaw, tilt: float) -> tuple[_Node, float]:
    """A law times exp(tilt * value), normalised, and the log of its divisor."""
    top = law.low + len(law.weights) - 1
    weights_C = law.weights * np.exp(tilt * np.arange(1 - len(law.weights), 1))
    total = float(weights_C.sum())
    log_mass = math.log(total / law.total) + tilt * top
    return _Node(law.low, top, weights_C / total, 0.0), log_mass


def _without_tails(node: _Node, hopeless: int, threshold: float) -> _Node:
    """Drop `hopeless` cells, and tails below a mass, which is counted as error."""
    mass_C, low = node.mass_C[hopeless:], node.low + hopeless
    below_C, above_C = np.cumsum(mass_C), np.cumsum(mass_C[::-1])
    first = int(np.searchsorted(below_C, threshold, side="right"))
    last = len(mass_C) - int(np.searchsorted(above_C, threshold, side="right"))
    if first >= last:
        return _Node(low, node.top, mass_C[:0], node.error + float(mass_C.sum()))
    error = node.error
    error += float(below_C[first - 1]) if first else 0.0
    error += float(above_C[len(mass_C) - last - 1]) if last < len(mass_C) else 0.0
    return _Node(low + first, node.top, mass_C[first:last], error)


def _convolve(
    a_C: np.ndarray, b_C: np.ndarray, *, by_fft: bool
) -> tuple[np.ndarray, float]:
    """Convolution of two laws, and a bound of the sum of its absolute errors."""
    n_cells = len(a_C) + len(b_C) - 1
    if not by_fft or min(len(a_C), len(b_C)) <= _SHORT:
        return np.convolve(a_C, b_C), 0.0
    # At least `n_cells`, with a power of two as its only large factor.
    size = min(
        odd << max(0, math.ceil(math.log2(n_cells / odd))) for odd in (1, 3, 5, 9, 15)
    )
    spectrum = np.fft.rfft(a_C, size)
    spectrum *= np.fft.rfft(b_C, size)
    mass_C = np.fft.irfft(spectrum, size)[:n_cells]
    # In the 2-norm each transform adds its relative error to a product that is at most
    # |a|_1 |b|_2 and |b|_1 |a|_2; |a|_1 and |b|_1 are at most 1. The sum of n errors is
    # at most sqrt(n) times their 2-norm.
    norm = float(np.linalg.norm(a_C) + np.linalg.norm(b_C))
    error = 2 * _FFT_ERROR * math.log2(size) * norm * math.sqrt(n_cells)
    return np.maximum(mass_C, 0.0), error
