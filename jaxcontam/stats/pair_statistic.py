"""What a pair test sums over an order, and which orders it compares.

Dimension key
    Q  choices of how many tokens of each example count
    K  strata
    S  examples of the largest stratum
    M  orders
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxcontam.stats.adjacency import double_centred, path_moments, path_sums
from jaxcontam.stats.all_orders import n_stratum_orders, stratum_orders
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    n_flipped_orders,
    residuals,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairStrata:
    """Pair matrices of a file, and which orders of each stratum they are tested on.

    Attributes:
        pairs: (Q, K, S, S) float64, nats; entry [i, j] is log p(example j | example i)
            over the first tokens of j, NaN where it was not scored; diagonals and the
            padding of short strata are 0.
        first_tokens: (Q,) int64, tokens of an example that count after those that all
            examples share; -1 is all of them.
        sizes: (K,) int64, examples of each stratum, at least 4.
        codes: (K, S) int64, the group of each example; orders keep to groups.
        runs: (K, S) int64, the run of each example; direction reverses runs.
        starts: (K,) int64, index of the first example; seeds the stratum's draws.
    """

    pairs: np.ndarray
    first_tokens: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray
    runs: np.ndarray
    starts: np.ndarray

    @property
    def n_strata(self) -> int:
        """K."""
        return len(self.sizes)

    def centred(self, q: int) -> list[np.ndarray]:
        """Pairs of one choice of tokens without effects of single examples."""
        return [residuals(matrix) for matrix in self.matrices(q)]

    def matrices(self, q: int) -> list[np.ndarray]:
        """Pair matrices of one choice of tokens, without padding."""
        return [
            matrix[:size, :size]
            for matrix, size in zip(self.pairs[q], self.sizes.tolist(), strict=True)
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
    n_orders=n_flipped_orders,
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
