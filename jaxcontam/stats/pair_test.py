"""Exact test of pair matrices: are published neighbours expected after each other?

The statistic is the sum of centred entries between neighbours. All orders of a short
stratum, or 100,000 of a longer one, are its columns, for which no model is asked, so
the p-value is exact and hardly bounded from below.

Dimension key
    Q  choices of how many tokens of each example count
    K  strata
    S  examples of the largest stratum
    M  columns of a stratum, the published order first
    B  Monte Carlo re-draws
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from jaxcontam.results import OrderNumbers
from jaxcontam.stats.adjacency import (
    boundaries_matrix,
    double_centred,
    lag_profile,
    path_moments,
    path_sums,
    symmetry,
)
from jaxcontam.stats.all_orders import stratum_orders
from jaxcontam.stats.effect import mde_of
from jaxcontam.stats.evalue import LAMBDAS
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.max_t import max_t
from jaxcontam.stats.places import row_generator
from jaxcontam.stats.randomisation import (
    LOG10_E_MAX,
    MODEL_TOLERANCE,
    N_MONTE_CARLO,
    SMALLEST_P,
    power_of_ten,
)

# Path sums are read several times. So many are kept (16 MB); more are made again.
_MOST_KEPT = 2**21


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairStrata:
    """Pair matrices of a file, and which orders of each stratum they are tested on.

    Attributes:
        pairs: (Q, K, S, S) float64, nats; entry [i, j] is log p(example j | example i)
            over the first tokens of j; short strata are padded with 0.
        first_tokens: (Q,) int64, tokens of an example that count after those that all
            examples share; -1 is all of them.
        sizes: (K,) int64, examples of each stratum, at least 4.
        codes: (K, S) int64, the group of each example; orders keep to groups.
        starts: (K,) int64, index of the first example; seeds the stratum's draws.
    """

    pairs: np.ndarray
    first_tokens: np.ndarray
    sizes: np.ndarray
    codes: np.ndarray
    starts: np.ndarray

    @property
    def n_strata(self) -> int:
        """K."""
        return len(self.sizes)

    def centred(self, q: int) -> list[np.ndarray]:
        """Double-centred matrices of one choice of tokens."""
        return [
            double_centred(matrix[:size, :size])
            for matrix, size in zip(self.pairs[q], self.sizes.tolist(), strict=True)
        ]


def adjacency_test(
    strata: PairStrata, *, seed: int, content_digest: str
) -> OrderNumbers:
    """Exact p-value that published neighbours are this expected by chance.

    Null hypothesis: within each stratum every order (of those that keep to groups)
    was equally likely to be the published one. Finite-sample exact, with ties and with
    a constant scorer (p = 1). Blind to copies in other orders, and to memory that
    needs more than one example of context.

    One choice of tokens is tested by the exact law of the sum over strata. Of several
    the best standardised statistic is tested (max-T) on shared draws, so the choice
    costs no validity; its p-value is not below 1 / 100,000.

    Args:
        strata: Pair matrices and orders.
        seed: The run's seed.
        content_digest: `sha256:...` of the sorted example digests.

    Raises:
        ValueError: If an entry is not finite.

    Source:
        Exchangeability as in Oren et al., arXiv:2310.17623; the path statistic is a
        doubly indexed permutation statistic in the line of Wald and Wolfowitz (1943).
    """
    if not np.isfinite(strata.pairs).all():
        raise ValueError("pair matrices must be finite")
    columns = _Columns(strata, seed, content_digest)
    found = [_summary(columns, q) for q in range(len(strata.pairs))]
    tolerances = [_tolerance(strata, q) for q in range(len(found))]
    if len(found) == 1:
        (best,) = found
        tail = lattice_tail(
            (sums_M - sums_M[0] for sums_M in columns.sums(0)),
            tolerances[0],
        )
        log10_floor = best.log10_floor
        log10_p = min(0.0, max(tail.log10_upper, log10_floor))
        log10_lower = min(log10_p, max(tail.log10_lower, log10_floor))
        p_lower = power_of_ten(log10_lower)
        p_monte_carlo = _monte_carlo_p(best, tolerances[0])
        e_value = 10.0 ** min(best.log_e / math.log(10), LOG10_E_MAX)
    else:
        chosen = max_t(
            np.stack([np.append(one.statistic, one.drawn_B) for one in found]),
            tolerances=np.array(tolerances),
        )
        best, p_monte_carlo = found[chosen.winner], chosen.p_value
        log10_p = math.log10(p_monte_carlo)
        log10_floor = max(best.log10_floor, -math.log10(N_MONTE_CARLO + 1))
        p_lower, e_value = None, None
    p_floor = power_of_ten(log10_floor)
    index = found.index(best)
    gains = best.boundaries > 0
    effect = best.gain / best.boundaries if gains else None
    effect_se = best.sd / best.boundaries if gains else None
    differs = best.sd > tolerances[index]
    centred = strata.centred(index)
    return OrderNumbers(
        statistic=best.statistic,
        p_value=power_of_ten(log10_p),
        log10_p=log10_p,
        p_lower=p_lower,
        p_monte_carlo=p_monte_carlo,
        p_floor=p_floor,
        e_value=e_value,
        effect=effect,
        effect_se=effect_se,
        mde=mde_of(effect_se, p_floor=p_floor, differs=differs, n_looks=len(found)),
        scores="double-centred",
        first_tokens=int(strata.first_tokens[index]),
        symmetry=symmetry(centred),
        lag_profile=lag_profile(centred),
    )


def adjacency_normal_test(
    strata: PairStrata, *, seed: int, content_digest: str
) -> OrderNumbers:
    """The same statistic against its normal approximation, in closed form.

    Mean and variance over all orders of a stratum need no order at all, so this
    works at any stratum size. A tail beyond 1e-15 is no number to quote. Only for
    strata without groups, whose orders are all S! ones.

    Args:
        strata: Pair matrices; the first choice of tokens counts.
        seed: Unused: nothing is drawn.
        content_digest: Unused.

    Raises:
        ValueError: If an entry is not finite or orders keep to groups.

    Source:
        Combinatorial central limit theorem for path statistics; moments as in
        `path_moments`.
    """
    from scipy import stats

    if not np.isfinite(strata.pairs).all():
        raise ValueError("pair matrices must be finite")
    if any(
        len(np.unique(codes_S[:size])) > 1
        for codes_S, size in zip(strata.codes, strata.sizes, strict=True)
    ):
        raise ValueError("closed-form moments are those of strata without groups")
    centred = strata.centred(0)
    moments = [path_moments(matrix) for matrix in centred]
    sd = math.sqrt(sum(variance for _, variance in moments))
    statistic = sum(float(np.trace(matrix, 1)) for matrix in centred)
    boundaries = sum(
        float(np.trace(boundaries_matrix(int(size)), 1)) for size in strata.sizes
    )
    differs = sd > _tolerance(strata, 0)
    log_p = float(stats.norm.logsf(statistic / sd)) if differs else 0.0
    effect_se = sd / boundaries
    return OrderNumbers(
        statistic=statistic / sd if differs else 0.0,
        p_value=max(math.exp(log_p), SMALLEST_P),
        log10_p=log_p / math.log(10),
        p_lower=None,
        p_monte_carlo=None,
        p_floor=None,
        e_value=None,
        effect=statistic / boundaries,
        effect_se=effect_se,
        mde=mde_of(effect_se, p_floor=None, differs=differs),
        scores="double-centred",
        first_tokens=int(strata.first_tokens[0]),
        symmetry=symmetry(centred),
        lag_profile=lag_profile(centred),
    )


def drawn_sums(
    strata: PairStrata, *, seed: int, content_digest: str, n_draws: int, q: int = 0
) -> np.ndarray:
    """(n_draws,) of the statistic with a random order in each stratum, for plots."""
    columns = _Columns(strata, seed, content_digest)
    rng = row_generator(seed, content_digest, 1)
    sums_B = np.zeros(n_draws)
    for sums_M in columns.sums(q):
        sums_B += sums_M[rng.integers(len(sums_M), size=n_draws)]
    return sums_B


def sampled_columns(
    strata: PairStrata, *, seed: int, content_digest: str, n_orders: int, q: int = 0
) -> list[np.ndarray]:
    """(n_orders + 1,) centred path sums of each stratum, the published order's first.

    The others are random ones of the stratum's columns, drawn with replacement, so
    all are exchangeable under the null.
    """
    columns = _Columns(strata, seed, content_digest)
    rng = row_generator(seed, content_digest, 2)
    rows = []
    for sums_M in columns.sums(q):
        drawn = rng.integers(len(sums_M), size=n_orders)
        rows.append(np.concatenate([sums_M[:1], sums_M[drawn]]))
    return rows


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Summary:
    """What one pass over all columns gives, for one choice of tokens."""

    statistic: float
    gain: float
    boundaries: float
    sd: float
    log_e: float
    log10_floor: float
    drawn_B: np.ndarray


class _Columns:
    """Path sums of every stratum's orders; kept where they are not too many."""

    def __init__(self, strata: PairStrata, seed: int, content_digest: str):
        self.strata = strata
        self.seed = seed
        self.content_digest = content_digest
        self._kept: dict[int, list[np.ndarray]] = {}
        self._boundaries: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def orders(self) -> Iterator[np.ndarray]:
        """(M, S) positions of each stratum; the same ones at each call."""
        rows = zip(
            self.strata.sizes.tolist(),
            self.strata.codes,
            self.strata.starts.tolist(),
            strict=True,
        )
        for size, codes_S, start in rows:
            rng = row_generator(self.seed, self.content_digest, 0, start)
            yield stratum_orders(codes_S[:size], rng)

    def sums(self, q: int) -> Iterator[np.ndarray]:
        """(M,) centred path sums of each stratum, not to be written to."""
        if q in self._kept:
            yield from self._kept[q]
            return
        found: list[np.ndarray] = []
        n_columns, most = 0, _MOST_KEPT // len(self.strata.pairs)
        for matrix, orders_MS in zip(
            self.strata.centred(q), self.orders(), strict=True
        ):
            sums_M = path_sums(matrix, orders_MS)
            n_columns += len(sums_M)
            if n_columns <= most:
                found.append(sums_M)
            else:
                found.clear()
            yield sums_M
        if n_columns <= most:
            self._kept[q] = found

    def boundaries(self, orders_MS: np.ndarray) -> np.ndarray:
        """(M,) of what a gain at each published boundary would add to the sums."""
        # Strata of one size share the very array of their orders, where all are listed;
        # it is held here, so that no other array can come to have its id.
        known = self._boundaries.get(id(orders_MS))
        if known is not None:
            return known[1]
        kept_M = path_sums(boundaries_matrix(orders_MS.shape[1]), orders_MS)
        if not orders_MS.flags.writeable:
            self._boundaries[id(orders_MS)] = (orders_MS, kept_M)
        return kept_M


def _summary(columns: _Columns, q: int) -> _Summary:
    strata = columns.strata
    statistic = gain = boundaries = variance = log10_floor = 0.0
    # The same draws for every choice of tokens, as max-T needs.
    rng = row_generator(columns.seed, columns.content_digest, 1)
    drawn_B = np.zeros(N_MONTE_CARLO)
    centred = strata.centred(q)
    pooled = math.sqrt(
        sum(path_moments(matrix)[1] for matrix in centred) / strata.n_strata
    )
    log_e_L = np.zeros(len(LAMBDAS))
    for sums_M, orders_MS in zip(columns.sums(q), columns.orders(), strict=True):
        kept_M = columns.boundaries(orders_MS)
        statistic += float(sums_M[0])
        gain += float(sums_M[0] - sums_M.mean())
        boundaries += float(kept_M[0] - kept_M.mean())
        variance += float(sums_M.var())
        log10_floor -= math.log10(len(sums_M))
        drawn_B += sums_M[rng.integers(len(sums_M), size=N_MONTE_CARLO)]
        if pooled > 0:
            log_e_L += _log_bets(sums_M / pooled)
    return _Summary(
        statistic=statistic,
        gain=gain,
        boundaries=boundaries,
        sd=math.sqrt(variance),
        log_e=float(np.logaddexp.reduce(log_e_L)) - math.log(len(LAMBDAS)),
        log10_floor=log10_floor,
        drawn_B=drawn_B,
    )


def _log_bets(scaled_M: np.ndarray) -> np.ndarray:
    """(L,) log of exp(lambda a_0) / mean_j exp(lambda a_j) of one stratum."""
    bets_LM = LAMBDAS[:, None] * scaled_M[None, :]
    top_L = bets_LM.max(axis=1)
    return bets_LM[:, 0] - top_L - np.log(np.exp(bets_LM - top_L[:, None]).mean(axis=1))


def _monte_carlo_p(one: _Summary, tolerance: float) -> float:
    n_as_large = np.count_nonzero(one.drawn_B >= one.statistic - tolerance)
    return (1 + int(n_as_large)) / (1 + N_MONTE_CARLO)


def _tolerance(strata: PairStrata, q: int) -> float:
    """Sums that differ by no more are ties: no order has a larger raw sum than this."""
    largest_KS = np.abs(strata.pairs[q]).max(axis=2)
    return MODEL_TOLERANCE * float(largest_KS.sum())
