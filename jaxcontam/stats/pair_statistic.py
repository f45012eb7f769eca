"""Statistics of pair tests: sums over an order, and the orders that are compared.

Dimension key
    K  strata
    S  examples of the largest stratum
    M  orders, the published one first
    P  orders of one group
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np

from jaxcontam.stats.adjacency import double_centred, path_moments, path_sums
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    residuals,
)

MOST_ENUMERATED = math.factorial(8)
"""Strata with more distinct orders than this are drawn from."""
N_DRAWN = 100_000
"""Columns of such a stratum, the published order among them."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairStrata:
    """Pair matrices of a file, and which orders of each stratum they are tested on.

    Attributes:
        pairs: (K, S, S) float64, nats; entry [i, j] is log p(example j | example i),
            NaN where it was not scored; 0 on diagonals and in the padding of short
            strata.
        sizes: (K,) int64, examples of each stratum, at least 4.
        codes: (K, S) int64, the group of each example; orders keep to groups.
        runs: (K, S) int64, the run of each example; direction reverses runs.
        starts: (K,) int64, index of the first example; seeds the stratum's draws.
    """

    pairs: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray
    runs: np.ndarray
    starts: np.ndarray

    @property
    def n_strata(self) -> int:
        """K."""
        return len(self.sizes)

    def centred(self) -> list[np.ndarray]:
        """Pairs without effects of single examples."""
        return [residuals(matrix) for matrix in self.matrices()]

    def matrices(self) -> list[np.ndarray]:
        """Pair matrices without padding."""
        return [
            matrix[:size, :size]
            for matrix, size in zip(self.pairs, self.sizes.tolist(), strict=True)
        ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairStatistic:
    """A sum over the pairs of an order, linear in the pair matrix.

    Attributes:
        name: How log-probabilities become scores; see `OrderNumbers.scores`.
        matrix: (S, S) pairs -> the (S, S) matrix whose entries are summed.
        sums: (matrix, orders_MS) -> (M,) statistics.
        orders: (codes_S, runs_S, generator) -> orders_MS, the published one first.
        n_orders: (codes_S, runs_S) -> M.
        variance: (matrix, codes_S, runs_S) -> variance over the orders, about.
    """

    name: str
    matrix: Callable[[np.ndarray], np.ndarray]
    sums: Callable[[np.ndarray, np.ndarray], np.ndarray]
    orders: Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
    n_orders: Callable[[np.ndarray, np.ndarray], int]
    variance: Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def n_stratum_orders(codes_S: np.ndarray, n_most: int | None = None) -> int:
    """Columns that `stratum_orders` gives for a stratum."""
    counts = np.unique(codes_S, return_counts=True)[1]
    n_orders = math.prod(math.factorial(int(count)) for count in counts)
    if n_orders <= (MOST_ENUMERATED if n_most is None else n_most):
        return n_orders
    return N_DRAWN if n_most is None else n_most


def stratum_orders(
    codes_S: np.ndarray, rng: np.random.Generator, n_most: int | None = None
) -> np.ndarray:
    """Orders that move examples only among positions of equal code.

    All of them, once each, if there are at most 8!; else uniform draws with
    replacement, among which the published order takes its place as one more. Either way
    the published order is equally likely to be any column under the null. Row 0 of the
    (M, S) positions is 0, 1, ..., S - 1. From `n_most` orders on so many are drawn.
    """
    members = [np.flatnonzero(codes_S == code) for code in np.unique(codes_S)]
    n_orders = math.prod(math.factorial(len(group)) for group in members)
    n_columns = n_stratum_orders(codes_S, n_most)
    if n_columns == n_orders:
        return _enumerated(tuple(tuple(group.tolist()) for group in members))
    orders_MS = np.tile(np.arange(len(codes_S)), (n_columns, 1))
    for group in members:
        drawn_MP = np.tile(group, (n_columns - 1, 1))
        orders_MS[1:, group] = rng.permuted(drawn_MP, axis=1)
    return orders_MS


# Strata of a file have few sizes, and all orders of eight examples take 2.6 MB.
@functools.lru_cache(maxsize=4)
def _enumerated(members: tuple[tuple[int, ...], ...]) -> np.ndarray:
    n = sum(len(group) for group in members)
    orders_MS = np.zeros((1, n), np.int64)
    for group in members:
        permuted_PG = np.array(list(itertools.permutations(group)), np.int64)
        n_orders, n_permuted = len(orders_MS), len(permuted_PG)
        orders_MS = np.repeat(orders_MS, n_permuted, axis=0)
        orders_MS[:, list(group)] = np.tile(permuted_PG, (n_orders, 1))
    orders_MS.flags.writeable = False
    return orders_MS


ADJACENCY = PairStatistic(
    name="double-centred",
    matrix=double_centred,
    sums=path_sums,
    orders=lambda codes_S, runs_S, rng: stratum_orders(codes_S, rng),
    n_orders=lambda codes_S, runs_S: n_stratum_orders(codes_S),
    variance=lambda matrix, codes_S, runs_S: path_moments(matrix)[1],
)
"""Published neighbours against those of every order."""

DIRECTION = PairStatistic(
    name="forwards less backwards",
    matrix=antisymmetric,
    sums=directed_sums,
    orders=lambda codes_S, runs_S, rng: flipped_orders(codes_S, runs_S),
    n_orders=lambda codes_S, runs_S: len(flipped_orders(codes_S, runs_S)),
    variance=lambda matrix, codes_S, runs_S: float(
        directed_sums(matrix, flipped_orders(codes_S, runs_S)).var()
    ),
)
"""The published direction of every run against the same run backwards."""

DIRECTION_OF_ALL = dataclasses.replace(
    DIRECTION,
    orders=lambda codes_S, runs_S, rng: stratum_orders(codes_S, rng, n_most=1_000),
    n_orders=lambda codes_S, runs_S: n_stratum_orders(codes_S, n_most=1_000),
)
"""The same sum against orders of all kinds, as if the order had been drawn."""
