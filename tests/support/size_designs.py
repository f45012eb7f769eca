"""Every test on small designs, six kinds of exchangeable scores, and its size."""

import functools
import math
import zlib

import numpy as np

from jaxcontam.methods import METHODS
from jaxcontam.proof.versions import VersionMethod
from jaxcontam.stats import direction
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
    return rng.normal(size=sizes_K.sum())[starts_N + drawn.astype(int)]


_FLAT = {
    "normal": lambda rng, sizes_K: rng.normal(size=sizes_K.sum()),
    "left-skewed": lambda rng, sizes_K: -rng.exponential(size=sizes_K.sum()),
    "t3": lambda rng, sizes_K: rng.standard_t(3, size=sizes_K.sum()),
    "heteroscedastic": _heteroscedastic,
    "tied": lambda rng, sizes_K: rng.integers(-1, 2, size=sizes_K.sum()).astype(float),
    "duplicated": _duplicated,
}


def _rows_of(flat):
    def rows(rng, sizes_K):
        return np.split(flat(rng, sizes_K), np.cumsum(sizes_K)[:-1])

    return rows


KINDS = {name: _rows_of(flat) for name, flat in _FLAT.items()}
"""Exchangeable values of rows of given lengths, rows independent of each other."""

LEVELS = (0.05, 0.01, 0.001)
DIGEST = "sha256:" + "5" * 64


def strata_of(pairs_KSS):
    """Strata of one size in runs of four, as a pair test takes them."""
    K, S, _ = pairs_KSS.shape
    places = {"sizes": np.full(K, S), "starts": S * np.arange(K)}
    places |= {"codes": np.zeros((K, S), np.int64), "runs": np.tile(_runs(S), (K, 1))}
    return PairStrata(pairs=pairs_KSS, **places)


def direction_p_value(pairs_KSS):
    """Exact p over the reversals of runs of four of strata, without cross-checks."""
    _, n_examples, _ = pairs_KSS.shape
    orders_MS = direction.flipped_orders(
        np.zeros(n_examples, np.int64), _runs(n_examples)
    )
    matrices = [direction.antisymmetric(pairs_SS) for pairs_SS in pairs_KSS]
    sums = [direction.directed_sums(matrix_SS, orders_MS) for matrix_SS in matrices]
    largest_KS = np.nan_to_num(np.abs(pairs_KSS)).max(axis=2)
    tolerance = MODEL_TOLERANCE * float(largest_KS.sum())
    tail = lattice_tail((sums_M - sums_M[0] for sums_M in sums), tolerance)
    return 10.0**tail.log10_upper


def needed_alone(pairs_KSS):
    """The same with NaN for the pairs that direction does not score by itself."""
    _, n_examples, _ = pairs_KSS.shape
    return np.where(direction.needed_pairs(_runs(n_examples)), pairs_KSS, np.nan)


def _runs(n_examples):
    return direction.runs_of(n_examples, length=4)


def _of_method(name, sizes, n_sets, rng, kind):
    """p-values of a method of METHODS that reads rows of given lengths."""
    row, p_values = METHODS[name], []
    for _ in range(n_sets):
        rows = kind(rng, np.array(sizes))
        plain = isinstance(row, VersionMethod)
        read = (rows,) if plain else (np.stack(rows), np.ones(len(rows)))
        p_values.append(row.analyse(*read, 0).p_value)
    return p_values


def _adjacency(rng, kind):
    pairs_KSS = np.reshape(kind(rng, np.full(3, 25)), (3, 5, 5))
    strata = strata_of(pairs_KSS)
    return adjacency_test(strata, seed=0, content_digest=DIGEST, brief=True).p_value


def _direction(rng, kind, chosen=np.asarray):
    pairs_KSS = np.reshape(kind(rng, np.full(8, 64)), (8, 8, 8))
    return direction_p_value(chosen(pairs_KSS))


def _studentised(rng, kind):
    rows = kind(rng, np.array([2, 3, 4, 5, 7, 9]))
    return randomisation_test(rows, np.ones(6), scores="studentised").p_value


def _local(rng, kind):
    """The best run of strata."""
    rows = kind(rng, np.array([2, 3, 5, 8, 4, 2, 9, 6]))
    ties_K = np.array([MODEL_TOLERANCE * np.abs(row).max() for row in rows])
    seed = int(rng.integers(2**32))
    return local_evidence(rows, ties_K, seed=seed, n_draws=999).p_value


def _max_t(rng, kind):
    """Three statistics of the same orders, two of them dependent; the best one."""
    first_KM, second_KM = (np.stack(kind(rng, np.full(10, 5))) for _ in range(2))
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
    "direction, sparse": functools.partial(_direction, chosen=needed_alone),
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
def size_of(test, kind, n_sets, *, seed=0):
    """Share of p-values at or below each of `LEVELS` over fresh null data sets."""
    entropy = [seed, zlib.crc32(test.encode()), zlib.crc32(kind.encode())]
    rng = np.random.default_rng(entropy)
    design, name = TESTS[test], test.split(",")[0]
    if callable(design):
        return shares([design(rng, KINDS[kind]) for _ in range(n_sets)])
    return shares(_of_method(name, design, n_sets, rng, KINDS[kind]))


def shares(p):
    """Share of p-values at or below each of `LEVELS`."""
    return tuple(float(np.mean(np.array(p) <= level)) for level in LEVELS)


def excess(sizes, n_sets):
    """Standard errors of the simulation above the level, the worst of the levels."""
    return max(
        (size - level) / math.sqrt(level * (1 - level) / n_sets)
        for size, level in zip(sizes, LEVELS, strict=True)
    )
