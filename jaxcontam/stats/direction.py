"""Direction: is each example expected after the one before it, more than before it?

Memory points forwards: a model that read a file learned what came next. Natural order
(topics, labels, formats that come in runs) attracts neighbours in both directions
alike. What is expected forwards less what is expected backwards keeps the first and
loses the second.

Dimension key
    S  examples of a stratum
    P  pairs of a stratum that were scored
    M  orders
    R  runs of a stratum
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.adjacency import double_centred
from jaxcontam.stats.result import Neighbours

# What is left of equal numbers after a projection, relative.
_ROUNDING = 1e-12


def run_length(n_examples: int) -> int:
    """Examples of a run: four, or fewer where a file would give too few runs.

    The floor of 15 runs is 2^-15: 3e-5, far below the level of 0.001.
    """
    return min(4, max(2, n_examples // 15))


def runs_of(size: int, length: int) -> np.ndarray:
    """(S,) int64, the run of each example of a stratum; sizes differ by at most 1."""
    parts = np.array_split(np.arange(size), math.ceil(size / length))
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def needed_pairs(runs_S: np.ndarray) -> np.ndarray:
    """Pairs that tell the direction: (S, S) bool, the same if a run is reversed.

    Neighbours within a run, both ways, and both ends of a run with both ends of the
    next one: for two runs of four 2.5 scores an example.
    """
    wanted_SS = np.zeros((len(runs_S), len(runs_S)), bool)
    parts = [np.flatnonzero(runs_S == run) for run in np.unique(runs_S)]
    for part in parts:
        wanted_SS[part[:-1], part[1:]] = True
    for one, other in itertools.pairwise(parts):
        wanted_SS[np.ix_(one[[0, -1]], other[[0, -1]])] = True
    return wanted_SS | wanted_SS.T


def antisymmetric(pairs_SS: np.ndarray) -> np.ndarray:
    """Expectedness of one example after another, minus that of the reverse.

    Effects of single examples are removed first, by least squares over the pairs that
    were scored. NaN stands where a pair was not scored, 0 in what is returned.
    """
    residual_SS = residuals(pairs_SS)
    return residual_SS - residual_SS.T


def residuals(pairs_SS: np.ndarray) -> np.ndarray:
    """Pairs without effects of single examples; 0 where nothing was scored."""
    scored_SS = _scored(pairs_SS)
    if scored_SS.sum() == pairs_SS.size - len(pairs_SS):
        # The same, without the rounding of a projection.
        return double_centred(pairs_SS)
    residual_SS = np.zeros(pairs_SS.shape)
    residual_SS[scored_SS] = _projection(scored_SS) @ pairs_SS[scored_SS]
    return residual_SS


def directed_sums(matrix_SS: np.ndarray, orders_MS: np.ndarray) -> np.ndarray:
    """(M,) float64: entries of each order's pairs, over their distance.

    A model that read a file expects an example after the one before it most, but also,
    less and less, after those before that: on planted models about as 1 / distance.
    """
    n, _ = matrix_SS.shape
    flat = np.ascontiguousarray(matrix_SS).ravel()
    sums_M = np.zeros(len(orders_MS))
    for first, second in itertools.combinations(range(n), 2):
        pairs_M = orders_MS[:, first] * n + orders_MS[:, second]
        sums_M += flat[pairs_M] / (second - first)
    return sums_M


def direction_weights(runs_S: np.ndarray) -> np.ndarray:
    """(S, S) what each pair adds to the published statistic less the mean of reversals.

    Zero outside `needed_pairs`; its own negative transpose.
    """
    needed_SS = needed_pairs(runs_S)
    orders_MS = flipped_orders(np.zeros(len(runs_S), np.int64), runs_S)
    weights_SS = np.zeros(needed_SS.shape)
    for i, j in np.argwhere(needed_SS):
        one_SS = np.where(needed_SS, 0.0, np.nan)
        one_SS[i, j] = 1.0
        sums_M = directed_sums(antisymmetric(one_SS), orders_MS)
        weights_SS[i, j] = sums_M[0] - sums_M.mean()
    return weights_SS


def flipped_orders(codes_S: np.ndarray, runs_S: np.ndarray) -> np.ndarray:
    """Orders with some runs reversed: (M, S) positions, row 0 as published."""
    return _flipped(codes_S.tobytes(), runs_S.tobytes(), codes_S.dtype.str)


def neighbours(matrices: Sequence[np.ndarray]) -> Neighbours | None:
    """Gain of an example after its published neighbours, before and behind it.

    Least squares over all strata, with an effect of each example as a context and of
    each example as a continuation. Standard errors take what is left as independent.
    None if too few pairs were scored to tell, or all examples score alike.
    """
    normal, right, squares, degrees = np.zeros((2, 2)), np.zeros(2), 0.0, 0
    largest = max(float(np.nanmax(np.abs(pairs_SS))) for pairs_SS in matrices)
    for pairs_SS in matrices:
        n = len(pairs_SS)
        scored_SS = _scored(pairs_SS)
        projection_PP = _projection(scored_SS)
        design_P2 = np.stack([np.eye(n, k=k)[scored_SS] for k in (1, -1)], axis=1)
        pairs_P = projection_PP @ pairs_SS[scored_SS]
        normal += design_P2.T @ projection_PP @ design_P2
        right += design_P2.T @ pairs_P
        squares += float(pairs_P @ pairs_P)
        degrees += round(float(np.trace(projection_PP)))
    is_constant = squares <= degrees * (_ROUNDING * largest) ** 2
    if degrees <= 2 or is_constant or np.linalg.cond(normal) > 1e10:
        return None
    gains = np.linalg.solve(normal, right)
    spread = max(0.0, squares - float(gains @ right)) / (degrees - 2)
    covariance = spread * np.linalg.inv(normal)
    contrast = np.array([1.0, -1.0])
    return Neighbours(
        forward=float(gains[0]),
        forward_se=math.sqrt(covariance[0, 0]),
        backward=float(gains[1]),
        backward_se=math.sqrt(covariance[1, 1]),
        excess=float(contrast @ gains),
        excess_se=math.sqrt(contrast @ covariance @ contrast),
    )


def backward_spread(
    matrices: Sequence[np.ndarray], runs: Sequence[np.ndarray] | None
) -> float | None:
    """Spread of an example's scores over the examples before it, in nats.

    After examples of later runs alone, where memory of a file has little part, and
    without effects of single examples; `runs` None: after all. Reversing runs changes
    nothing, so a test over these reversals stays exact when its scores are divided by
    it. A mean absolute value, which few wild scores move little; 0 if it is rounding,
    None if too few pairs were scored.
    """
    total, degrees, largest = 0.0, 0, 0.0
    for k, pairs_SS in enumerate(matrices):
        used_SS = _scored(pairs_SS)
        if runs is not None:
            used_SS &= runs[k][:, None] > runs[k]
        projection_PP = _projection(used_SS)
        pairs_P = pairs_SS[used_SS]
        total += float(np.abs(projection_PP @ pairs_P).sum())
        degrees += round(float(np.trace(projection_PP)))
        largest = max(largest, float(np.abs(pairs_P).max(initial=0.0)))
    if not degrees:
        return None
    spread = total / degrees
    return spread if spread > _ROUNDING * largest else 0.0


def _scored(pairs_SS: np.ndarray) -> np.ndarray:
    return ~np.isnan(pairs_SS) & ~np.eye(len(pairs_SS), dtype=bool)


def _projection(scored_SS: np.ndarray) -> np.ndarray:
    """(P, P): takes effects of single examples out of the pairs that were scored."""
    return _projected(scored_SS.tobytes(), len(scored_SS))


@functools.lru_cache(maxsize=64)
def _projected(scored: bytes, n: int) -> np.ndarray:
    left_P, right_P = np.nonzero(np.frombuffer(scored, bool).reshape(n, n))
    one = np.eye(n)
    effects = np.concatenate([one[left_P], one[right_P]], axis=1)
    projection_PP = np.eye(len(left_P)) - effects @ np.linalg.pinv(effects)
    projection_PP.flags.writeable = False
    return projection_PP


@functools.lru_cache(maxsize=1024)
def _flipped(codes: bytes, runs: bytes, dtype: str) -> np.ndarray:
    codes_S, runs_S = np.frombuffer(codes, dtype), np.frombuffer(runs, dtype)
    orders = [np.arange(len(codes_S))]
    for run in np.unique(runs_S):
        turned = []
        for order_S in orders:
            turned_S = order_S.copy()
            for code in np.unique(codes_S[runs_S == run]):
                at = np.flatnonzero((runs_S == run) & (codes_S == code))
                turned_S[at] = order_S[at[::-1]]
            turned.append(turned_S)
        if not np.array_equal(turned[0], orders[0]):
            orders += turned
    orders_MS = np.array(orders)
    orders_MS.flags.writeable = False
    return orders_MS
