"""Exact tests of pair matrices: are published neighbours expected after each other?

The statistic is a sum of entries over an order, and what stands in for the published
order costs no model call: all orders of a short stratum (adjacency), or the same order
with runs reversed (direction). So p-values are exact and hardly bounded from below.

Dimension key
    K  strata
    S  examples of the largest stratum
    M  columns of a stratum, the published order first
    P  orders of one group
    B  Monte Carlo re-draws
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from jaxcontam.stats.adjacency import (
    double_centred,
    lag_profile,
    path_moments,
    path_sums,
    symmetry,
)
from jaxcontam.stats.direction import (
    antisymmetric,
    directed_sums,
    flipped_orders,
    neighbours,
    residuals,
)
from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.randomisation import (
    LAMBDAS,
    LOG10_E_MAX,
    MODEL_TOLERANCE,
    N_MONTE_CARLO,
    power_of_ten,
)
from jaxcontam.stats.result import OrderNumbers, mde_of

# Path sums are read several times. So many are kept (16 MB); more are made again.
_MOST_KEPT = 2**21
MOST_ENUMERATED = math.factorial(8)
"""Strata with more distinct orders than this are drawn from."""
N_DRAWN = 100_000
"""Columns of such a stratum, the published order among them."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairStrata:
    """Pair matrices of a file, and which orders of each stratum they are tested on.

    Attributes:
        pairs: (K, S, S) float64, nats; entry [i, j] is log p(example j | example i),
            NaN where it was not scored; 0 on diagonals and in padding.
        sizes: (K,) examples of each stratum, at least 4.
        codes: (K, S) the group of each example; orders keep to groups.
        runs: (K, S) the run of each example.
        starts: (K,) index of the first example; seeds the stratum's draws.
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
        name: See `OrderNumbers.scores`.
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
    """(M, S) orders that keep to groups of equal code, the published one first.

    All of them, once each, if there are at most 8! (or less than `n_most`); else
    uniform draws with replacement. Either way the published order is equally likely to
    be any column under the null.
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


def adjacency_test(
    strata: PairStrata, *, seed: int, content_digest: str, brief: bool = False
) -> OrderNumbers:
    """Exact p-value that published neighbours are this expected by chance.

    Null hypothesis: within each stratum every order (of those that keep to groups) was
    equally likely to be the published one. Finite-sample exact, with ties and with a
    constant scorer (p = 1). Blind to copies in other orders, and to memory that needs
    more than one example of context.

    All pairs are scored, or it is a ValueError; the digest is that of the sorted
    example digests. `brief` leaves out Monte Carlo, e-value, symmetry, lags and
    neighbours, for thousands of models in a row.

    Source:
        Exchangeability as in Oren et al., arXiv:2310.17623; the path statistic is a
        doubly indexed permutation statistic in the line of Wald and Wolfowitz (1943).
    """
    if not np.isfinite(strata.pairs).all():
        raise ValueError("pair matrices must be finite")
    return _pair_test(
        strata, ADJACENCY, seed=seed, content_digest=content_digest, brief=brief
    )


def direction_test(
    strata: PairStrata, *, seed: int, content_digest: str
) -> OrderNumbers:
    """Exact p-value that examples are this much likelier forwards than backwards.

    Null hypothesis, reversibility: each run of up to four examples was as likely to be
    published backwards, given everything else. Order that only puts like examples
    together keeps to it; order that points forwards (numbers that count up, a story)
    does not. Finite-sample exact, with ties and with a constant scorer (p = 1).

    Where all pairs were scored, `log10_p_all_orders` says what the same sum would be
    worth had the order been drawn at random.

    Source:
        A group of reversals in the test of Oren et al., arXiv:2310.17623.
    """
    numbers = _pair_test(strata, DIRECTION, seed=seed, content_digest=content_digest)
    if np.isnan(strata.pairs).any():
        return numbers
    of_all = _Columns(strata, DIRECTION_OF_ALL, seed, content_digest)
    tail = lattice_tail(
        (sums_M - sums_M[0] for sums_M in of_all.sums()), _tie_tolerance(strata)
    )
    return dataclasses.replace(numbers, log10_p_all_orders=tail.log10_upper)


def _pair_test(
    strata: PairStrata,
    statistic: PairStatistic,
    *,
    seed: int,
    content_digest: str,
    brief: bool = False,
) -> OrderNumbers:
    """The exact test of one statistic over the orders that it compares."""
    if np.isinf(strata.pairs).any():
        raise ValueError("pair matrices must be finite where they were scored")
    columns = _Columns(strata, statistic, seed, content_digest)
    published = gain = boundaries = variance = log10_floor = 0.0
    for sums_M, kept_M in zip(columns.sums(), columns.boundaries(), strict=True):
        published += float(sums_M[0])
        gain += float(sums_M[0] - sums_M.mean())
        boundaries += float(kept_M[0] - kept_M.mean())
        variance += float(sums_M.var())
        log10_floor -= math.log10(len(sums_M))
    sd, tolerance = math.sqrt(variance), _tie_tolerance(strata)
    tail = lattice_tail((sums_M - sums_M[0] for sums_M in columns.sums()), tolerance)
    log10_p = min(0.0, max(tail.log10_upper, log10_floor))
    log10_lower = min(log10_p, max(tail.log10_lower, log10_floor))
    p_floor = power_of_ten(log10_floor)
    effect = gain / boundaries if boundaries > 0 else None
    effect_se = sd / boundaries if boundaries > 0 else None
    numbers = OrderNumbers(
        statistic=published,
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=power_of_ten(log10_lower),
        p_floor=p_floor,
        effect=effect,
        effect_se=effect_se,
        mde=mde_of(effect_se, p_floor=p_floor, differs=sd > tolerance),
        scores=statistic.name,
    )
    if brief:
        return numbers
    drawn_B, log_e = _draws(columns)
    n_as_large = np.count_nonzero(drawn_B >= published - tolerance)
    centred = strata.centred()
    return dataclasses.replace(
        numbers,
        p_monte_carlo=(1 + int(n_as_large)) / (1 + N_MONTE_CARLO),
        e_value=10.0 ** min(log_e / math.log(10), LOG10_E_MAX),
        symmetry=symmetry(centred),
        # Neighbours alone have no other lags to be compared with.
        lag_profile=None if np.isnan(strata.pairs).any() else lag_profile(centred),
        neighbours=neighbours(strata.matrices()),
    )


def drawn_sums(
    strata: PairStrata,
    statistic: PairStatistic,
    *,
    seed: int,
    content_digest: str,
    n_draws: int,
) -> np.ndarray:
    """(n_draws,) of the statistic with a random order in each stratum, for plots."""
    columns = _Columns(strata, statistic, seed, content_digest)
    rng = row_generator(seed, content_digest, 1)
    sums_B = np.zeros(n_draws)
    for sums_M in columns.sums():
        sums_B += sums_M[rng.integers(len(sums_M), size=n_draws)]
    return sums_B


def sampled_columns(
    strata: PairStrata,
    statistic: PairStatistic,
    *,
    seed: int,
    content_digest: str,
    n_orders: int,
) -> list[np.ndarray]:
    """(n_orders + 1,) sums of each stratum, the published first, the others drawn."""
    columns = _Columns(strata, statistic, seed, content_digest)
    rng = row_generator(seed, content_digest, 2)
    rows = []
    for sums_M in columns.sums():
        drawn = rng.integers(len(sums_M), size=n_orders)
        rows.append(np.concatenate([sums_M[:1], sums_M[drawn]]))
    return rows


@dataclasses.dataclass(eq=False)
class _Columns:
    """The statistic of every stratum's orders; kept where they are not too many."""

    strata: PairStrata
    statistic: PairStatistic
    seed: int
    content_digest: str
    _kept: list[np.ndarray] | None = None
    # Kept for listed orders, so that equal strata share them.
    _boundaries: dict[tuple[bytes, ...], np.ndarray] = dataclasses.field(
        default_factory=dict
    )

    def strata_of(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(S, S) pairs, (S,) codes and (S,) runs of each stratum."""
        own = self.strata
        for pairs_SS, codes_S, runs_S in zip(
            own.matrices(), own.codes, own.runs, strict=True
        ):
            yield pairs_SS, codes_S[: len(pairs_SS)], runs_S[: len(pairs_SS)]

    def orders(self) -> Iterator[np.ndarray]:
        """(M, S) positions of each stratum; the same ones at each call."""
        starts = self.strata.starts.tolist()
        for (_, codes_S, runs_S), start in zip(self.strata_of(), starts, strict=True):
            rng = row_generator(self.seed, self.content_digest, 0, start)
            yield self.statistic.orders(codes_S, runs_S, rng)

    def sums(self) -> Iterator[np.ndarray]:
        """(M,) statistics of each stratum, not to be written to."""
        if self._kept is not None:
            yield from self._kept
            return
        found: list[np.ndarray] = []
        n_columns, matrices = 0, self.strata.matrices()
        for pairs_SS, orders_MS in zip(matrices, self.orders(), strict=True):
            sums_M = self.statistic.sums(self.statistic.matrix(pairs_SS), orders_MS)
            n_columns += len(sums_M)
            if n_columns <= _MOST_KEPT:
                found.append(sums_M)
            else:
                found.clear()
            yield sums_M
        if n_columns <= _MOST_KEPT:
            self._kept = found

    def boundaries(self) -> Iterator[np.ndarray]:
        """(M,) of what a gain of 1 at each published boundary adds to the sums."""
        strata = zip(self.strata_of(), self.orders(), strict=True)
        for (pairs_SS, codes_S, runs_S), orders_MS in strata:
            missing_SS = np.isnan(pairs_SS)
            key = (missing_SS.tobytes(), codes_S.tobytes(), runs_S.tobytes())
            kept_M = self._boundaries.get(key)
            if kept_M is None:
                ones_SS = np.where(missing_SS, np.nan, np.eye(len(pairs_SS), k=1))
                matrix_SS = self.statistic.matrix(ones_SS)
                kept_M = self.statistic.sums(matrix_SS, orders_MS)
                if not orders_MS.flags.writeable:
                    self._boundaries[key] = kept_M
            yield kept_M


def _draws(columns: _Columns) -> tuple[np.ndarray, float]:
    """(B,) re-draws of the statistic, and the log of the e-value."""
    rng = row_generator(columns.seed, columns.content_digest, 1)
    drawn_B = np.zeros(N_MONTE_CARLO)
    of = columns.statistic
    # About the variance over the orders, whatever the order.
    variance = sum(
        of.variance(of.matrix(pairs_SS), codes_S, runs_S)
        for pairs_SS, codes_S, runs_S in columns.strata_of()
    )
    spread = math.sqrt(variance)
    pooled = spread / math.sqrt(columns.strata.n_strata)
    # What ties is no bet: rounding would be scaled up to one.
    tells = spread > _tie_tolerance(columns.strata)
    log_e_L = np.zeros(len(LAMBDAS))
    for sums_M in columns.sums():
        drawn_B += sums_M[rng.integers(len(sums_M), size=N_MONTE_CARLO)]
        if tells:
            # log of exp(lambda a_0) / mean_j exp(lambda a_j)
            bets_LM = LAMBDAS[:, None] * (sums_M / pooled)[None, :]
            top_L = bets_LM.max(axis=1)
            means_L = np.exp(bets_LM - top_L[:, None]).mean(axis=1)
            log_e_L += bets_LM[:, 0] - top_L - np.log(means_L)
    return drawn_B, float(np.logaddexp.reduce(log_e_L)) - math.log(len(LAMBDAS))


def _tie_tolerance(strata: PairStrata) -> float:
    """Sums that differ by no more are ties: no order has a larger raw sum than this."""
    largest_KS = np.nan_to_num(np.abs(strata.pairs)).max(axis=2)
    return MODEL_TOLERANCE * float(largest_KS.sum())


def pair_columns(
    statistic: PairStatistic,
    published_KS: np.ndarray,
    codes_KS: np.ndarray,
    runs_KS: np.ndarray,
) -> list[int]:
    """Orders of each stratum that a pair test compares, the published one included."""
    there_KS = published_KS >= 0
    # Strata of a file are of few kinds.
    kinds, of_K = np.unique(
        np.stack([codes_KS, runs_KS, there_KS]), axis=1, return_inverse=True
    )
    n_columns = [
        statistic.n_orders(codes_S[there_S > 0], runs_S[there_S > 0])
        for codes_S, runs_S, there_S in kinds.swapaxes(0, 1)
    ]
    return [n_columns[kind] for kind in of_K.tolist()]
