"""Every test on small designs, six kinds of exchangeable scores, and its size."""

import functools
import math
import zlib

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


def _heteroscedastic(rng, sizes_K):
    scale_N = np.repeat(rng.lognormal(sigma=1.5, size=len(sizes_K)), sizes_K)
    return scale_N * rng.normal(size=sizes_K.sum())


def _duplicated(rng, sizes_K):
    """As of few distinct examples: each column repeats one of at most half as many."""
    distinct_K = np.maximum((sizes_K + 1) // 2, 2)
    drawn = rng.random(sizes_K.sum()) * np.repeat(distinct_K, sizes_K)
    starts_N = np.repeat(np.cumsum(sizes_K) - sizes_K, sizes_K)
    values_N = rng.normal(size=sizes_K.sum())
    return values_N[starts_N + drawn.astype(int)]


KINDS = {
    "normal": lambda rng, sizes_K: rng.normal(size=sizes_K.sum()),
    "left-skewed": lambda rng, sizes_K: -rng.exponential(size=sizes_K.sum()),
    "t3": lambda rng, sizes_K: rng.standard_t(3, size=sizes_K.sum()),
    "heteroscedastic": _heteroscedastic,
    "tied": lambda rng, sizes_K: rng.integers(-1, 2, sizes_K.sum()).astype(float),
    "duplicated": _duplicated,
}
"""(generator, lengths of rows) -> their exchangeable values, rows independent."""

LEVELS = (0.05, 0.01, 0.001)
DIGEST = "sha256:" + "5" * 64


def rows_of(kind, rng, sizes):
    values_N = KINDS[kind](rng, np.array(sizes))
    return np.split(values_N, np.cumsum(sizes)[:-1])


def strata_of(pairs_KSS):
    """Strata of one size in runs of four, as a pair test takes them."""
    K, S, _ = pairs_KSS.shape
    return PairStrata(
        pairs=pairs_KSS,
        sizes=np.full(K, S),
        codes=np.zeros((K, S), np.int64),
        runs=np.tile(runs_of(S, length=4), (K, 1)),
        starts=S * np.arange(K),
    )


def direction_p_value(pairs_KSS):
    """Exact p over the reversals of runs of four, without its cross-checks.

    Of pair matrices of strata of one size, NaN where not scored.
    """
    _, S, _ = pairs_KSS.shape
    orders_MS = flipped_orders(np.zeros(S, np.int64), runs_of(S, length=4))
    matrices = [antisymmetric(pairs_SS) for pairs_SS in pairs_KSS]
    sums = [directed_sums(matrix_SS, orders_MS) for matrix_SS in matrices]
    largest_KS = np.nan_to_num(np.abs(pairs_KSS)).max(axis=2)
    tolerance = MODEL_TOLERANCE * float(largest_KS.sum())
    tail = lattice_tail((sums_M - sums_M[0] for sums_M in sums), tolerance)
    return 10.0**tail.log10_upper


def needed_alone(pairs_KSS):
    """The same with NaN for the pairs that direction does not score by itself."""
    _, S, _ = pairs_KSS.shape
    return np.where(needed_pairs(runs_of(S, length=4)), pairs_KSS, np.nan)


def _of_method(name, sizes, rng, kind):
    row, rows = METHODS[name], rows_of(kind, rng, sizes)
    if isinstance(row, VersionMethod):
        return row.analyse(rows, 0).p_value
    return row.analyse(np.stack(rows), np.ones(len(rows)), 0).p_value


def _adjacency(rng, kind):
    strata = strata_of(np.reshape(rows_of(kind, rng, [25] * 3), (3, 5, 5)))
    return adjacency_test(strata, seed=0, content_digest=DIGEST, brief=True).p_value


def _direction(rng, kind, needed=lambda pairs_KSS: pairs_KSS):
    pairs_KSS = np.reshape(rows_of(kind, rng, [64] * 8), (8, 8, 8))
    return direction_p_value(needed(pairs_KSS))


def _studentised(rng, kind):
    rows = rows_of(kind, rng, [2, 3, 4, 5, 7, 9])
    return randomisation_test(rows, np.ones(6), scores="studentised").p_value


def _local(rng, kind):
    """The best run of strata."""
    rows = rows_of(kind, rng, [2, 3, 5, 8, 4, 2, 9, 6])
    ties_K = np.array([MODEL_TOLERANCE * np.abs(row).max() for row in rows])
    seed = int(rng.integers(2**32))
    return local_evidence(rows, ties_K, seed=seed, n_draws=999).p_value


def _max_t(rng, kind):
    """Three statistics of the same orders, two of them dependent; the best one."""
    first_KM, second_KM = (np.stack(rows_of(kind, rng, [5] * 10)) for _ in range(2))
    values_QKM = np.stack([first_KM, second_KM, first_KM + second_KM])
    sums = shared_sums(values_QKM, n_draws=999, seed=int(rng.integers(2**32)))
    return max_t(sums, tolerances=1e-9 * float(np.abs(values_QKM).sum())).p_value


# Small designs, because every combination of theirs can be counted.
TESTS = {
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
    "direction, sparse": functools.partial(_direction, needed=needed_alone),
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
def size_of(test, kind, n_sets):
    """Share of p-values at or below each of `LEVELS` over fresh null data sets."""
    rng = np.random.default_rng(
        [0, zlib.crc32(test.encode()), zlib.crc32(kind.encode())]
    )
    design, name = TESTS[test], test.split(",")[0]
    if not callable(design):
        design = functools.partial(_of_method, name, design)
    return shares([design(rng, kind) for _ in range(n_sets)])


def shares(p):
    """Share of p-values at or below each of `LEVELS`."""
    return tuple(float(np.mean(np.array(p) <= level)) for level in LEVELS)


def excess(sizes, n_sets):
    """Standard errors of the simulation above the level, the worst of the levels."""
    return max(
        (size - level) / math.sqrt(level * (1 - level) / n_sets)
        for size, level in zip(sizes, LEVELS, strict=True)
    )
