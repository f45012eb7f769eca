"""Rates and curves of scores on known texts.

Operating points and curves of a ranking; the share of tokens for Min-K%, chosen on
texts that are not judged by it; how much of each document looks seen; CoDeC's shares.

Dimension key
    N  texts
    M  scores, or shares of tokens
    P  members
    Q  non-members
"""

from collections.abc import Sequence

import numpy as np

from jaxcontam.data.documents import codes_of
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.members.result import (
    CodecShare,
    DocumentRate,
    DocumentRates,
    OperatingPoint,
    ScorePicture,
    Scores,
    Sweep,
)
from jaxcontam.members.scores import sweep_methods
from jaxcontam.stats.bootstrap import bootstrap, tpr_interval, tpr_statistic
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.roc import (
    Clusters,
    Convention,
    auc_delong,
    best_threshold,
    roc_curve,
    tpr_at_fpr,
)


def operating_point(
    members_P: np.ndarray,
    nonmembers_Q: np.ndarray,
    fpr: float,
    *,
    convention: Convention = "le",
    clusters: Clusters | None = None,
    n_boot: int = 1000,
    seed: int = 0,
) -> OperatingPoint:
    """True-positive rate at a false-positive rate, with an interval of 95 %.

    The interval is that of `tpr_interval`; with documents that of the stratified
    bootstrap, which finds the threshold anew in each resample, and never narrower than
    Wilson's for a given threshold. Nothing is read off where `fpr` times Q is below 1.
    """
    expected = fpr * len(nonmembers_Q)
    tpr = threshold = low = high = None
    if expected >= 1 - 1e-9:
        tpr, threshold = tpr_at_fpr(members_P, nonmembers_Q, fpr, convention)
        if clusters is None:
            low, high = tpr_interval(members_P, nonmembers_Q, fpr)
            # For `lt`, whose threshold is one rank higher, it may miss the rate itself.
            low, high = min(low, tpr), max(high, tpr)
        else:
            statistic, sides = tpr_statistic(fpr, convention), (members_P, nonmembers_Q)
            drawn = bootstrap(
                statistic, *sides, clusters=clusters, n_boot=n_boot, seed=seed
            )
            # Resamples of a rate of 0 are all 0, which is no proof of 0.
            n = len(np.unique(clusters[0]))
            fixed_low, fixed_high = wilson_interval(round(tpr * n), n)
            low, high = min(drawn.low, fixed_low), max(drawn.high, fixed_high)
    return OperatingPoint(
        fpr=fpr,
        convention=convention,
        tpr=tpr,
        tpr_low=low,
        tpr_high=high,
        threshold=threshold,
        expected_false=expected,
    )


def score_pictures(table: Scores, labels_N: np.ndarray) -> tuple[ScorePicture, ...]:
    """Curves and scores of every score, for plots, of the texts that have scores."""
    values_NM = table.values
    scored_N = np.isfinite(values_NM).all(axis=1)
    is_member_N = np.asarray(labels_N, bool)

    def picture(method: str, score_N: np.ndarray) -> ScorePicture:
        members_P = score_N[scored_N & is_member_N]
        others_Q = score_N[scored_N & ~is_member_N]
        fpr_R, tpr_R = roc_curve(members_P, others_Q)
        return ScorePicture(
            method=method,
            auc=float(np.trapezoid(tpr_R, fpr_R)),
            fpr=fpr_R,
            tpr=tpr_R,
            members=members_P,
            nonmembers=others_Q,
        )

    return tuple(map(picture, table.names, values_NM.T))


def swept(
    table: Scores, labels: np.ndarray, clusters: Sequence[str] | None, seed: int
) -> Sweep | None:
    """Min-K%'s best share of tokens, where a run swept it; else None."""
    names = [method.name for method in sweep_methods()]
    if not set(names) <= set(table.names):
        return None
    columns = [table.names.index(name) for name in names]
    try:
        return sweep_min_k(
            names, table.values[:, columns], labels, seed=seed, clusters=clusters
        )
    except ValueError as e:
        raise InputError(
            f"sweep_k: {e}", hint="give more texts, or leave it out"
        ) from e


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
    that most of them have. Of shares with equal AUC the first is chosen. A row that
    holds NaN takes no part; copies of one text are a document, too.

    Source:
        Shi et al., arXiv:2310.16789, section 4: k of 10 to 50 swept on held-out texts.
    """
    N, M = values_NM.shape
    if len(names) != M or is_member_N.shape != (N,):
        raise ValueError(
            f"names and labels must match values of {(N, M)}, got {len(names)} and "
            f"{is_member_N.shape}"
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


def document_rates(
    method: str,
    scores_N: np.ndarray,
    documents: Sequence[str],
    roles: Sequence[str],
    *,
    known_N: np.ndarray,
    asked_N: np.ndarray,
) -> DocumentRates:
    """Fit a cut on the known documents, and rate every document by it.

    A rate is no share of a document that was read: unread documents show rates above 0.

    `known_N` are the texts of known documents that can be compared, `asked_N` those in
    question; a score may be NaN. Rates stand in the order of documents' first texts.

    Source:
        Shi et al., arXiv:2310.16789, section 5. Departures: the accuracy that the cut
        maximises weighs members and non-members the same, which is the paper's where
        there are as many of both; known documents are judged by the cut of the other
        known ones, since that of all was chosen on them.
    """
    role_N = np.array(roles, object)
    is_known = {
        role: known_N & (role_N == role) & np.isfinite(scores_N)
        for role in (MEMBER, NONMEMBER)
    }
    of_document: dict[tuple[str, str], list[int]] = {}
    for i in np.flatnonzero(known_N | asked_N).tolist():
        of_document.setdefault((roles[i], documents[i]), []).append(i)

    def cut(rest_N: np.ndarray) -> tuple[float, float]:
        sides = (scores_N[own_N & rest_N] for own_N in is_known.values())
        found = best_threshold(*sides)
        return found.value, found.accuracy

    threshold, accuracy = cut(np.ones(len(scores_N), bool))
    rates = []
    for (role, name), places in of_document.items():
        own = scores_N[places]
        scored = own[np.isfinite(own)]
        of_others = threshold
        if role != TEXT:
            rest_N = np.ones(len(scores_N), bool)
            rest_N[places] = False
            of_others, _ = cut(rest_N)
        n_above = rate = low = high = None
        if n := len(scored):
            n_above = int(np.count_nonzero(scored >= of_others))
            rate, (low, high) = n_above / n, wilson_interval(n_above, n)
        rates.append(
            DocumentRate(
                document=name,
                role=role,
                n_texts=len(own),
                n_scored=n,
                n_above=n_above,
                rate=rate,
                rate_low=low,
                rate_high=high,
                threshold=of_others,
            )
        )
    shares = {
        role: sum(row.n_above or 0 for row in rates if row.role == role) / own_N.sum()
        for role, own_N in is_known.items()
    }
    tpr, fpr = (float(share) for share in shares.values())
    return DocumentRates(
        method=method,
        threshold=threshold,
        accuracy=accuracy,
        accuracy_held_out=(tpr + 1 - fpr) / 2,
        tpr_held_out=tpr,
        fpr_held_out=fpr,
        n_members=sum(row.role == MEMBER for row in rates),
        n_nonmembers=sum(row.role == NONMEMBER for row in rates),
        rates=tuple(rates),
    )


def codec_shares(run: RunTexts, table: Scores) -> tuple[CodecShare, ...]:
    """Share of each side's distinct texts that another text of it makes less likely."""
    column = table.values[:, table.names.index("codec")].tolist()
    found = []
    for role in dict.fromkeys(run.roles):
        rows = zip(run.texts, run.roles, column, strict=True)
        own = {text: value for text, one, value in rows if one == role}
        scored = [value for value in own.values() if np.isfinite(value)]
        if n := len(scored):
            n_lowered = sum(value > 0 for value in scored)
            low, high = wilson_interval(n_lowered, n)
            share = n_lowered / n
            found.append(
                CodecShare(role=role, n_texts=n, share=share, low=low, high=high)
            )
    return tuple(found)
