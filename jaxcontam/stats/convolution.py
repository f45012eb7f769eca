"""Tail of a sum of independent grid variables, with an error bound.

Each law is tilted by exp(tilt * offset), so that the tail in question holds a good part
of the mass; the tilt is taken back in log space at the end, exactly. Tilted laws are
convolved two by two, the shortest first. Long ones go through the FFT, whose absolute
error is then a small relative one; what it and the cutting of far tails can have
changed is carried along and returned.

Dimension key
    C  grid cells
"""

import dataclasses
import heapq
import math
from collections.abc import Sequence

import numpy as np

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
    """Weights of consecutive integers, not normalised.

    Attributes:
        low: The first integer.
        weights: (C,) float64 at low, low + 1, ...; the last one is positive.
        total: What the weights are shares of; more than their sum where some of the
            law lies nowhere near the tail.
    """

    low: int
    weights: np.ndarray
    total: float


@dataclasses.dataclass(frozen=True, slots=True)
class LogTail:
    """Natural logarithms of P(sum >= -slack), minus infinity if nothing was found.

    `log_error` bounds its absolute error, rounding aside, `log_rounding` that of
    `log_tail` by rounding.
    """

    log_tail: float
    log_error: float
    log_rounding: float


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
    """Log P(sum of one draw from each law >= -slack).

    The largest values of the laws must be able to reach `-slack`. Any tilt of at least
    0 is right, one that brings the tilted mean to `-slack` is best. The error of an
    FFT, for long laws, may exceed a tail that even the tilt leaves small; direct sums
    of positive terms have no such limit.
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
    leaves += [_Node(0, 0, np.ones(1), 0.0)] * (len(leaves) == 1)
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
            found, error = _tail_of_one(node, slack, tilt), node.error
            n_terms += len(node.mass_C)
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


def _tail_of_one(node: _Node, slack: int, tilt: float) -> float:
    """Sum over values >= -slack of the masses times exp(-tilt * (value + slack))."""
    above_C = np.arange(node.low, node.low + len(node.mass_C)) + slack
    is_tail_C = above_C >= 0
    return float((node.mass_C[is_tail_C] * np.exp(-tilt * above_C[is_tail_C])).sum())


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
    size = _fast_size(n_cells)
    spectrum = np.fft.rfft(a_C, size)
    spectrum *= np.fft.rfft(b_C, size)
    mass_C = np.fft.irfft(spectrum, size)[:n_cells]
    # In the 2-norm each transform adds its relative error to a product that is at most
    # |a|_1 |b|_2 and |b|_1 |a|_2; |a|_1 and |b|_1 are at most 1. The sum of n errors is
    # at most sqrt(n) times their 2-norm.
    norm = float(np.linalg.norm(a_C) + np.linalg.norm(b_C))
    error = 2 * _FFT_ERROR * math.log2(size) * norm * math.sqrt(n_cells)
    return np.maximum(mass_C, 0.0), error


def _fast_size(n_cells: int) -> int:
    """A size of at least `n_cells` whose only large factor is a power of two."""
    return min(
        odd << max(0, math.ceil(math.log2(n_cells / odd))) for odd in (1, 3, 5, 9, 15)
    )
