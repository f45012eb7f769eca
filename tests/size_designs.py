"""Every test on small designs, six kinds of exchangeable scores, and its size."""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxcontam.methods import sharded_t
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    needed_pairs,
    runs_of,
)
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.multiple import max_t, shared_sums
from jaxcontam.stats.pair_statistic import PairStrata, stratum_orders
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, ScoreKind, row_scores
from jaxcontam.stats.rows import Matrix

Kind = Callable[[np.random.Generator, np.ndarray], list[np.ndarray]]
"""Exchangeable values of rows of given lengths, rows independent of each other."""


def _rows(flat_N: np.ndarray, sizes_K: np.ndarray) -> list[np.ndarray]:
    return np.split(flat_N, np.cumsum(sizes_K)[:-1])


def _normal(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.normal(size=sizes_K.sum()), sizes_K)


def _left_skewed(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(-rng.exponential(size=sizes_K.sum()), sizes_K)


def _heavy_tailed(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.standard_t(3, size=sizes_K.sum()), sizes_K)


def _heteroscedastic(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    scale_N = np.repeat(rng.lognormal(sigma=1.5, size=len(sizes_K)), sizes_K)
    return _rows(scale_N * rng.normal(size=sizes_K.sum()), sizes_K)


def _tied(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    return _rows(rng.integers(-1, 2, size=sizes_K.sum()).astype(float), sizes_K)


def _duplicated(rng: np.random.Generator, sizes_K: np.ndarray) -> list[np.ndarray]:
    """As of few distinct examples: each column repeats one of at most half as many."""
    distinct_K = np.maximum((sizes_K + 1) // 2, 2)
    drawn = rng.random(sizes_K.sum()) * np.repeat(distinct_K, sizes_K)
    starts_N = np.repeat(np.cumsum(sizes_K) - sizes_K, sizes_K)
    values_N = rng.normal(size=sizes_K.sum())
    return _rows(values_N[starts_N + drawn.astype(int)], sizes_K)


KINDS: Mapping[str, Kind] = {
    "normal": _normal,
    "left-skewed": _left_skewed,
    "t3": _heavy_tailed,
    "heteroscedastic": _heteroscedastic,
    "tied": _tied,
    "duplicated": _duplicated,
}

LEVELS = (0.05, 0.01, 0.001)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SizeTest:
    """A test and how it is looked at.

    Attributes:
        p_value: (generator, kind) -> p of one fresh null data set of the kind.
        exact: Whether its size may not exceed the level.
        sharp: Whether its size is near the level where nothing is tied; bets and
            other bounds stay below.
        quick: Whether 12,000 p-values take seconds; the others are slow tests.
    """

    p_value: Callable[[np.random.Generator, Kind], float]
    exact: bool = True
    sharp: bool = True
    quick: bool = True


def _of_rows(
    sizes_K: np.ndarray, p_of: Callable[[list[np.ndarray]], float], **told: bool
) -> SizeTest:
    """A test that reads rows of given lengths, and draws nothing itself."""
    return SizeTest(p_value=lambda rng, kind: p_of(kind(rng, sizes_K)), **told)


def _exact_test(
    sizes: Sequence[int], scores: ScoreKind, *, quick: bool = True
) -> SizeTest:
    """The randomisation test of rows of given lengths, without its cross-check."""
    return _of_rows(
        np.array(sizes), lambda rows: 10.0 ** _log10_p(rows, scores), quick=quick
    )


def _log10_p(rows: Matrix, scores: ScoreKind) -> float:
    scored = row_scores(rows, kind=scores, relative_tolerance=MODEL_TOLERANCE)
    return lattice_tail(scored.differences.split(), scored.tolerance).log10_upper


def _adjacency(n_strata: int, n_examples: int) -> SizeTest:
    """The exact law over all orders of every stratum's pair matrix."""
    rng_of_no_draw = np.random.default_rng(0)
    orders_MS = stratum_orders(np.zeros(n_examples, np.int64), rng_of_no_draw)

    def p_value(rows: list[np.ndarray]) -> float:
        pairs = [row.reshape(n_examples, n_examples) for row in rows]
        sums = [path_sums(double_centred(pairs_SS), orders_MS) for pairs_SS in pairs]
        tolerance = MODEL_TOLERANCE * sum(float(np.abs(p).sum()) for p in pairs)
        tail = lattice_tail((sums_M - sums_M[0] for sums_M in sums), tolerance)
        return 10.0**tail.log10_upper

    return _of_rows(np.full(n_strata, n_examples**2), p_value)


def strata_of(pairs_KSS: np.ndarray) -> PairStrata:
    """Strata of one size in runs of four, as a pair test takes them."""
    K, S, _ = pairs_KSS.shape
    return PairStrata(
        pairs=pairs_KSS,
        sizes=np.full(K, S),
        codes=np.zeros((K, S), np.int64),
        runs=np.tile(_runs(S), (K, 1)),
        starts=S * np.arange(K),
    )


def _direction(n_strata: int, n_examples: int, *, sparse: bool = False) -> SizeTest:
    def p_value(rows: list[np.ndarray]) -> float:
        pairs = np.reshape(rows, (-1, n_examples, n_examples))
        return direction_p_value(needed_alone(pairs) if sparse else pairs)

    return _of_rows(np.full(n_strata, n_examples**2), p_value, quick=sparse)


def direction_p_value(pairs_KSS: np.ndarray) -> float:
    """Exact p over the reversals of runs of four, without its cross-checks.

    Args:
        pairs_KSS: Pair matrices of strata of one size, NaN where not scored.
    """
    _, n_examples, _ = pairs_KSS.shape
    orders_MS = flipped_orders(np.zeros(n_examples, np.int64), _runs(n_examples))
    matrices = [antisymmetric(pairs_SS) for pairs_SS in pairs_KSS]
    sums = [directed_sums(matrix_SS, orders_MS) for matrix_SS in matrices]
    largest_KS = np.nan_to_num(np.abs(pairs_KSS)).max(axis=2)
    tolerance = MODEL_TOLERANCE * float(largest_KS.sum())
    tail = lattice_tail((sums_M - sums_M[0] for sums_M in sums), tolerance)
    return 10.0**tail.log10_upper


def needed_alone(pairs_KSS: np.ndarray) -> np.ndarray:
    """The same with NaN for the pairs that direction does not score by itself."""
    _, n_examples, _ = pairs_KSS.shape
    return np.where(needed_pairs(_runs(n_examples)), pairs_KSS, np.nan)


def _runs(n_examples: int) -> np.ndarray:
    return runs_of(n_examples, length=4)


def _local(sizes: Sequence[int], n_draws: int) -> SizeTest:
    """The best run of strata."""
    sizes_K = np.array(sizes)

    def p_value(rng: np.random.Generator, kind: Kind) -> float:
        rows = kind(rng, sizes_K)
        ties_K = np.array([MODEL_TOLERANCE * np.abs(row).max() for row in rows])
        seed = int(rng.integers(2**32))
        return local_evidence(rows, ties_K, seed=seed, n_draws=n_draws).p_value

    return SizeTest(p_value=p_value, quick=False)


def _max_t(n_strata: int, n_columns: int, n_draws: int) -> SizeTest:
    """Three statistics of the same orders, two of them dependent; the best one."""
    sizes_K = np.full(n_strata, n_columns)

    def p_value(rng: np.random.Generator, kind: Kind) -> float:
        first_KM, second_KM = (np.stack(kind(rng, sizes_K)) for _ in range(2))
        values_QKM = np.stack([first_KM, second_KM, first_KM + second_KM])
        seed = int(rng.integers(2**32))
        sums = shared_sums(values_QKM, n_draws=n_draws, seed=seed)
        return max_t(sums, tolerances=1e-9 * float(np.abs(values_QKM).sum())).p_value

    return SizeTest(p_value=p_value, quick=False)


def _sharded_t(n_shards: int, n_columns: int) -> SizeTest:
    def p_value(rows: list[np.ndarray]) -> float:
        return sharded_t.analyse(np.stack(rows), np.ones(n_shards), 0).p_value

    return _of_rows(np.full(n_shards, n_columns), p_value, exact=False)


# One row per test; small designs, because every combination of theirs can be counted.
TESTS: Mapping[str, SizeTest] = {
    "stratified": _exact_test([5] * 10, "centred"),
    "stratified, auto": _exact_test([10] * 6, "auto"),
    "stratified, studentised": _exact_test([5] * 10, "studentised"),
    "stratified, on the grid": _exact_test([10] * 20, "auto", quick=False),
    "reversal": _exact_test([2] * 20, "centred"),
    "reversal, on the grid": _exact_test([2] * 40, "centred", quick=False),
    "permutation": _exact_test([100], "centred"),
    "different lengths": _exact_test([2, 2, 3, 4, 4, 5, 6, 8, 9, 10], "centred"),
    "different lengths, studentised": _exact_test([2, 3, 4, 5, 7, 9], "studentised"),
    "adjacency": _adjacency(3, 5),
    "direction": _direction(8, 8),
    "direction, sparse": _direction(8, 8, sparse=True),
    "options": _exact_test([4] * 12, "centred"),
    "canary": _exact_test([30] * 5, "centred"),
    "canary_chat": _exact_test([64] * 32, "centred"),
    "canary_alone": _exact_test([150], "centred"),
    "local evidence": _local([10] * 12, 999),
    "local evidence, different lengths": _local([2, 3, 5, 8, 4, 2, 9, 6], 999),
    "max-T of three": _max_t(10, 5, 999),
    "sharded_t, 10 shards": _sharded_t(10, 50),
}


@functools.cache
def size_of(test: str, kind: str, n_sets: int, *, seed: int = 0) -> tuple[float, ...]:
    """Share of p-values at or below each of `LEVELS` over fresh null data sets.

    Args:
        test: Name in `TESTS`.
        kind: Name in `KINDS`.
        n_sets: Data sets.
        seed: With the two names, seeds them.
    """
    entropy = [seed, zlib.crc32(test.encode()), zlib.crc32(kind.encode())]
    rng = np.random.default_rng(entropy)
    return shares([TESTS[test].p_value(rng, KINDS[kind]) for _ in range(n_sets)])


def shares(p: Sequence[float]) -> tuple[float, ...]:
    """Share of p-values at or below each of `LEVELS`."""
    return tuple(float(np.mean(np.array(p) <= level)) for level in LEVELS)


def excess(sizes: Sequence[float], n_sets: int) -> float:
    """Standard errors of the simulation above the level, the worst of the levels."""
    return max(
        (size - level) / math.sqrt(level * (1 - level) / n_sets)
        for size, level in zip(sizes, LEVELS, strict=True)
    )
