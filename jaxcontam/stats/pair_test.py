"""Exact tests of pair matrices: are published neighbours expected after each other?

The statistic is a sum of entries over an order, and what stands in for the published
order costs no model call: all orders of a short stratum (adjacency), or the same order
with runs reversed (direction). So p-values are exact and hardly bounded from below.

Dimension key
    K  strata
    S  examples of the largest stratum
    M  columns of a stratum, the published order first
    B  Monte Carlo re-draws
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from jaxcontam.stats.adjacency import lag_profile, symmetry
from jaxcontam.stats.direction import neighbours
from jaxcontam.stats.effect import mde_of
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.pair_statistic import (
    ADJACENCY,
    DIRECTION,
    DIRECTION_OF_ALL,
    PairStatistic,
    PairStrata,
)
from jaxcontam.stats.randomisation import (
    LAMBDAS,
    LOG10_E_MAX,
    MODEL_TOLERANCE,
    N_MONTE_CARLO,
    power_of_ten,
)
from jaxcontam.stats.result import OrderNumbers

# Path sums are read several times. So many are kept (16 MB); more are made again.
_MOST_KEPT = 2**21


def adjacency_test(
    strata: PairStrata, *, seed: int, content_digest: str, brief: bool = False
) -> OrderNumbers:
    """Exact p-value that published neighbours are this expected by chance.

    Null hypothesis: within each stratum every order (of those that keep to groups)
    was equally likely to be the published one. Finite-sample exact, with ties and with
    a constant scorer (p = 1). Blind to copies in other orders, and to memory that
    needs more than one example of context.

    Args:
        strata: Pair matrices, complete, and orders.
        seed: The run's seed.
        content_digest: `sha256:...` of the sorted example digests.
        brief: Leave out what no p-value or effect needs: Monte Carlo, e-value,
            symmetry, lags and neighbours. For thousands of models in a row.

    Raises:
        ValueError: If an entry is not finite.

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
    together keeps to it; order that points forwards (numbers that count up, a story,
    a question and then its answer) does not. Finite-sample exact over the reversals of
    all runs, with ties and with a constant scorer (p = 1).

    Where all pairs of every stratum were scored, `log10_p_all_orders` says what the
    same sum would be worth had the order been drawn at random. The digest is that of
    the sorted example digests.

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
    """(n_orders + 1,) sums of each stratum, the published order's first.

    The others are random ones of the stratum's columns, drawn with replacement, so
    all are exchangeable under the null.
    """
    columns = _Columns(strata, statistic, seed, content_digest)
    rng = row_generator(seed, content_digest, 2)
    rows = []
    for sums_M in columns.sums():
        drawn = rng.integers(len(sums_M), size=n_orders)
        rows.append(np.concatenate([sums_M[:1], sums_M[drawn]]))
    return rows


class _Columns:
    """The statistic of every stratum's orders; kept where they are not too many."""

    def __init__(
        self,
        strata: PairStrata,
        statistic: PairStatistic,
        seed: int,
        content_digest: str,
    ):
        self.strata = strata
        self.statistic = statistic
        self.seed = seed
        self.content_digest = content_digest
        self._kept: list[np.ndarray] | None = None
        # Kept for listed orders, so that equal strata share them.
        self._boundaries: dict[tuple[bytes, bytes, bytes], np.ndarray] = {}

    def strata_of(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(S, S) pairs, (S,) codes and (S,) runs of each stratum."""
        strata = self.strata
        for pairs_SS, codes_S, runs_S in zip(
            strata.matrices(), strata.codes, strata.runs, strict=True
        ):
            yield pairs_SS, codes_S[: len(pairs_SS)], runs_S[: len(pairs_SS)]

    def orders(self) -> Iterator[np.ndarray]:
        """(M, S) positions of each stratum; the same ones at each call."""
        for (_, codes_S, runs_S), start in zip(
            self.strata_of(), self.strata.starts.tolist(), strict=True
        ):
            rng = row_generator(self.seed, self.content_digest, 0, start)
            yield self.statistic.orders(codes_S, runs_S, rng)

    def sums(self) -> Iterator[np.ndarray]:
        """(M,) statistics of each stratum, not to be written to."""
        if self._kept is not None:
            yield from self._kept
            return
        found: list[np.ndarray] = []
        n_columns = 0
        for pairs_SS, orders_MS in zip(
            self.strata.matrices(), self.orders(), strict=True
        ):
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

    def variance(self) -> float:
        """Approximate variance of the statistic over the orders, whatever the order."""
        matrix, variance = self.statistic.matrix, self.statistic.variance
        return sum(
            variance(matrix(pairs_SS), codes_S, runs_S)
            for pairs_SS, codes_S, runs_S in self.strata_of()
        )


def _draws(columns: _Columns) -> tuple[np.ndarray, float]:
    """(B,) re-draws of the statistic, and the log of the e-value."""
    rng = row_generator(columns.seed, columns.content_digest, 1)
    drawn_B = np.zeros(N_MONTE_CARLO)
    spread = math.sqrt(columns.variance())
    pooled = spread / math.sqrt(columns.strata.n_strata)
    # What ties is no bet: rounding would be scaled up to one.
    tells = spread > _tie_tolerance(columns.strata)
    log_e_L = np.zeros(len(LAMBDAS))
    for sums_M in columns.sums():
        drawn_B += sums_M[rng.integers(len(sums_M), size=N_MONTE_CARLO)]
        if tells:
            log_e_L += _log_bets(sums_M / pooled)
    return drawn_B, float(np.logaddexp.reduce(log_e_L)) - math.log(len(LAMBDAS))


def _log_bets(scaled_M: np.ndarray) -> np.ndarray:
    """(L,) log of exp(lambda a_0) / mean_j exp(lambda a_j) of one stratum."""
    bets_LM = LAMBDAS[:, None] * scaled_M[None, :]
    top_L = bets_LM.max(axis=1)
    return bets_LM[:, 0] - top_L - np.log(np.exp(bets_LM - top_L[:, None]).mean(axis=1))


def _tie_tolerance(strata: PairStrata) -> float:
    """Sums that differ by no more are ties: no order has a larger raw sum than this."""
    largest_KS = np.nan_to_num(np.abs(strata.pairs)).max(axis=2)
    return MODEL_TOLERANCE * float(largest_KS.sum())
