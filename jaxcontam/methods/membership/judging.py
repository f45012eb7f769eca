"""How well membership scores rank labelled texts, and what may be said of it.

Dimension key
    N  texts
    M  scores
    P  members
    Q  non-members
"""

from collections.abc import Sequence

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.methods.membership.blind import Blind, increment
from jaxcontam.methods.membership.documents import (
    copies_warnings,
    independent_codes,
    rows_of,
)
from jaxcontam.methods.membership.score import Scores
from jaxcontam.methods.membership.verdicts import reference_warnings, score_verdict
from jaxcontam.results.membership import (
    N_PERMUTATIONS,
    OperatingPoint,
    ScorePicture,
    ScoreResult,
)
from jaxcontam.stats.bootstrap import bootstrap, few_tpr_interval, tpr_statistic
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

# With fewer expected false positives than these, bootstrap intervals of 95 % held the
# true rate in 79 to 90 % of simulated samples; from here on in 92 % and more.
_FEW_FOR_BOOTSTRAP = 5

_NO_BASELINE = (
    "no blind baseline was made: the texts alone may tell the labels apart",
)


def judge(
    name: str,
    fingerprint: str,
    table: Scores,
    labels_N: np.ndarray,
    *,
    texts: Sequence[str] | None = None,
    clusters: Sequence[object] | None = None,
    blind: Blind | None = None,
    primary: str,
    fprs: Sequence[float] = (0.01, 0.05),
    convention: Convention = "le",
    seed: int = 0,
    n_boot: int = 1000,
) -> list[ScoreResult]:
    """AUC, true-positive rates, p-value and increment of each score; one verdict.

    Only the primary score decides, so it is named before the scores are seen. The
    permutation p-value assumes that labels were assigned by chance; `blind` looks
    whether the texts contradict that.

    Args:
        name: Name of the file of texts.
        fingerprint: Digest of the texts in their order.
        table: N texts, M scores.
        labels_N: (N,) bool, True = member.
        texts: The N texts. Copies of one text count as one in p-values and intervals,
            and documents that share a text as one document; see `document_codes`. AUC
            and rates are of all N. None: all texts are taken to differ.
        clusters: Document of each text; then documents are permuted, resampled and
            counted as a whole. None: each text is its own.
        blind: Baselines of the same N texts; None leaves increments and the verdicts
            `members rank higher` and `confounded` out.
        primary: The score that decides.
        fprs: False-positive rates of the operating points.
        convention: `le` (at most the rate) or `lt` (below it).
        seed: Seeds permutations and resamples.
        n_boot: Resamples of each true-positive rate.

    Returns:
        One result a score, in the order of the table.

    Raises:
        InputError: If fewer than 2 members or non-members, or documents of them, have
            a score.
        ValueError: If lengths differ, `primary` is not in the table, or a text has
            some of its scores only.
    """
    values_NM = table.values
    labels_N = all_labels_N = np.asarray(labels_N, bool)
    N = len(values_NM)
    if primary not in table.names:
        raise ValueError(f"primary must be one of {table.names}, got {primary!r}")
    if any(one is not None and len(one) != N for one in (labels_N, texts, clusters)):
        raise ValueError(f"labels, texts and clusters must have one value a text, {N}")
    scored_N = scored_texts(values_NM)
    texts, clusters = rows_of(texts, scored_N), rows_of(clusters, scored_N)
    codes_N = independent_codes(texts, clusters)
    values_NM, labels_N = values_NM[scored_N], labels_N[scored_N]
    sides = None if codes_N is None else (codes_N[labels_N], codes_N[~labels_N])
    n_each = (int(labels_N.sum()), int((~labels_N).sum()))
    n_units = n_each if sides is None else tuple(len(np.unique(side)) for side in sides)
    unit = "distinct texts" if clusters is None and sides is not None else "texts"
    _check_groups(name, n_units, unit if clusters is None else "documents")
    p_M = auc_p_values(values_NM, labels_N, codes_N, n=N_PERMUTATIONS, seed=seed)
    # Copies have one score, so that a threshold rests on distinct non-members.
    n_counted = n_units if clusters is None else n_each
    primary_N = values_NM[:, table.names.index(primary)]
    warnings = (
        *(() if texts is None else copies_warnings(texts, clusters)),
        *_warnings(
            N - len(values_NM),
            n_counted,
            unit,
            None if clusters is None else n_units,
            fprs,
        ),
        *constant_warnings(primary, primary_N),
        *(_NO_BASELINE if blind is None else blind.warnings),
    )
    all_codes_N = None
    if codes_N is not None:
        # Increments are over all N texts, as the folds are.
        all_codes_N = np.zeros(N, np.int64)
        all_codes_N[scored_N] = codes_N
    results = []
    for m, method in enumerate(table.names):
        score_N = values_NM[:, m]
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
        if blind is not None and blind.rows:
            found = increment(
                blind, table.values[:, m], all_labels_N, clusters_N=all_codes_N
            )
            extra |= _fields("increment", found)
        if is_primary:
            verdict = score_verdict(
                p_value,
                auc=auc,
                auc_high=high,
                blind=blind,
                increment_p=extra.get("increment_p"),
                constant=is_constant(score_N),
            )
            warnings += reference_warnings(verdict, p_value, blind)
        results.append(
            ScoreResult(
                benchmark=name,
                fingerprint=fingerprint,
                method=method,
                primary=is_primary,
                n_members=n_each[0],
                n_nonmembers=n_each[1],
                n_unscored=N - len(values_NM),
                n_clusters=None
                if clusters is None or codes_N is None
                else len(np.unique(codes_N)),
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
                        are_copies=clusters is None,
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
    return results


def operating_point(
    members_P: np.ndarray,
    nonmembers_Q: np.ndarray,
    fpr: float,
    *,
    convention: Convention = "le",
    clusters: Clusters | None = None,
    are_copies: bool = False,
    n_boot: int = 1000,
    seed: int = 0,
) -> OperatingPoint:
    """True-positive rate at a false-positive rate, with an interval of 95 %.

    The interval is that of the stratified bootstrap, and never narrower than Wilson's
    for a given threshold. Where fewer than 5 non-members are expected above the
    threshold and texts are independent, it is that of `few_tpr_interval`.

    Args:
        members_P: (P,) float64.
        nonmembers_Q: (Q,) float64.
        fpr: In (0, 1); nothing is read off where it times Q is below 1.
        convention: `le` or `lt`.
        clusters: Documents of both groups, or None.
        are_copies: Whether the documents are copies of one text each, which have one
            score: then `fpr` must allow one distinct non-member, and few of them make
            the interval that of distinct texts.
        n_boot: Resamples; the threshold is found anew in each.
        seed: Seeds them.
    """
    one_each, other_each = members_P, nonmembers_Q
    if clusters is not None and are_copies:
        one_each = members_P[np.unique(clusters[0], return_index=True)[1]]
        other_each = nonmembers_Q[np.unique(clusters[1], return_index=True)[1]]
    expected = fpr * len(other_each)
    tpr = threshold = low = high = None
    if expected >= 1 - 1e-9:
        tpr, threshold = tpr_at_fpr(members_P, nonmembers_Q, fpr, convention)
        if (clusters is None or are_copies) and expected < _FEW_FOR_BOOTSTRAP:
            low, high = few_tpr_interval(one_each, other_each, fpr)
            # For `lt`, whose threshold is one rank higher, and for distinct texts the
            # interval may miss the rate itself.
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
            n = len(members_P) if clusters is None else len(np.unique(clusters[0]))
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
    """Curves and scores of every score, for plots, of the texts that have scores.

    `labels_N` is (N,) bool, True = member.
    """
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
    """(N,) bool: texts with all their scores.

    Raises:
        ValueError: If a text has some of its scores only, or an infinite one.
    """
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
                f"{name}: too few {unit} of {group} have a score ({n})",
                hint="an AUC needs at least 2 in each group, an interval that tells "
                f"something about {FEW_TEXTS}; documents that share a text are one",
            )


def _fields(name: str, found: Difference) -> dict[str, float]:
    """A difference as fields of a result."""
    return {
        name: found.difference,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_p": found.p_value,
    }


def is_constant(scores_N: np.ndarray) -> bool:
    """Whether scores differ by no more than rounding."""
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
    unit: str,
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
            f"the smaller group has {min(n_each)} {unit} only; fewer than {FEW_TEXTS} "
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
