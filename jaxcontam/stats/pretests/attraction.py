"""Are neighbours of a file more alike than chance gives? Pair matrices, many strata.

The statistic of `adjacency`, and the same for rows further apart, two-sided and quick
at any number of strata.

Dimension key
    K  strata
    S  rows of a stratum
    M  columns of a stratum, the published order first
    Q  statistics
    B  re-draws
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.adjacency import FEWEST_EXAMPLES, boundaries_matrix, double_centred
from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.multiple import MaxTResult, max_t, shared_sums
from jaxcontam.stats.pair_test import MOST_ENUMERATED, stratum_orders
from jaxcontam.stats.pretests.null import permutation_p, value_codes
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, power_of_ten
from jaxcontam.stats.result import Pretest

STRATUM = 8
"""Most rows of a stratum, all of whose orders are listed."""

OPEN = 0.05
"""A p-value above it stays as the first draws gave it."""
RESOLVED = 10
"""So many draws as extreme as the published order are needed to tell its p-value."""

# Sums over no more strata than this are counted exactly.
_FEW_STRATA = 24
_FURTHER = range(2, STRATUM)


@dataclasses.dataclass(frozen=True, slots=True)
class Attraction:
    """Excess likeness, or expectedness, of neighbours over other pairs of a stratum.

    The statistic, in units of the matrices, is above 0 where they attract; the p-value
    is two-sided, 1 if nothing varies.
    """

    statistic: float
    p_value: float
    applicable: bool = True

    def row(self, name: str, *, directional: bool) -> Pretest:
        """A check of this name, before `gate`."""
        return Pretest(
            name=name,
            statistic=self.statistic,
            p_value=self.p_value,
            passed=True,
            directional=directional,
            applicable=self.applicable,
        )


_NOTHING = Attraction(0.0, 1.0, applicable=False)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Strata:
    """Double-centred matrices of strata of one size and one pattern of groups.

    `table` (S, S!) holds the orders that keep to groups, the published one first.
    """

    centred: np.ndarray
    table: np.ndarray
    ties: float


def attraction_of(
    matrices: Sequence[np.ndarray], codes: Sequence[np.ndarray], *, seed: int = 0
) -> tuple[Attraction, Attraction]:
    """Attraction of neighbours, and of rows at the further distance that stands out.

    Null hypothesis: within each stratum every order (of those that keep to groups) was
    equally likely. Neighbours count as in `adjacency`; further distances, 2 to 7, both
    ways together, the best by max-T. P-values are permutation p-values; of many strata
    those that are too small for the draws come from a normal law. Blind to likeness of
    whole strata; see `far_apart`. Strata have at most 8 rows; those of fewer than 4 are
    left out. The statistics: mean gain a boundary of neighbours over a random order,
    and mean centred entry at the best distance.
    """
    strata = _strata(matrices, codes)
    if not strata:
        return _NOTHING, _NOTHING
    sums_QKM = _path_sums(strata, seed)
    ties = sum(one.ties for one in strata)
    if np.ptp(sums_QKM, axis=2).sum() <= ties:
        return _NOTHING, _NOTHING
    n_rows_K = np.concatenate(
        [np.full(len(one.centred), one.centred.shape[1]) for one in strata]
    )
    sums_KM, sizes = sums_QKM[0], n_rows_K.tolist()
    gains = {size: float(np.trace(boundaries_matrix(size), 1)) for size in set(sizes)}
    gain = float((sums_KM[:, 0] - sums_KM.mean(axis=1)).sum())
    near, far = _NOTHING, _NOTHING
    for n_draws in draws_of(len(n_rows_K)):
        drawn = shared_sums(sums_QKM, n_draws=n_draws, seed=seed)
        p_value = two_sided_p(drawn[0], sums_KM, ties)
        near = Attraction(gain / sum(gains[size] for size in sizes), p_value)
        # Likeness and its opposite: the larger of both signs is two-sided.
        drawn_QB = drawn[1:]
        best = max_t(np.concatenate([drawn_QB, -drawn_QB]), tolerances=ties)
        at = best.winner % len(_FURTHER)
        n_pairs = int(2 * np.maximum(n_rows_K - _FURTHER[at], 0).sum())
        p_value = law_of_best(best, len(_FURTHER), n_draws, len(n_rows_K))
        far = Attraction(float(drawn_QB[at, 0]) / n_pairs, p_value)
        if min(near.p_value, far.p_value) > OPEN:
            break
    return near, far


def far_apart(n: int) -> np.ndarray:
    """Rows of strata that hold two neighbours from each quarter of a file.

    Contiguous strata of a file in long runs hold one run each, and no order of theirs
    differs from another. Here neighbours are compared with rows of other quarters::

        0 1 4 5 8 9 12 13 | 2 3 6 7 10 11 14 15    of 16 rows

    Gives (8K,) int64, stratum by stratum; up to 7 rows at the end are in none.
    """
    pairs_K = 2 * np.arange(n // STRATUM)
    quarter = 2 * (n // STRATUM)
    return np.concatenate(
        [(pairs_K[:, None] + q * quarter + np.arange(2)) for q in range(4)], axis=1
    ).ravel()


def draws_of(n_strata: int) -> tuple[int, int]:
    """Number of draws for a first look, and for the rest.

    Long files have fewer.
    """
    return 499, min(9_999, max(999, 2**24 // n_strata))


def two_sided_p(drawn_B: np.ndarray, columns_KM: np.ndarray, ties: float) -> float:
    """Probability that a sum of random columns is as far from its mean as `drawn[0]`.

    Few strata are summed exactly. Where too few draws are as far, the sum over strata
    is taken as normal. Column 0 is the published one.
    """
    if len(columns_KM) <= _FEW_STRATA:
        rows = columns_KM - columns_KM[:, :1]
        tails = [lattice_tail(sign * rows, ties).log10_upper for sign in (1.0, -1.0)]
        return min(1.0, 2 * power_of_ten(min(tails)))
    p_value = permutation_p(float(drawn_B[0]), drawn_B[1:], two_sided=True)
    if p_value > RESOLVED / len(drawn_B):
        return p_value
    gap = abs(float((columns_KM[:, 0] - columns_KM.mean(axis=1)).sum())) - ties
    sd = math.sqrt(float(columns_KM.var(axis=1).sum()))
    return min(p_value, normal_two_sided(gap / sd))


def law_of_best(best: MaxTResult, n: int, n_draws: int, n_strata: int) -> float:
    """p-value of the best of n statistics of both signs, as in `two_sided_p`.

    Too small for the draws it is n times that of a normal law (Bonferroni).
    """
    if n_strata <= _FEW_STRATA or best.p_value > RESOLVED / (1 + n_draws):
        return best.p_value
    return min(best.p_value, n * normal_two_sided(best.statistic))


def normal_two_sided(z: float) -> float:
    """Probability that a standard normal is as far from 0, not below 1e-300."""
    from scipy.special import log_ndtr

    return min(1.0, 2 * power_of_ten(float(log_ndtr(-abs(z))) / math.log(10)))


def _strata(
    matrices: Sequence[np.ndarray], codes: Sequence[np.ndarray]
) -> list[_Strata]:
    """Strata with more than one order, those of one pattern together."""
    known: dict[bytes, np.ndarray] = {}
    patterns: dict[bytes, tuple[np.ndarray, list[np.ndarray]]] = {}
    for matrix_SS, codes_S in zip(matrices, codes, strict=True):
        # Without groups all strata are alike.
        written = codes_S.tobytes()
        if written not in known:
            known[written] = value_codes(codes_S.tolist()).astype(np.int64)
        own_S = known[written]
        if len(own_S) < FEWEST_EXAMPLES or own_S.max() == len(own_S) - 1:
            continue
        patterns.setdefault(own_S.tobytes(), (own_S, []))[1].append(matrix_SS)
    # All orders of 8 rows are listed: nothing is drawn here.
    unused = np.random.Generator(np.random.PCG64(0))
    found = []
    for own_S, of_pattern in patterns.values():
        pairs_KSS = np.stack(of_pattern)
        largest_K = np.abs(pairs_KSS).max(axis=(1, 2))
        table = np.ascontiguousarray(stratum_orders(own_S, unused).T)
        ties = MODEL_TOLERANCE * float(largest_K.sum())
        found.append(_Strata(double_centred(pairs_KSS), table, ties))
    return found


def _path_sums(strata: Sequence[_Strata], seed: int) -> np.ndarray:
    """(Q, K, M) sums over neighbours, then over rows 2, 3, ... apart, both ways.

    Columns beyond the published one are uniform draws from all orders of a stratum.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    K = sum(len(one.centred) for one in strata)
    # More columns of all strata together only sharpen the law of few strata.
    M = min(MOST_ENUMERATED, max(40, 2**17 // K))
    sums_QKM = np.zeros((1 + len(_FURTHER), K, M))
    # Columns that are looked up at once stay in cache.
    done, step = 0, max(1, 2**17 // M)
    for one in strata:
        S, n_orders = one.table.shape
        for start in range(0, len(one.centred), step):
            centred = one.centred[start : start + step]
            either = centred + centred.transpose(0, 2, 1)
            drawn_KM = rng.integers(n_orders, size=(len(centred), M))
            drawn_KM[:, 0] = 0
            orders_SKM = one.table[:, drawn_KM]
            first_K1 = np.arange(len(centred))[:, None] * S * S
            here = slice(done, done + len(centred))
            for lag in range(1, S):
                flat = (centred if lag == 1 else either).ravel()
                for left_KM, right_KM in zip(
                    orders_SKM[:-lag], orders_SKM[lag:], strict=True
                ):
                    sums_QKM[lag - 1, here] += flat[first_K1 + left_KM * S + right_KM]
            done += len(centred)
    return sums_QKM
