"""Exact tail probability of a sum of independent discrete uniforms.

T* - T is a sum over strata, and stratum k adds one of its M differences
d[k, j] = a[k, j] - a[k, 0], each with probability 1 / M. Differences are rounded
to a grid and convolved directly: all terms are positive, so the tail keeps its full
relative accuracy at any depth. Rounding every difference up bounds the probability
from above, rounding down from below, so the bracket is rigorous.

Plain masses would underflow at 1e-308. Each stratum is therefore tilted by
exp(theta d) with the theta that moves the mean of the sum to the threshold, and the
tilt is taken back in log space at the end: exact for any theta.

Few enough combinations of columns are counted instead, one by one.

Dimension key
    K  strata
    M  columns, M = m + 1
    C  grid cells
"""

import dataclasses
import math

import numpy as np

_LN10 = math.log(10)
# Cells a standard deviation of the sum, for up to 100 strata and above.
_CELLS_PER_SD = 2000
_CELLS_PER_SD_PER_STRATUM = 20
# Combinations of columns up to this many are enumerated.
_ENUMERABLE = 2**16
# Tilted masses sum to 1. Tails of less than this are cut off, and counted: they are
# added to the upper bound and left out of the lower one.
_NEGLIGIBLE = 1e-18
# exp(theta * tolerance) stays representable beside `_NEGLIGIBLE`.
_MAX_TILT = 200.0
# The tilt need not be exact: a percent off costs nothing.
_BISECTIONS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class LatticeTail:
    """Bracket of P(sum of differences >= -tolerance), as log10.

    Attributes:
        log10_upper: Rigorous upper bound, at most 0.
        log10_lower: Rigorous lower bound; -inf if rounding down empties the tail.
    """

    log10_upper: float
    log10_lower: float


def lattice_tail(differences_KM: np.ndarray, tolerance: float) -> LatticeTail:
    """Bracket the probability that the sum of one random column a row is >= 0.

    Args:
        differences_KM: (K, M) float64; column 0 is zero by construction.
        tolerance: Sums down to `-tolerance` count as ties, against detection.

    Raises:
        ValueError: If a difference is not finite, or the tolerance is negative.

    Source:
        Convolution of integer-rounded scores as in exact network algorithms; the
        tilt is the one of Cramer and Chernoff.
    """
    if not np.isfinite(differences_KM).all():
        raise ValueError("differences must be finite")
    if tolerance < 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    n_strata, n_columns = differences_KM.shape
    sd = math.sqrt(float(differences_KM.var(axis=1).sum()))
    if sd == 0.0:
        return LatticeTail(0.0, 0.0)
    if n_strata * math.log2(n_columns) <= math.log2(_ENUMERABLE):
        log10_exact = math.log10(_enumerated_share(differences_KM, tolerance))
        return LatticeTail(log10_exact, log10_exact)
    cell = sd / max(_CELLS_PER_SD, _CELLS_PER_SD_PER_STRATUM * n_strata)
    slack = math.floor(tolerance / cell)
    theta = _best_tilt(differences_KM, tolerance, cell, slack)
    scaled_KM = differences_KM / cell
    _, upper = _log_tail(np.ceil(scaled_KM).astype(np.int64), slack, theta * cell)
    lower, _ = _log_tail(np.floor(scaled_KM).astype(np.int64), slack, theta * cell)
    # Each of K steps rounds sums of M terms and a logarithm as large as the result.
    n_roundings = 4 * n_strata * (n_columns + abs(min(upper, 0.0)))
    rounding = n_roundings * float(np.finfo(np.float64).eps)
    return LatticeTail(
        log10_upper=min(0.0, (upper + rounding) / _LN10),
        log10_lower=min(0.0, (lower - rounding) / _LN10),
    )


def _enumerated_share(differences_KM: np.ndarray, tolerance: float) -> float:
    """Share of all column combinations whose sum is at least -tolerance."""
    sums = np.zeros(1)
    for differences_M in differences_KM:
        sums = np.add.outer(sums, differences_M).ravel()
    return np.count_nonzero(sums >= -tolerance) / len(sums)


def _best_tilt(
    differences_KM: np.ndarray, tolerance: float, cell: float, slack: int
) -> float:
    """The theta >= 0 that minimises the Chernoff exponent, by bisection."""

    def slope(theta: float) -> float:
        weights_KM = theta * differences_KM
        weights_KM = np.exp(weights_KM - weights_KM.max(axis=1, keepdims=True))
        means_K = (weights_KM * differences_KM).sum(axis=1) / weights_KM.sum(axis=1)
        return float(means_K.sum()) + tolerance

    if slope(0.0) >= 0.0:
        return 0.0
    ceiling = _MAX_TILT / (cell * max(slack, 1))
    low, high = 0.0, 1.0 / math.sqrt(float(differences_KM.var(axis=1).sum()))
    while high < ceiling and slope(high) < 0.0:
        low, high = high, 2.0 * high
    high = min(high, ceiling)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    return (low + high) / 2


def _log_tail(offsets_KM: np.ndarray, slack: int, tilt: float) -> tuple[float, float]:
    """Log P(sum of a random offset a row >= -slack), without and with what was cut."""
    remaining_K = np.append(np.cumsum(offsets_KM.max(axis=1)[::-1])[::-1][1:], 0)
    # What tilting divides by, over all strata: the exponent K(theta).
    tops_K = offsets_KM.max(axis=1)
    shares_K = np.exp(tilt * (offsets_KM - tops_K[:, None])).mean(axis=1)
    log_scale = float((np.log(shares_K) + tilt * tops_K).sum())
    low, cut_off = 0, 0.0
    # Taking the tilt back multiplies what was cut by at most exp(tilt * slack).
    negligible = _NEGLIGIBLE * math.exp(-tilt * slack)
    mass_C = np.ones(1)
    for offsets_M, remaining in zip(offsets_KM, remaining_K.tolist(), strict=True):
        values, counts = np.unique(offsets_M, return_counts=True)
        weights = counts * np.exp(tilt * (values - values[-1]))
        mass_C = _convolve(mass_C, values - values[0], weights / weights.sum())
        low += int(values[0])
        # Cells that cannot reach the threshold any more are no part of the tail.
        start = max(0, -slack - remaining - low)
        mass_C, low = mass_C[start:], low + start
        below_C, above_C = np.cumsum(mass_C), np.cumsum(mass_C[::-1])
        first = int(np.searchsorted(below_C, negligible, side="right"))
        last = len(mass_C) - int(np.searchsorted(above_C, negligible, side="right"))
        if first >= last:
            # Nothing but what a later step would cut; the bound takes it all.
            left = cut_off + float(mass_C.sum()) + negligible
            return -math.inf, log_scale + math.log(left) + tilt * slack
        cut_off += float(mass_C[:first].sum() + mass_C[last:].sum())
        mass_C, low = mass_C[first:last], low + first
    sums_C = np.arange(low, low + len(mass_C))
    mass_C, sums_C = mass_C[sums_C >= -slack], sums_C[sums_C >= -slack]
    mass_C, sums_C = mass_C[mass_C > 0], sums_C[mass_C > 0]
    logs_C = np.log(mass_C) - tilt * sums_C
    top = float(logs_C.max(initial=-math.inf))
    inside = -math.inf
    if len(logs_C):
        inside = top + math.log(float(np.exp(logs_C - top).sum()))
    outside = math.log(cut_off) + tilt * slack if cut_off > 0 else -math.inf
    return log_scale + inside, log_scale + float(np.logaddexp(inside, outside))


def _convolve(mass_C: np.ndarray, shifts: np.ndarray, weights: np.ndarray):
    """Distribution of the sum of a grid variable and one of `shifts`, by `weights`."""
    span = int(shifts[-1])
    if 4 * len(shifts) > span:
        kernel = np.zeros(span + 1)
        kernel[shifts] = weights
        return np.convolve(mass_C, kernel)
    out = np.zeros(len(mass_C) + span)
    for shift, weight in zip(shifts.tolist(), weights.tolist(), strict=True):
        out[shift : shift + len(mass_C)] += weight * mass_C
    return out
