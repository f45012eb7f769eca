"""Ranking of labelled texts by membership scores, and its verdict.

Dimension key
    N  texts
    M  scores
    P  members
    Q  non-members
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontam.data.documents import ASKED, LABELLED, codes_of, compared, rows_of
from jaxcontam.errors import InputError
from jaxcontam.members.blind import (
    CONFOUNDED,
    INFLATION,
    Blind,
    beside_reference,
    blind_baselines,
    conditions,
    increment,
    ranking_verdict,
    verdict_warnings,
)
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.members.result import (
    N_PERMUTATIONS,
    BlindBaseline,
    CodecShare,
    DocumentRate,
    DocumentRates,
    MembershipStudy,
    OperatingPoint,
    ScorePicture,
    ScoreResult,
    Scores,
    SeenShare,
    SetResult,
    Sweep,
    TextScores,
    TextThreshold,
    score_columns,
)
from jaxcontam.members.scores import sweep_methods
from jaxcontam.reports.archive import number_or_none
from jaxcontam.reports.terms import CONTAMINATED_LEVEL
from jaxcontam.stats.bootstrap import bootstrap, tpr_interval, tpr_statistic
from jaxcontam.stats.conformal import conformal_p_values, share_seen, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.relabelling import auc_p_values, set_level_test
from jaxcontam.stats.roc import (
    Clusters,
    Convention,
    Difference,
    auc_delong,
    auc_interval,
    best_threshold,
    paired_delong,
    roc_curve,
    tpr_at_fpr,
)

FEW_TEXTS = 50
"""Members or non-members below which a warning stands beside the result."""

FEW_DOCUMENTS = 10
"""The same of documents, where texts come from some."""

FEW_FALSE = 10
"""Expected false positives below which a rate is called rough."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Results by score, as in the table, and baselines of the `kept` texts."""

    results: tuple[ScoreResult, ...]
    blind: Blind
    kept: np.ndarray


def judge(
    name: str,
    fingerprint: str,
    table: Scores,
    labels_N: np.ndarray,
    *,
    texts: Sequence[str],
    clusters: Sequence[object] | None = None,
    primary: str,
    fprs: Sequence[float] = (0.01, 0.05),
    convention: Convention = "le",
    seed: int = 0,
    n_boot: int = 1000,
) -> Ranking:
    """AUC, true-positive rates, p-value and increment of each score; one verdict.

    Only the primary score decides, so it is named before the scores are seen. The
    permutation p-value assumes that labels were assigned by chance, to texts or to
    whole documents; blind baselines look whether the texts contradict that. All numbers
    are of the texts that have a score and that `compared` keeps.

    `labels_N` is True for members. Documents, all of one label, are permuted, resampled
    and counted as a whole. `fprs` are operating points, `n_boot` resamples of each
    true-positive rate of documents.
    """
    labels_N = np.asarray(labels_N, bool)
    N = len(table.values)
    if primary not in table.names:
        raise ValueError(f"primary must be one of {table.names}, got {primary!r}")
    if any(one is not None and len(one) != N for one in (labels_N, texts, clusters)):
        raise ValueError(f"labels, texts and clusters must have one value a text, {N}")
    kept_N = scored_texts(table.values)
    n_unscored = N - int(kept_N.sum())
    alike = compared(
        rows_of(texts, kept_N), labels_N[kept_N], rows_of(clusters, kept_N), LABELLED
    )
    kept_N[kept_N] = alike.kept
    table, labels_N = table.rows(kept_N), labels_N[kept_N]
    texts, clusters = rows_of(texts, kept_N), rows_of(clusters, kept_N)
    codes_N = None if clusters is None else codes_of(clusters)
    sides = None if codes_N is None else (codes_N[labels_N], codes_N[~labels_N])
    n_each = (int(labels_N.sum()), int((~labels_N).sum()))
    n_units = n_each if sides is None else tuple(len(np.unique(side)) for side in sides)
    _check_groups(name, n_units, "texts" if clusters is None else "documents")
    blind = blind_baselines(
        texts, labels_N, clusters=clusters, reference_N2=table.reference, seed=seed
    )
    p_M = auc_p_values(table.values, labels_N, codes_N, n=N_PERMUTATIONS, seed=seed)
    primary_N = table.values[:, table.names.index(primary)]
    warnings = (
        *alike.warnings,
        *_warnings(n_unscored, n_each, sides and n_units, fprs),
        *constant_warnings(primary, primary_N),
        *blind.warnings,
    )
    results = []
    for m, method in enumerate(table.names):
        score_N = table.values[:, m]
        members_P, others_Q = score_N[labels_N], score_N[~labels_N]
        auc, se = auc_delong(members_P, others_Q, clusters=sides)
        low, high = auc_interval(auc, se, n=min(n_units))
        p_value, is_primary = float(p_M[m]), method == primary
        extra, verdict = {}, None
        if not is_primary:
            found = paired_delong(
                members_P,
                others_Q,
                primary_N[labels_N],
                primary_N[~labels_N],
                clusters=sides,
            )
            extra |= _fields("difference", found)
        if blind.rows:
            found = increment(blind, score_N, labels_N, clusters_N=codes_N)
            extra |= _fields("increment", found)
        if is_primary:
            beside = beside_reference(
                blind, method, score_N, labels_N, clusters_N=codes_N
            )
            unmet = conditions(blind, extra.get("increment_p"), beside)
            verdict = ranking_verdict(
                p_value,
                auc=auc,
                auc_high=high,
                is_lower=is_surely_lower(auc, se, min(n_units)),
                blind=blind,
                unmet=unmet,
                constant=is_constant(score_N),
            )
            warnings += verdict_warnings(verdict, p_value, auc, unmet)
            extra["beside_reference"] = beside
        results.append(
            ScoreResult(
                benchmark=name,
                fingerprint=fingerprint,
                method=method,
                primary=is_primary,
                n_members=n_each[0],
                n_nonmembers=n_each[1],
                n_unscored=n_unscored,
                n_clusters=None if sides is None else sum(n_units),
                auc=auc,
                auc_se=se,
                auc_low=low,
                auc_high=high,
                operating_points=tuple(
                    operating_point(
                        members_P,
                        others_Q,
                        fpr,
                        convention=convention,
                        clusters=sides,
                        n_boot=n_boot,
                        seed=seed,
                    )
                    for fpr in fprs
                ),
                p_value=p_value,
                p_adjusted=p_value if is_primary else None,
                verdict=verdict,
                warnings=warnings if is_primary else (),
                **extra,
            )
        )
    return Ranking(tuple(results), blind, kept_N)


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
    bootstrap, and never narrower than Wilson's for a given threshold.

    Nothing is read off where `fpr` times Q is below 1. With documents the threshold is
    found anew in each of `n_boot` resamples.
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
            drawn = bootstrap(
                tpr_statistic(fpr, convention),
                members_P,
                nonmembers_Q,
                clusters=clusters,
                n_boot=n_boot,
                seed=seed,
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
    scored_N = scored_texts(values_NM)
    is_member_N = np.asarray(labels_N, bool)
    pictures = []
    for m, method in enumerate(table.names):
        members_P = values_NM[scored_N & is_member_N, m]
        others_Q = values_NM[scored_N & ~is_member_N, m]
        fpr_R, tpr_R = roc_curve(members_P, others_Q)
        pictures.append(
            ScorePicture(
                method=method,
                auc=float(np.trapezoid(tpr_R, fpr_R)),
                fpr=fpr_R,
                tpr=tpr_R,
                members=members_P,
                nonmembers=others_Q,
            )
        )
    return tuple(pictures)


def scored_texts(values_NM: np.ndarray) -> np.ndarray:
    """(N,) bool: texts with all their scores; ValueError for one that has some only."""
    finite_NM = np.isfinite(values_NM)
    scored_N: np.ndarray = np.all(finite_NM, axis=1)
    broken_N = ~scored_N & ~np.isnan(values_NM).all(axis=1)
    if broken_N.any():
        row = int(np.flatnonzero(broken_N)[0])
        raise ValueError(f"values must be finite or NaN as a whole row, row {row}")
    return scored_N


def _check_groups(name: str, n_units: Sequence[int], unit: str) -> None:
    for n, group in zip(n_units, ("members", "non-members"), strict=True):
        if n < 2:
            raise InputError(
                f"{name}: too few {unit} of {group} can be compared ({n})",
                hint="an AUC needs at least 2 in each group, an interval that tells "
                f"something about {FEW_TEXTS}; texts without a score and those that "
                "stand more than once take no part",
            )


def _fields(name: str, found: Difference) -> dict[str, float]:
    """A difference as fields of a result."""
    return {
        name: found.difference,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_p": found.p_value,
    }


def is_surely_lower(auc: float, se: float, n: int) -> bool:
    """True if members rank lower, at the level at which they would rank higher."""
    return auc_interval(auc, se, n=n, level=1 - 2 * CONTAMINATED_LEVEL)[1] < 0.5


def is_constant(scores_N: np.ndarray) -> bool:
    """True if scores differ by no more than rounding."""
    largest = max(1.0, float(np.abs(scores_N).max(initial=0)))
    return bool(np.ptp(scores_N) <= 1e-12 * largest) if len(scores_N) else True


def constant_warnings(name: str, scores_N: np.ndarray) -> tuple[str, ...]:
    """One sentence where a score is the same for every text, else nothing."""
    if not is_constant(scores_N):
        return ()
    return (
        f"{name} is the same for every text, so that it shows nothing, neither memory "
        "nor the lack of it",
    )


def unscored_warnings(n: int) -> list[str]:
    """One sentence where texts have no score, else nothing."""
    words = (
        f"texts without a score, which are left out: {n} (empty, or without a token "
    )
    return [f"{words}that could be scored)"] * bool(n)


def _warnings(
    n_unscored: int,
    n_each: Sequence[int],
    n_documents: Sequence[int] | None,
    fprs: Sequence[float],
) -> tuple[str, ...]:
    found = unscored_warnings(n_unscored)
    if n_documents is not None and min(n_documents) < FEW_DOCUMENTS:
        found.append(
            f"the smaller group comes from {min(n_documents)} documents only; "
            f"intervals from fewer than {FEW_DOCUMENTS} are rough"
        )
    elif min(n_each) < FEW_TEXTS:
        found.append(
            f"the smaller group has {min(n_each)} texts only; fewer than {FEW_TEXTS} "
            "leave the AUC very uncertain"
        )
    for fpr in fprs:
        expected = fpr * n_each[1]
        if expected < 1:
            found.append(
                f"no threshold at a false-positive rate of {fpr:g}: it needs at least "
                f"{int(np.ceil(1 / fpr - 1e-9))} non-members, there are {n_each[1]}"
            )
        elif expected < FEW_FALSE:
            found.append(
                f"at a false-positive rate of {fpr:g} only {expected:.1f} non-members "
                "are expected above the threshold, so the true-positive rate is rough"
            )
    return tuple(found)


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


_ASKED, _MEMBER, _NONMEMBER = "text", "member", "nonmember"


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
    question, `roles` each `text`, `member` or `nonmember`; a score may be NaN. Rates
    stand in the order of the documents' first texts.

    Source:
        Shi et al., arXiv:2310.16789, section 5. Departures: the accuracy that the cut
        maximises weighs members and non-members the same, which is the paper's where
        there are as many of both; known documents are judged by the cut of the other
        known ones, since that of all was chosen on them.
    """
    role_N = np.array(roles, object)
    is_known = {
        role: known_N & (role_N == role) & np.isfinite(scores_N)
        for role in (_MEMBER, _NONMEMBER)
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
        if role != _ASKED:
            rest_N = np.ones(len(scores_N), bool)
            rest_N[places] = False
            of_others, _ = cut(rest_N)
        n_above = int(np.count_nonzero(scored >= of_others))
        low, high = (
            wilson_interval(n_above, len(scored)) if len(scored) else (None,) * 2
        )
        rates.append(
            DocumentRate(
                document=name,
                role=role,
                n_texts=len(own),
                n_scored=len(scored),
                n_above=n_above if len(scored) else None,
                rate=n_above / len(scored) if len(scored) else None,
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
        n_members=sum(row.role == _MEMBER for row in rates),
        n_nonmembers=sum(row.role == _NONMEMBER for row in rates),
        rates=tuple(rates),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedRun:
    """Judgement of the scores of a run.

    Attributes:
        results: One a score where both sides are known; one for the set where texts are
            in question; none where nothing is known of any text.
        p_values: (N,) conformal p-values of the primary score for the texts in
            question, NaN elsewhere; or None.
        p_adjusted: (N,) the same after Benjamini and Hochberg.
        no_p_value: (N,) why a text in question has none; or None.
        study: What was asked, with `sweep`, `seen`, `codec` and `documents` as found.
    """

    study: MembershipStudy
    results: tuple[ScoreResult | SetResult, ...] = ()
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()
    p_values: np.ndarray | None = None
    p_adjusted: np.ndarray | None = None
    no_p_value: tuple[str | None, ...] | None = None
    warnings: tuple[str, ...] = ()
    pictures: tuple[ScorePicture, ...] = ()


def judged(
    run: RunTexts,
    table: Scores,
    left_out_N: np.ndarray,
    study: MembershipStudy,
    *,
    seed: int,
) -> JudgedRun:
    """Rank members against non-members, or ask of texts in question.

    What `study` says is found is not read; `left_out_N` takes part in nothing.
    """
    members, nonmembers, asked = (
        run.with_role(role) & ~left_out_N for role in (MEMBER, NONMEMBER, TEXT)
    )
    study = dataclasses.replace(
        study,
        fingerprint=run.fingerprint,
        sweep=None,
        seen=None,
        codec=_codec_shares(run, table) if "codec" in table.names else (),
        documents=None,
    )
    found = JudgedRun(study=study)
    if members.any() and nonmembers.any():
        found = _ranked(run, table, members | nonmembers, asked, study, seed)
    if asked.any() and nonmembers.any():
        found = _asked(run, table, asked, nonmembers, found, seed)
    return dataclasses.replace(found, warnings=run.warnings + found.warnings)


def judged_again(
    study: MembershipStudy, rows: Sequence[TextScores], *, seed: int
) -> tuple[RunTexts, JudgedRun]:
    """Judge the rows of `texts.jsonl` under the settings of their report."""
    clusters = [row.cluster for row in rows if row.cluster is not None]
    run = RunTexts(
        name=study.name,
        texts=tuple(row.text for row in rows),
        roles=tuple(row.role for row in rows),
        clusters=tuple(clusters) or None,
        sources=tuple(row.source for row in rows),
    )
    left_out_N = np.array([row.left_out for row in rows])
    return run, judged(run, table_from_rows(rows), left_out_N, study, seed=seed)


def text_rows(
    run: RunTexts,
    table: Scores,
    *,
    n_tokens: np.ndarray,
    left_out: np.ndarray,
    found: JudgedRun,
) -> list[dict[str, Any]]:
    """A row of `texts.jsonl` for each text, in their order; null where it has no score.

    `n_tokens` (N,) are scored; `left_out` (N,) stand in a prefix; `found` gives texts
    in question their p-values.
    """
    rows = []
    for i, text in enumerate(run.texts):
        scores = zip(table.names, map(number_or_none, table.values[i]), strict=True)
        row: dict[str, Any] = {
            "id": i,
            "source": run.sources[i],
            "role": run.roles[i],
            "text": text,
            "n_tokens": int(n_tokens[i]),
            "left_out": bool(left_out[i]),
            "scores": dict(scores),
        }
        if run.clusters is not None:
            row["cluster"] = run.clusters[i]
        if table.reference is not None:
            row["reference"] = list(map(number_or_none, table.reference[i]))
        for name in ("p_values", "p_adjusted"):
            if (values_N := getattr(found, name)) is not None:
                row[name.removesuffix("s")] = number_or_none(values_N[i])
        if found.no_p_value is not None:
            row["no_p_value"] = found.no_p_value[i]
        rows.append(row)
    return rows


def table_from_rows(rows: Sequence[TextScores]) -> Scores:
    """The scores that `texts.jsonl` holds."""
    columns = score_columns(rows)
    values = np.stack(list(columns.values()), axis=1)
    reference = None
    if rows[0].reference is not None:
        # None becomes NaN.
        reference = np.array([row.reference for row in rows], np.float64).reshape(-1, 2)
    return Scores(tuple(columns), values, reference)


def _ranked(
    run: RunTexts,
    table: Scores,
    chosen_N: np.ndarray,
    asked_N: np.ndarray,
    study: MembershipStudy,
    seed: int,
) -> JudgedRun:
    from jaxcontam.members.judging import document_rates, judge, score_pictures

    labels = run.with_role(MEMBER)[chosen_N]
    ranking = judge(
        run.name,
        run.fingerprint,
        table.rows(chosen_N),
        labels,
        texts=run.texts_of(chosen_N),
        clusters=run.clusters_of(chosen_N),
        primary=study.primary,
        fprs=study.fprs,
        convention=study.convention,
        seed=seed,
    )
    kept_N = chosen_N.copy()
    kept_N[chosen_N] = ranking.kept
    scores, labels = table.rows(kept_N), run.with_role(MEMBER)[kept_N]
    swept = _swept(scores, labels, run.clusters_of(kept_N), seed)
    rates = None
    if run.clusters is not None:
        primary_N = table.values[:, table.names.index(study.primary)]
        rates = document_rates(
            study.primary,
            primary_N,
            run.clusters,
            run.roles,
            known_N=kept_N,
            asked_N=asked_N,
        )
    return JudgedRun(
        results=ranking.results,
        blind=ranking.blind.rows,
        pictures=score_pictures(scores, labels),
        study=dataclasses.replace(study, sweep=swept, documents=rates),
    )


def _swept(
    table: Scores,
    labels: np.ndarray,
    clusters: Sequence[str] | None,
    seed: int,
) -> Sweep | None:
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


def _asked(
    run: RunTexts,
    table: Scores,
    asked_N: np.ndarray,
    pool_N: np.ndarray,
    found: JudgedRun,
    seed: int,
) -> JudgedRun:
    pass

    study = found.study
    suspected, pool = table.rows(asked_N), table.rows(pool_N)
    judgement = judge_texts(
        run.name,
        run.fingerprint,
        suspected,
        pool,
        texts=run.texts_of(asked_N),
        pool_texts=run.texts_of(pool_N),
        clusters=run.clusters_of(asked_N),
        pool_clusters=run.clusters_of(pool_N),
        primary=study.primary,
        fprs=study.fprs,
        seed=seed,
    )
    column = judgement.names.index(study.primary)
    p_N, adjusted_N = np.full((2, len(run.texts)), np.nan)
    p_N[asked_N] = judgement.p_values[:, column]
    adjusted_N[asked_N] = judgement.adjusted[:, column]
    why: dict[int, str | None] = dict(
        zip(np.flatnonzero(asked_N).tolist(), judgement.why, strict=True)
    )
    if not found.results:
        # Else labelled texts decide, and there is no second verdict.
        results = () if judgement.set_result is None else (judgement.set_result,)
        found = JudgedRun(study=study, results=results, blind=judgement.blind.rows)
    rows = judgement.thresholds
    return dataclasses.replace(
        found,
        study=dataclasses.replace(study, seen=judgement.seen),
        thresholds=tuple(row for row in rows if row.method == study.primary),
        p_values=p_N,
        p_adjusted=adjusted_N,
        no_p_value=tuple(why.get(i) for i in range(len(run.texts))),
        warnings=found.warnings + judgement.warnings,
    )


def _codec_shares(run: RunTexts, table: Scores) -> tuple[CodecShare, ...]:
    from jaxcontam.stats.proportions import wilson_interval

    column = table.values[:, table.names.index("codec")].tolist()
    found = []
    for role in dict.fromkeys(run.roles):
        rows = zip(run.texts, run.roles, column, strict=True)
        own = {text: value for text, one, value in rows if one == role}
        scored = [value for value in own.values() if np.isfinite(value)]
        if n := len(scored):
            n_lowered = sum(value > 0 for value in scored)
            low, high = wilson_interval(n_lowered, n)
            found.append(
                CodecShare(
                    role=role, n_texts=n, share=n_lowered / n, low=low, high=high
                )
            )
    return tuple(found)


FEWEST_OF_SET = 20
"""Texts, or documents, of each set below which there is no set-level test."""

_MAY_BE_KIND = (
    "what Benjamini and Hochberg discover may be texts that are easier to read, not "
    "texts that were seen: the primary score does not go beyond a reference model"
)

_NO_SHARE = "texts of one document are alike, so that no share seen is given"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextJudgement:
    """Suspected texts as a pool of non-members sees them.

    Attributes:
        p_values: (N, M) conformal p-values, NaN where a text has none.
        adjusted: (N, M) the same after Benjamini and Hochberg over the texts that are
            tested, each score by itself.
        why: (N,) why a text has no p-value; None where it has one.
        thresholds: One for each score and false-positive rate.
        seen: How many suspected texts were seen, by the primary score; None where texts
            come from documents, or no text is tested.
        set_result: Test of the suspected texts as a set; None if there are too few.
        blind: Baselines that tell suspected texts from the pool.
    """

    names: tuple[str, ...]
    p_values: np.ndarray
    adjusted: np.ndarray
    why: tuple[str | None, ...]
    thresholds: tuple[TextThreshold, ...]
    seen: SeenShare | None
    set_result: SetResult | None
    blind: Blind
    warnings: tuple[str, ...]


def judge_texts(
    name: str,
    fingerprint: str,
    table: Scores,
    pool: Scores,
    *,
    texts: Sequence[str],
    pool_texts: Sequence[str],
    clusters: Sequence[object] | None = None,
    pool_clusters: Sequence[object] | None = None,
    primary: str | None = None,
    fprs: Sequence[float] = (0.01, 0.05),
    seed: int = 0,
    n_permutations: int = N_PERMUTATIONS,
) -> TextJudgement:
    """P-value of each text, thresholds, and a test of the whole set.

    Null hypothesis: suspected texts and pool were drawn alike, and the model saw
    neither. Whether they were drawn alike is looked at by classifiers that read the
    texts alone; where these tell them apart, the p-values prove nothing.

    All numbers are of the texts that have a score and that `compared` keeps; the others
    have no p-value, and are no part of the pool: a text in question that stands in the
    pool is a known non-member.

    Documents are given for both sides or for neither. The primary score, named
    beforehand, ranks the set and counts the share seen; None: the first. `fprs` are
    those of the thresholds.
    """
    if table.names != pool.names:
        raise ValueError(f"scores must be the same, got {table.names}, {pool.names}")
    if (clusters is None) != (pool_clusters is None):
        raise ValueError("clusters must be of both sets or of none")
    if len(table.values) != len(texts) or len(pool.values) != len(pool_texts):
        raise ValueError("each text must have a row of scores")
    values = np.concatenate([table.values, pool.values])
    scored = scored_texts(values)
    is_suspect = np.repeat([True, False], [len(texts), len(pool_texts)])
    documents = None
    if clusters is not None and pool_clusters is not None:
        # A document of one set is another one than its namesake of the other set.
        documents = [(True, str(one)) for one in clusters]
        documents += [(False, str(one)) for one in pool_clusters]
    both = [*texts, *pool_texts]
    alike = compared(
        rows_of(both, scored), is_suspect[scored], rows_of(documents, scored), ASKED
    )
    kept = scored.copy()
    kept[scored] = alike.kept
    is_suspect, values, both = is_suspect[kept], values[kept], rows_of(both, kept)
    documents = rows_of(documents, kept)
    codes = None if documents is None else codes_of(documents)
    if is_suspect.all():
        raise InputError(
            f"{name}: no text is left in the pool of non-members",
            hint="texts without a score, those that are in question, too, and those "
            "that stand more than once are no part of it",
        )
    pool_LM = values[~is_suspect]
    codes_L = None if codes is None else codes[~is_suspect]
    n_pool = len(pool_LM) if codes_L is None else len(np.unique(codes_L))
    # Copies of a text that takes part have its p-value.
    place = {text: n for n, text in enumerate(both) if is_suspect[n]}
    of_N = np.array([place.get(text, -1) for text in texts], np.int64)
    p_NM, adjusted_NM = np.full((2, *table.values.shape), np.nan)
    thresholds = []
    for m, method in enumerate(table.names):
        tested = values[is_suspect, m]
        p_values = conformal_p_values(tested, pool_LM[:, m], clusters_L=codes_L)
        adjusted = benjamini_hochberg(p_values)
        p_NM[of_N >= 0, m] = p_values[of_N[of_N >= 0]]
        adjusted_NM[of_N >= 0, m] = adjusted[of_N[of_N >= 0]]
        for fpr in fprs:
            found = None
            if fpr * (n_pool + 1) >= 1:
                found = threshold_at_fpr(pool_LM[:, m], fpr, clusters_L=codes_L)
            thresholds.append(
                TextThreshold(
                    method=method,
                    fpr=fpr,
                    threshold=None if found is None else found.threshold,
                    fpr_low=None if found is None else found.low,
                    fpr_high=None if found is None else found.high,
                    n_pool=len(pool_LM),
                    n_above=None
                    if found is None
                    else int(np.count_nonzero(tested > found.threshold)),
                    n_discoveries=int(np.count_nonzero(adjusted <= fpr)),
                )
            )
    reference = None
    if table.reference is not None and pool.reference is not None:
        reference = np.concatenate([table.reference, pool.reference])[kept]
    blind = blind_baselines(
        both, is_suspect, clusters=documents, reference_N2=reference, seed=seed
    )
    primary = primary or table.names[0]
    primary_N = values[:, table.names.index(primary)]
    adds = None
    if blind.rows:
        adds = increment(blind, primary_N, is_suspect, clusters_N=codes).p_value
    beside = beside_reference(blind, primary, primary_N, is_suspect, clusters_N=codes)
    unmet = conditions(blind, adds, beside)
    set_result = _set_result(
        name,
        fingerprint,
        Scores(table.names, values),
        is_suspect,
        codes,
        blind,
        primary_N,
        unmet,
        seed,
        n_permutations,
    )
    if set_result is not None:
        set_result = dataclasses.replace(
            set_result, increment_p=adds, beside_reference=beside
        )
    is_found = any(row.n_discoveries for row in thresholds if row.method == primary)
    seen = None
    if documents is None and is_suspect.any():
        low, estimate = share_seen(primary_N[is_suspect], primary_N[~is_suspect])
        seen = SeenShare(
            method=primary,
            n_texts=int(is_suspect.sum()),
            n_pool=len(pool_LM),
            low=low,
            estimate=estimate,
            beyond_reference=not unmet,
        )
    whys = iter(alike.why)
    why = [next(whys) if is_scored else "has no score" for is_scored in scored]
    return TextJudgement(
        names=table.names,
        p_values=p_NM,
        adjusted=adjusted_NM,
        why=tuple(why[: len(texts)]),
        thresholds=tuple(thresholds),
        seen=seen,
        set_result=set_result,
        blind=blind,
        warnings=(
            *alike.warnings,
            *([_NO_SHARE] if documents is not None else []),
            *([_MAY_BE_KIND] if unmet and is_found else []),
            *unscored_warnings(int((~scored).sum())),
            *_pool_warnings(n_pool, codes_L, fprs, set_result, blind),
        ),
    )


def _set_result(
    name: str,
    fingerprint: str,
    table: Scores,
    is_suspect: np.ndarray,
    codes: np.ndarray | None,
    blind: Blind,
    primary_N: np.ndarray,
    unmet: Sequence[str],
    seed: int,
    n_permutations: int,
) -> SetResult | None:
    values = table.values
    units = np.arange(len(values)) if codes is None else codes
    n = min(len(np.unique(units[is_suspect == side])) for side in (True, False))
    if n < FEWEST_OF_SET:
        return None
    found = set_level_test(
        values, is_suspect, clusters_N=codes, n_permutations=n_permutations, seed=seed
    )
    sides = None if codes is None else (codes[is_suspect], codes[~is_suspect])

    def delong(scores: np.ndarray) -> tuple[float, float]:
        return auc_delong(scores[is_suspect], scores[~is_suspect], clusters=sides)

    auc, se = delong(found.scores)
    # A classifier that learnt little says nothing against a score that ranks well.
    highs = [auc_interval(auc, INFLATION * se, n=n)[1]]
    highs += [auc_interval(*delong(score), n=n)[1] for score in values.T]
    is_flat = all(is_constant(score) for score in values.T)
    primary_auc, primary_se = delong(primary_N)
    verdict = ranking_verdict(
        found.p_value,
        auc=primary_auc,
        auc_high=max(highs),
        is_lower=is_surely_lower(primary_auc, primary_se, n),
        blind=blind,
        unmet=unmet,
        is_set=True,
        constant=is_flat,
    )
    return SetResult(
        benchmark=name,
        fingerprint=fingerprint,
        n_members=int(is_suspect.sum()),
        n_nonmembers=int((~is_suspect).sum()),
        features=table.names,
        auc=auc,
        p_value=found.p_value,
        n_permutations=n_permutations,
        p_adjusted=found.p_value,
        verdict=verdict,
        warnings=(
            *blind.warnings,
            *(constant_warnings("every score", values) if is_flat else ()),
            *verdict_warnings(verdict, found.p_value, primary_auc, unmet),
        ),
    )


def _pool_warnings(
    n_pool: int,
    codes_L: np.ndarray | None,
    fprs: Sequence[float],
    set_result: SetResult | None,
    blind: Blind,
) -> tuple[str, ...]:
    found = []
    unit = "non-members" if codes_L is None else "documents of non-members"
    for fpr in fprs:
        if fpr * (n_pool + 1) < 1:
            found.append(
                f"no threshold at a false-positive rate of {fpr:g}: it needs a pool of "
                f"at least {int(np.ceil(1 / fpr - 1 - 1e-9))} {unit}, there are "
                f"{n_pool}"
            )
    if codes_L is not None and n_pool < len(codes_L):
        found.append(
            f"the pool comes from {n_pool} documents, each of which counts as one: a "
            "p-value is that of a text from another document, and the false-positive "
            "rate of a threshold has no interval"
        )
    if set_result is None:
        found.append(
            f"no set-level test: each set needs at least {FEWEST_OF_SET} texts, or "
            "documents where texts come from some"
        )
    elif set_result.verdict == CONFOUNDED:
        found.append(
            "the texts alone tell the suspected set from the pool, so that p-values, "
            "thresholds and the share seen may show a difference of kind or date, not "
            "of memory"
        )
    found.extend(blind.warnings)
    return tuple(found)
