"""Order tests of the file on blind matrices, which no model made.

The statistics of the order tests, on pair matrices of a scorer that cannot have seen
the file. Attraction says that the order is not random: a test that needs a random
order then proves nothing. Direction says that the file itself points forward: a test
that needs no more than a reversible order proves nothing either.

Dimension key
    K  strata (blocks of the copying scorer)
    S  rows of a stratum
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.stats.adjacency import FEWEST_EXAMPLES, double_centred
from jaxcontam.stats.multiple import shared_sums
from jaxcontam.stats.pretests.attraction import (
    OPEN,
    Attraction,
    attraction_of,
    draws_of,
    far_apart,
    two_sided_p,
)
from jaxcontam.stats.pretests.copying import KINDS, Kind, matrices_of, read_tokens
from jaxcontam.stats.pretests.null import gate, moved_rows
from jaxcontam.stats.randomisation import MODEL_TOLERANCE
from jaxcontam.stats.result import Pretest

# Fewer strata than this have fewer rows each where only their signs count.
_STRATA = 40
SMALL = 5


def blind_pretests(
    texts: Sequence[str],
    *,
    groups: Sequence[object] | None = None,
    blocks: Sequence[object] | None = None,
    seed: int = 0,
) -> tuple[Pretest, ...]:
    """Attraction and direction of the file's own order, in nats, with no model.

    Four rows for each kind of copying scorer: `blind_attraction` (neighbours, as the
    `adjacency` test), `blind_lags` (the distance of 2 to 7 rows that stands out most,
    before and after), `blind_runs` (neighbours against rows of other parts of the file)
    and `blind_direction` (forward against backward). All are two-sided: turns of a
    dialogue repel each other. Attraction assumes that rows of a stratum could have had
    any order, direction that strata could have been reversed. Rows pass or not by Holm
    over these alone; see `gate`.
    """
    rows, codes_N = moved_rows(texts, groups, blocks)
    found = [
        test for kind in KINDS for test in _of_kind(rows, codes_N, kind, seed=seed)
    ]
    return gate(found)


def direction_of(
    matrices: Sequence[np.ndarray],
    codes: Sequence[np.ndarray] | None = None,
    *,
    seed: int = 0,
) -> Attraction:
    """Forward minus backward of pair matrices, against the signs of their strata.

    Null hypothesis: each stratum was as likely to stand the other way round, given its
    contents; with groups, each group of a stratum. Natural order attracts both ways and
    leaves it true. Strata of fewer than 4 rows are left out.

    Returns:
        Half the mean difference a boundary, in nats, above 0 where it points forward.
    """
    differences: list[float] = []
    n_boundaries, ties = 0, 0.0
    sizes = [len(matrix_SS) for matrix_SS in matrices]
    for size in sorted(set(sizes)):
        if size < FEWEST_EXAMPLES:
            continue
        used = [k for k, own in enumerate(sizes) if own == size]
        pairs_KSS = np.stack([matrices[k] for k in used])
        ties += 2 * MODEL_TOLERANCE * float(np.abs(pairs_KSS).max(axis=(1, 2)).sum())
        n_boundaries += len(used) * (size - 1)
        for k, centred_SS in zip(used, double_centred(pairs_KSS), strict=True):
            turned_S = _turned(size, None if codes is None else codes[k])
            forward = centred_SS.trace(1)
            backward = centred_SS[turned_S[:-1], turned_S[1:]].sum()
            differences.append(float(forward - backward))
    if math.fsum(map(abs, differences)) <= ties:
        return Attraction(0.0, 1.0, applicable=False)
    columns_KM = np.outer(differences, [1.0, -1.0])
    p_value = 1.0
    for n_draws in draws_of(len(differences)):
        drawn = shared_sums(columns_KM[None], n_draws=n_draws, seed=seed)[0]
        p_value = two_sided_p(drawn, columns_KM, ties)
        if p_value > OPEN:
            break
    return Attraction(math.fsum(differences) / (2 * n_boundaries), p_value)


def _of_kind(
    rows: list[str], codes_N: np.ndarray, kind: Kind, *, seed: int
) -> list[Pretest]:
    tokens = read_tokens(rows, kind)
    matrices = matrices_of(tokens, kind)
    codes = _split(codes_N, matrices)
    near, far = attraction_of(matrices, codes, seed=seed)
    order = far_apart(len(rows))
    apart = matrices_of(tokens.rows(order), kind)
    runs, _ = attraction_of(apart, _split(codes_N[order], apart), seed=seed)
    if len(matrices) < _STRATA:
        # Smaller strata before fewer signs: 2 ^ -K must not bind.
        matrices = matrices_of(tokens, kind, size=SMALL)
        codes = _split(codes_N, matrices)
    found = {
        "attraction": near,
        "lags": far,
        "runs": runs,
        "direction": direction_of(matrices, codes, seed=seed),
    }
    return [
        one.row(f"blind_{what}:{kind}", directional=what == "direction")
        for what, one in found.items()
    ]


def _split(codes_N: np.ndarray, matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Codes of the rows of each matrix."""
    ends = np.cumsum([len(matrix_SS) for matrix_SS in matrices])
    return np.split(codes_N, ends[:-1]) if matrices else []


def _turned(size: int, codes_S: np.ndarray | None) -> np.ndarray:
    """(S,) positions of a stratum with each of its groups the other way round."""
    if codes_S is None:
        return np.arange(size)[::-1]
    turned_S = np.arange(size)
    for code in np.unique(codes_S):
        places = np.flatnonzero(codes_S == code)
        turned_S[places] = places[::-1]
    return turned_S
