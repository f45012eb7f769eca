"""What the file's own order gives without any model: order tests on blind matrices.

The statistics of the order tests, on pair matrices of a scorer that cannot have seen
the file. Attraction says that the order is not random: a test that needs a random
order then proves nothing. Direction says that the file itself points forward: a test
that only needs a reversible order proves nothing either.

Dimension key
    K  strata (blocks of the copying scorer)
    S  rows of a stratum
    M  columns of a stratum, the published order first
    Q  statistics
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.special

from jaxcontam.results import Pretest
from jaxcontam.stats.adjacency import (
    FEWEST_EXAMPLES,
    boundaries_matrix,
    double_centred,
)
from jaxcontam.stats.all_orders import MOST_ENUMERATED, stratum_orders
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.max_t import max_t, shared_sums
from jaxcontam.stats.pretests.copying import BLOCK, KINDS, Kind, blind_matrices
from jaxcontam.stats.pretests.gate import gate
from jaxcontam.stats.pretests.null import permutation_p, value_codes
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, power_of_ten

# Columns of all strata together; more of them only sharpen the law of few strata.
_COLUMNS = 2**17
_FEWEST_COLUMNS = 40
# Draws of the sum over strata: all of them only where the first ones are evidence.
_FIRST_DRAWS, _DRAWS = 999, 9_999
_OPEN = 0.05
# So many draws as extreme as the published order are needed to tell its p-value.
_RESOLVED = 10
# Sums over no more strata than this are counted exactly.
_FEW_STRATA = 24
_FURTHER = range(2, BLOCK)


@dataclasses.dataclass(frozen=True, slots=True)
class BlindDirection:
    """How far blind matrices point forward.

    Attributes:
        statistic: Nats a boundary: half of forward minus backward, centred.
        p_value: Two-sided, over the signs of all strata; 1 if nothing varies.
        applicable: Whether any stratum has a direction.
    """

    statistic: float
    p_value: float
    applicable: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Strata:
    """Double-centred matrices of one size and one pattern of groups.

    Attributes:
        centred: (K, S, S) float64.
        table: (M, S) all orders that keep to groups, the published one first.
        tolerance: Sums that differ by no more are ties.
    """

    centred: np.ndarray
    table: np.ndarray
    tolerance: float


def blind_pretests(
    texts: Sequence[str],
    *,
    groups: Sequence[object] | None = None,
    blocks: Sequence[object] | None = None,
    seed: int = 0,
) -> tuple[Pretest, ...]:
    """Attraction and direction of the file's own order, with no model.

    Of each kind of copying scorer three rows: `blind_attraction` (neighbours, as the
    `adjacency` test), `blind_lags` (rows 2 to 7 places apart, the best lag, before or
    after) and `blind_direction` (forward against backward, as the `direction` test).
    All are two-sided; turns of a dialogue repel each other. Attraction is exact under
    exchangeability within strata, direction under reversibility of each stratum.

    Args:
        texts: Rows in published order.
        groups: Move rows only among positions of equal value.
        blocks: Take runs of equal value as rows.
        seed: Seeds the drawn orders.

    Returns:
        Rows with `passed` as Holm over these alone says; see `gate`.

    Raises:
        ValueError: If both groups and blocks are given.
    """
    if groups is not None and blocks is not None:
        raise ValueError("groups and blocks must not both be given")
    rows = list(texts) if blocks is None else _joined(texts, blocks)
    codes_N = value_codes([None] * len(rows) if groups is None else groups)
    found: list[Pretest] = []
    for kind in KINDS:
        matrices = blind_matrices(rows, kind)
        found += _of_matrices(matrices, codes_N, kind, seed)
    return gate(found)


def direction_of(
    matrices: Sequence[np.ndarray], codes: Sequence[np.ndarray] | None = None
) -> BlindDirection:
    """Forward minus backward of pair matrices, against the signs of their strata.

    Null hypothesis: each stratum was as likely to stand the other way round, given
    its contents; with groups, each group of a stratum. Natural order attracts both
    ways and leaves it true.

    Args:
        matrices: (S, S) each, entry [a, b] log p(b | a) in nats; those of fewer than
            4 rows are left out.
        codes: (S,) of each, the group of each row; None is one group.
    """
    differences, n_boundaries, tolerance = [], 0, 0.0
    for k, matrix_SS in enumerate(matrices):
        size = len(matrix_SS)
        if size < FEWEST_EXAMPLES:
            continue
        centred_SS = double_centred(matrix_SS)
        turned_S = _turned(np.zeros(size) if codes is None else codes[k])
        backward = float(np.trace(centred_SS[np.ix_(turned_S, turned_S)], 1))
        differences.append(float(np.trace(centred_SS, 1)) - backward)
        n_boundaries += size - 1
        tolerance += MODEL_TOLERANCE * float(np.abs(matrix_SS).max())
    if math.fsum(map(abs, differences)) <= tolerance:
        return BlindDirection(0.0, 1.0, False)
    statistic = math.fsum(differences) / (2 * n_boundaries)
    columns_KM = np.array(differences)[:, None] * np.array([1.0, -1.0])
    p_value = 1.0
    for n_draws in (_FIRST_DRAWS, _DRAWS):
        drawn = shared_sums(columns_KM[None], n_draws=n_draws, seed=0)[0]
        p_value = _two_sided(drawn, columns_KM, 2 * tolerance)
        if p_value > _OPEN:
            break
    return BlindDirection(statistic, p_value, True)


def _of_matrices(
    matrices: Sequence[np.ndarray], codes_N: np.ndarray, kind: Kind, seed: int
) -> list[Pretest]:
    ends = np.cumsum([len(matrix_SS) for matrix_SS in matrices])
    codes = np.split(codes_N, ends[:-1]) if len(ends) else []
    direction = direction_of(matrices, codes)
    strata = _strata(matrices, codes)
    names = [f"blind_{what}:{kind}" for what in ("attraction", "lags", "direction")]
    arrow = Pretest(
        name=names[2],
        statistic=direction.statistic,
        p_value=direction.p_value,
        passed=True,
        directional=True,
        applicable=direction.applicable,
    )
    sums_QKM = _path_sums(strata, seed) if strata else np.zeros((1, 1, 1))
    ties = sum(one.tolerance for one in strata)
    if np.ptp(sums_QKM, axis=2).sum() <= ties:
        nothing = Pretest("", 0.0, 1.0, True, applicable=False)
        return [*(dataclasses.replace(nothing, name=n) for n in names[:2]), arrow]
    n_rows_K = np.concatenate(
        [np.full(len(one.centred), one.table.shape[1]) for one in strata]
    )
    found = []
    for n_draws in (_FIRST_DRAWS, _DRAWS):
        drawn = shared_sums(sums_QKM, n_draws=n_draws, seed=seed)
        found = [
            _attraction(names[0], drawn[0], sums_QKM[0], n_rows_K, ties),
            _best_lag(names[1], drawn[1:], n_rows_K, ties),
        ]
        if min(test.p_value for test in found) > _OPEN:
            break
    return [*found, arrow]


def _strata(
    matrices: Sequence[np.ndarray], codes: Sequence[np.ndarray]
) -> list[_Strata]:
    """Strata with more than one order, those of one pattern together."""
    patterns: dict[bytes, tuple[np.ndarray, list[np.ndarray]]] = {}
    for matrix_SS, codes_S in zip(matrices, codes, strict=True):
        own_S = value_codes(codes_S.tolist()).astype(np.int64)
        if len(own_S) < FEWEST_EXAMPLES or own_S.max() == len(own_S) - 1:
            continue
        patterns.setdefault(own_S.tobytes(), (own_S, []))[1].append(matrix_SS)
    # All orders of 8 rows are listed, so that nothing is drawn here.
    nothing = np.random.default_rng(0)
    return [
        _Strata(
            np.stack([double_centred(matrix_SS) for matrix_SS in of_pattern]),
            stratum_orders(own_S, nothing),
            MODEL_TOLERANCE * sum(float(np.abs(m).max()) for m in of_pattern),
        )
        for own_S, of_pattern in patterns.values()
    ]


def _path_sums(strata: Sequence[_Strata], seed: int) -> np.ndarray:
    """(Q, K, M) sums at lag 1, then at lags 2, 3, ... before and after together.

    Columns beyond the published one are uniform draws from all orders of a stratum,
    independent of each other, so that under the null all M are exchangeable.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    K = sum(len(one.centred) for one in strata)
    M = min(MOST_ENUMERATED, max(_FEWEST_COLUMNS, _COLUMNS // K))
    sums_QKM = np.zeros((1 + len(_FURTHER), K, M))
    k = 0
    for one in strata:
        n_orders, S = one.table.shape
        both = one.centred + one.centred.transpose(0, 2, 1)
        # So many strata at once that their columns stay in cache.
        step = max(1, 2**17 // M)
        for start in range(0, len(one.centred), step):
            some = slice(start, start + step)
            n_some = len(one.centred[some])
            drawn_KM = rng.integers(n_orders, size=(n_some, M))
            drawn_KM[:, 0] = 0
            orders_SKM = one.table.T[:, drawn_KM]
            base_K1 = np.arange(n_some)[:, None] * S * S
            of_lag = sums_QKM[:, k : k + n_some]
            for lag in range(1, S):
                flat = (one.centred if lag == 1 else both)[some].ravel()
                for i in range(S - lag):
                    cells_KM = base_K1 + orders_SKM[i] * S + orders_SKM[i + lag]
                    of_lag[lag - 1] += flat[cells_KM]
            k += n_some
    return sums_QKM


def _attraction(
    name: str, drawn: np.ndarray, sums_KM: np.ndarray, n_rows_K: np.ndarray, ties: float
) -> Pretest:
    gains = {
        size: float(np.trace(boundaries_matrix(size), 1))
        for size in set(n_rows_K.tolist())
    }
    n_gained = sum(gains[size] for size in n_rows_K.tolist())
    gain = float((sums_KM[:, 0] - sums_KM.mean(axis=1)).sum())
    p_value = _two_sided(drawn, sums_KM, ties)
    return Pretest(name, gain / n_gained, p_value, True)


def _best_lag(
    name: str, drawn_Q: np.ndarray, n_rows_K: np.ndarray, ties: float
) -> Pretest:
    # Likeness and its opposite: the larger of both signs is two-sided.
    best = max_t(np.concatenate([drawn_Q, -drawn_Q]), tolerances=ties)
    at = best.winner % len(_FURTHER)
    n_pairs = int(2 * np.maximum(n_rows_K - _FURTHER[at], 0).sum())
    return Pretest(name, float(drawn_Q[at, 0]) / n_pairs, best.p_value, True)


def _two_sided(drawn: np.ndarray, columns_KM: np.ndarray, ties: float) -> float:
    """That a sum of random columns is as far from its mean as the published one is.

    Few strata are summed exactly. Of many the first draws decide where they are no
    evidence, and where so few of all draws are as far that they no longer tell how
    small the p-value is, the sum over strata is taken as normal.

    Args:
        drawn: (B + 1,) sums, the published one first.
        columns_KM: What each stratum's is drawn from, the published one first.
        ties: Sums that differ by no more are ties.
    """
    if len(columns_KM) <= _FEW_STRATA:
        rows = columns_KM - columns_KM[:, :1]
        tails = [lattice_tail(sign * rows, ties).log10_upper for sign in (1.0, -1.0)]
        return min(1.0, 2 * power_of_ten(min(tails)))
    p_value = permutation_p(float(drawn[0]), drawn[1:], two_sided=True)
    if p_value > _RESOLVED / len(drawn):
        return p_value
    variance = float(columns_KM.var(axis=1).sum())
    gap = abs(float((columns_KM[:, 0] - columns_KM.mean(axis=1)).sum())) - ties
    log_p = math.log(2) + float(scipy.special.log_ndtr(-gap / math.sqrt(variance)))
    return min(p_value, power_of_ten(log_p / math.log(10)))


def _turned(codes_S: np.ndarray) -> np.ndarray:
    """(S,) positions of a stratum with each of its groups the other way round."""
    turned_S = np.arange(len(codes_S))
    for code in np.unique(codes_S):
        places = np.flatnonzero(codes_S == code)
        turned_S[places] = places[::-1]
    return turned_S


def _joined(texts: Sequence[str], blocks: Sequence[object]) -> list[str]:
    """Texts of each run of equal value, one below the other."""
    codes_N = value_codes(blocks)
    starts = np.flatnonzero(np.diff(codes_N, prepend=-1)).tolist()
    ends = [*starts[1:], len(texts)]
    return [
        "\n".join(texts[start:end]) for start, end in zip(starts, ends, strict=True)
    ]
