"""Ranking of labelled texts by membership scores, and its verdict.

Dimension key
    N  texts
    M  scores
    P  members
    Q  non-members
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.documents import LABELLED, codes_of, compared, rows_of
from jaxcontam.errors import InputError
from jaxcontam.members.blind import Blind, beside_reference, blind_baselines, increment
from jaxcontam.members.result import (
    N_PERMUTATIONS,
    OperatingPoint,
    ScorePicture,
    ScoreResult,
)
from jaxcontam.members.score import Scores
from jaxcontam.members.verdicts import conditions, ranking_verdict, verdict_warnings
from jaxcontam.reports.terms import CONTAMINATED_LEVEL
from jaxcontam.stats.bootstrap import bootstrap, tpr_interval, tpr_statistic
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.relabelling import auc_p_values
from jaxcontam.stats.roc import (
    Clusters,
    Convention,
    Difference,
    auc_delong,
    auc_interval,
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
    _check_sides(name, n_units, "texts" if clusters is None else "documents")
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


def _check_sides(name: str, n_units: Sequence[int], unit: str) -> None:
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
