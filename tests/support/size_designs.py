"""Every test on small designs, six kinds of exchangeable scores, and its size."""

import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxcontam.methods import METHODS
from jaxcontam.proof.versions import VersionMethod
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    needed_pairs,
    runs_of,
)
from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.multiple import max_t, shared_sums
from jaxcontam.stats.pair_test import PairStrata, adjacency_test
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, randomisation_test

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
DIGEST = "sha256:" + "5" * 64


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


def _of_method(
    name: str, sizes: Sequence[int], n_sets: int, rng: np.random.Generator, kind: Kind
) -> list[float]:
    """p-values of a method of METHODS that reads rows of given lengths."""
    row, p_values = METHODS[name], []
    for _ in range(n_sets):
        rows = kind(rng, np.array(sizes))
        if isinstance(row, VersionMethod):
            p_values.append(row.analyse(rows, 0).p_value)
        else:
            numbers = row.analyse(np.stack(rows), np.ones(len(rows)), 0)
            p_values.append(numbers.p_value)
    return p_values


def _adjacency(rng: np.random.Generator, kind: Kind) -> float:
    pairs_KSS = np.reshape(kind(rng, np.full(3, 25)), (3, 5, 5))
    strata = strata_of(pairs_KSS)
    return adjacency_test(strata, seed=0, content_digest=DIGEST, brief=True).p_value


def _direction(rng: np.random.Generator, kind: Kind) -> float:
    return direction_p_value(np.reshape(kind(rng, np.full(8, 64)), (8, 8, 8)))


def _direction_sparse(rng: np.random.Generator, kind: Kind) -> float:
    pairs_KSS = np.reshape(kind(rng, np.full(8, 64)), (8, 8, 8))
    return direction_p_value(needed_alone(pairs_KSS))


def _studentised(rng: np.random.Generator, kind: Kind) -> float:
    rows = kind(rng, np.array([2, 3, 4, 5, 7, 9]))
    return randomisation_test(rows, np.ones(6), scores="studentised").p_value


def _local(rng: np.random.Generator, kind: Kind) -> float:
    """The best run of strata."""
    rows = kind(rng, np.array([2, 3, 5, 8, 4, 2, 9, 6]))
    ties_K = np.array([MODEL_TOLERANCE * np.abs(row).max() for row in rows])
    seed = int(rng.integers(2**32))
    return local_evidence(rows, ties_K, seed=seed, n_draws=999).p_value


def _max_t(rng: np.random.Generator, kind: Kind) -> float:
    """Three statistics of the same orders, two of them dependent; the best one."""
    first_KM, second_KM = (np.stack(kind(rng, np.full(10, 5))) for _ in range(2))
    values_QKM = np.stack([first_KM, second_KM, first_KM + second_KM])
    sums = shared_sums(values_QKM, n_draws=999, seed=int(rng.integers(2**32)))
    return max_t(sums, tolerances=1e-9 * float(np.abs(values_QKM).sum())).p_value


# Small designs, because every combination of theirs can be counted.
TESTS: Mapping[str, Sequence[int] | Callable[[np.random.Generator, Kind], float]] = {
    "stratified": [5] * 10,
    "stratified, auto": [10] * 6,
    "reversal": [2] * 20,
    "permutation": [100],
    "variants, different lengths": [2, 2, 3, 4, 4, 5, 6, 8, 9, 10],
    "options": [4] * 12,
    "canary": [30] * 5,
    "canary_alone": [150],
    "adjacency": _adjacency,
    "direction": _direction,
    "direction, sparse": _direction_sparse,
    "different lengths, studentised": _studentised,
    "local evidence": _local,
    "max-T of three": _max_t,
    "sharded_t, 10 shards": [50] * 10,
    # Too many combinations to count: for the slow suite.
    "stratified, on the grid": [10] * 20,
    "reversal, on the grid": [2] * 40,
    "canary, on the grid": [64] * 32,
}
"""Name of a method, and lengths of rows for it, or a p-value of a null data set."""


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
    design, name = TESTS[test], test.split(",")[0]
    if callable(design):
        return shares([design(rng, KINDS[kind]) for _ in range(n_sets)])
    return shares(_of_method(name, design, n_sets, rng, KINDS[kind]))


def shares(p: Sequence[float]) -> tuple[float, ...]:
    """Share of p-values at or below each of `LEVELS`."""
    return tuple(float(np.mean(np.array(p) <= level)) for level in LEVELS)


def excess(sizes: Sequence[float], n_sets: int) -> float:
    """Standard errors of the simulation above the level, the worst of the levels."""
    return max(
        (size - level) / math.sqrt(level * (1 - level) / n_sets)
        for size, level in zip(sizes, LEVELS, strict=True)
    )
