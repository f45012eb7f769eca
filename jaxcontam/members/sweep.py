"""Share of tokens for Min-K%, chosen on texts that are not judged by it.

Dimension key
    N  texts
    M  shares
"""

from collections.abc import Sequence

import numpy as np

from jaxcontam.data.documents import codes_of
from jaxcontam.members.result import Sweep
from jaxcontam.members.score import ScoreMethod
from jaxcontam.members.token_scores import min_k_at
from jaxcontam.stats.roc import auc_delong

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""The sweep of the paper."""


def sweep_methods() -> list[ScoreMethod]:
    """Min-K% at each share; one pass serves them all."""
    return [min_k_at(fraction) for fraction in FRACTIONS]


def sweep_min_k(
    names: Sequence[str],
    values_NM: np.ndarray,
    is_member_N: np.ndarray,
    *,
    seed: int,
    clusters: Sequence[object] | np.ndarray | None = None,
) -> Sweep:
    """Choose a share on a random half of the texts and judge it on the other half.

    Both classes are split in two; texts of one cluster stay together, with the class
    that most of them have. Choosing and judging on the same texts would find the
    luckiest share, not the best. A row that holds NaN takes no part; copies of one text
    are a document, too.

    Returns:
        The share with the highest AUC on the held-out half, the first of equals, and
        its AUC on the other half, which the choice does not inflate.

    Source:
        Shi et al., arXiv:2310.16789, section 4: k of 10 to 50 swept on held-out texts.
    """
    N, M = values_NM.shape
    if len(names) != M or is_member_N.shape != (N,):
        raise ValueError(
            f"names and labels must fit values of {(N, M)}, "
            f"got {len(names)} and {is_member_N.shape}"
        )
    is_scored_N = np.asarray(np.isfinite(values_NM).all(axis=1))
    is_held_out_N = halves(is_member_N, is_scored_N, seed=seed, clusters=clusters)
    chosen_on, judged_on = is_held_out_N, is_scored_N & ~is_held_out_N
    codes_N = np.arange(N) if clusters is None else codes_of(clusters)
    unit = "" if clusters is None else "documents of "
    for part in (chosen_on, judged_on):
        for label in (True, False):
            if len(np.unique(codes_N[part & (is_member_N == label)])) < 2:
                raise ValueError(
                    f"each half must hold 2 {unit}members and 2 {unit}non-members"
                )

    def auc(column: int, part_N: np.ndarray) -> tuple[float, float]:
        own, others = part_N & is_member_N, part_N & ~is_member_N
        scores_N = values_NM[:, column]
        sides = None if clusters is None else (codes_N[own], codes_N[others])
        return auc_delong(scores_N[own], scores_N[others], clusters=sides)

    held_out_M = np.array([auc(column, chosen_on)[0] for column in range(M)])
    best = int(held_out_M.argmax())
    judged, se = auc(best, judged_on)
    return Sweep(
        held_out_aucs=dict(zip(names, held_out_M.tolist(), strict=True)),
        chosen=names[best],
        auc=judged,
        auc_se=se,
    )


def halves(
    is_member_N: np.ndarray,
    among_N: np.ndarray,
    *,
    seed: int,
    clusters: Sequence[object] | np.ndarray | None = None,
) -> np.ndarray:
    """(N,) bool, a random half of the clusters of each class; the larger if odd."""
    places = np.flatnonzero(among_N)
    of_cluster: dict[object, list[int]] = {}
    for i in places.tolist():
        of_cluster.setdefault(i if clusters is None else clusters[i], []).append(i)
    rng = np.random.default_rng(seed)
    is_held_out_N = np.zeros(len(is_member_N), bool)
    groups = list(of_cluster.values())
    for label in (True, False):
        own = [g for g in groups if (2 * is_member_N[g].sum() >= len(g)) == label]
        for index in rng.permutation(len(own))[: -(-len(own) // 2)]:
            is_held_out_N[own[index]] = True
    return is_held_out_N
