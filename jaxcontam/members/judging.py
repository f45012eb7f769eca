"""Judge the scores of a run, from texts and scores alone, without a model.

`membership` calls `judged` once scores exist, `verify` with what `texts.jsonl` holds.
Members are ranked against non-members (`judge`), texts in question one by one and as a
set against a pool of non-members (`judge_texts`), documents by a cut that known ones
give (`document_rates`).

Dimension key
    N  texts
    L  texts of a pool of non-members
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
from jaxcontam.members.rates import (
    codec_shares,
    document_rates,
    operating_point,
    score_pictures,
    swept,
)
from jaxcontam.members.result import (
    N_PERMUTATIONS,
    BlindBaseline,
    MembershipStudy,
    ScorePicture,
    ScoreResult,
    Scores,
    SeenShare,
    SetResult,
    TextThreshold,
)
from jaxcontam.reports.terms import CONTAMINATED_LEVEL
from jaxcontam.stats.conformal import conformal_p_values, share_seen, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg
from jaxcontam.stats.relabelling import auc_p_values, set_level_test
from jaxcontam.stats.roc import (
    Clusters,
    Convention,
    Difference,
    auc_delong,
    auc_interval,
    paired_delong,
)

FEW_TEXTS = 50
"""Members or non-members below which a warning stands beside the result."""

FEW_DOCUMENTS = 10
"""The same of documents, where texts come from some."""

FEW_FALSE = 10
"""Expected false positives below which a rate is called rough."""

FEWEST_OF_SET = 20
"""Texts, or documents, of each set below which there is no set-level test."""

_MAY_BE_KIND = (
    "the discoveries of Benjamini-Hochberg may be texts that are easier to read, not "
    "texts that were seen: the primary score does not exceed that of a reference model"
)

_NO_SHARE = "texts of one document are alike, so no share seen is given"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JudgedRun:
    """Judgement of the scores of a run.

    Attributes:
        study: As asked, with `sweep`, `seen`, `codec` and `documents` as found.
        results: One a score where both sides are known; one for the set where texts are
            in question; none where nothing is known of any text.
        p_values: (N,) conformal p-values of the primary score for the texts in
            question, NaN elsewhere; or None.
        p_adjusted: (N,) the same after Benjamini and Hochberg.
        no_p_value: (N,) why a text in question has none; or None.
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
        codec=codec_shares(run, table) if "codec" in table.names else (),
        documents=None,
    )
    found = JudgedRun(study=study)
    if members.any() and nonmembers.any():
        found = _ranked(run, table, members | nonmembers, asked, study, seed)
    if asked.any() and nonmembers.any():
        found = _asked(run, table, asked, nonmembers, found, seed)
    return dataclasses.replace(found, warnings=run.warnings + found.warnings)


def _ranked(
    run: RunTexts,
    table: Scores,
    chosen_N: np.ndarray,
    asked_N: np.ndarray,
    study: MembershipStudy,
    seed: int,
) -> JudgedRun:
    ranking = judge(
        run.name,
        run.fingerprint,
        table.rows(chosen_N),
        run.with_role(MEMBER)[chosen_N],
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
    primary_N, rates = table.values[:, table.names.index(study.primary)], None
    if run.clusters is not None:
        sides = dict(known_N=kept_N, asked_N=asked_N)
        rates = document_rates(
            study.primary, primary_N, run.clusters, run.roles, **sides
        )
    chosen = swept(scores, labels, run.clusters_of(kept_N), seed)
    return JudgedRun(
        results=ranking.results,
        blind=ranking.blind.rows,
        pictures=score_pictures(scores, labels),
        study=dataclasses.replace(study, sweep=chosen, documents=rates),
    )


def _asked(
    run: RunTexts,
    table: Scores,
    asked_N: np.ndarray,
    pool_N: np.ndarray,
    found: JudgedRun,
    seed: int,
) -> JudgedRun:
    study = found.study
    judgement = judge_texts(
        run.name,
        run.fingerprint,
        table.rows(asked_N),
        table.rows(pool_N),
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
    whys = iter(judgement.why)
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
        no_p_value=tuple(next(whys) if is_asked else None for is_asked in asked_N),
        warnings=found.warnings + judgement.warnings,
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Comparison:
    """Texts of two sides that have a score and that `compared` keeps.

    Attributes:
        kept: Those among all texts given; `scored`: those that have a score.
        first: Texts of the first side, of those that are kept, as all below.
        codes: Documents as numbers; None if each text is its own.
        why: Why a scored text takes no part; None where it does.
    """

    kept: np.ndarray
    scored: np.ndarray
    table: Scores
    first: np.ndarray
    texts: list[str]
    documents: list[Any] | None
    codes: np.ndarray | None
    why: Sequence[str | None]
    warnings: Sequence[str]

    @property
    def sides(self) -> Clusters | None:
        if self.codes is None:
            return None
        return self.codes[self.first], self.codes[~self.first]

    def blind(self, seed: int) -> Blind:
        return blind_baselines(
            self.texts,
            self.first,
            clusters=self.documents,
            reference_N2=self.table.reference,
            seed=seed,
        )


def _compare(
    table: Scores,
    first_N: np.ndarray,
    texts: Sequence[str],
    documents: Sequence[Any] | None,
    sides: Any,
) -> _Comparison:
    scored_N = _scored_texts(table.values)
    scored = rows_of(texts, scored_N), first_N[scored_N], rows_of(documents, scored_N)
    alike = compared(*scored, sides)
    kept_N = scored_N.copy()
    kept_N[scored_N] = alike.kept
    documents = rows_of(documents, kept_N)
    return _Comparison(
        kept=kept_N,
        scored=scored_N,
        table=table.rows(kept_N),
        first=first_N[kept_N],
        texts=rows_of(texts, kept_N),
        documents=documents,
        codes=None if documents is None else codes_of(documents),
        why=alike.why,
        warnings=alike.warnings,
    )


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
    and counted as a whole; `n_boot` are resamples of each of their true-positive rates.
    """
    labels_N = np.asarray(labels_N, bool)
    N = len(table.values)
    if primary not in table.names:
        raise ValueError(f"primary must be one of {table.names}, got {primary!r}")
    if any(one is not None and len(one) != N for one in (labels_N, texts, clusters)):
        raise ValueError(
            f"labels, texts and clusters must have one value per text, {N}"
        )
    both = _compare(table, labels_N, texts, clusters, LABELLED)
    table, labels_N, codes_N, sides = both.table, both.first, both.codes, both.sides
    n_unscored = int((~both.scored).sum())
    n_each = (int(labels_N.sum()), int((~labels_N).sum()))
    n_units = n_each if sides is None else tuple(len(np.unique(side)) for side in sides)
    for n, group in zip(n_units, ("members", "non-members"), strict=True):
        if n < 2:
            unit = "texts" if sides is None else "documents"
            raise InputError(
                f"{name}: too few {unit} of {group} can be compared ({n})",
                hint="an AUC needs at least 2 in each group, a useful interval about "
                f"{FEW_TEXTS}; texts without a score and repeated texts are left out",
            )
    blind = both.blind(seed)
    p_M = auc_p_values(table.values, labels_N, codes_N, n=N_PERMUTATIONS, seed=seed)
    primary_N = table.values[:, table.names.index(primary)]
    warnings = (
        *both.warnings,
        *_warnings(n_unscored, n_each, sides and n_units, fprs),
        *_constant_warnings(primary, primary_N),
        *blind.warnings,
    )
    drawn: dict[str, Any] = dict(
        convention=convention, clusters=sides, n_boot=n_boot, seed=seed
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
            beside = primary_N[labels_N], primary_N[~labels_N]
            found = paired_delong(members_P, others_Q, *beside, clusters=sides)
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
                is_lower=_is_surely_lower(auc, se, min(n_units)),
                blind=blind,
                unmet=unmet,
                constant=_is_constant(score_N),
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
                    operating_point(members_P, others_Q, fpr, **drawn) for fpr in fprs
                ),
                p_value=p_value,
                p_adjusted=p_value if is_primary else None,
                verdict=verdict,
                warnings=warnings if is_primary else (),
                **extra,
            )
        )
    return Ranking(tuple(results), blind, both.kept)


def _fields(name: str, found: Difference) -> dict[str, float]:
    return {
        name: found.difference,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        f"{name}_p": found.p_value,
    }


def _warnings(
    n_unscored: int,
    n_each: Sequence[int],
    n_documents: Sequence[int] | None,
    fprs: Sequence[float],
) -> tuple[str, ...]:
    found = _unscored_warnings(n_unscored)
    if n_documents is not None and min(n_documents) < FEW_DOCUMENTS:
        found.append(
            f"the smaller group comes from {min(n_documents)} documents only; "
            f"intervals from fewer than {FEW_DOCUMENTS} are rough"
        )
    elif min(n_each) < FEW_TEXTS:
        found.append(
            f"the smaller group has {min(n_each)} texts only; with fewer than "
            f"{FEW_TEXTS} the AUC is very uncertain"
        )
    for fpr in fprs:
        expected = fpr * n_each[1]
        if expected < 1:
            found.append(
                f"no threshold at a false-positive rate of {fpr:g}: it needs at least "
                f"{int(np.ceil(1 / fpr - 1e-9))} non-members (found {n_each[1]})"
            )
        elif expected < FEW_FALSE:
            found.append(
                f"at a false-positive rate of {fpr:g} only {expected:.1f} non-members "
                "are expected above the threshold, so the true-positive rate is rough"
            )
    return tuple(found)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextJudgement:
    """Suspected texts as a pool of non-members sees them.

    Attributes:
        p_values: (N, M) conformal p-values, NaN where a text has none.
        adjusted: (N, M) the same after Benjamini and Hochberg over the texts that are
            tested, each score by itself.
        why: (N,) why a text has no p-value; None where it has one.
        seen: None where texts come from documents, or no text is tested.
        set_result: None if there are too few texts.
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
    beforehand, ranks the set and counts the share seen; None: the first.
    """
    if table.names != pool.names:
        raise ValueError(f"scores must be the same, got {table.names}, {pool.names}")
    if (clusters is None) != (pool_clusters is None):
        raise ValueError("clusters must be given for both sets or for neither")
    if len(table.values) != len(texts) or len(pool.values) != len(pool_texts):
        raise ValueError("each text must have a row of scores")
    documents = reference = None
    if clusters is not None and pool_clusters is not None:
        # A document of one set is another one than its namesake of the other set.
        documents = [(True, str(one)) for one in clusters]
        documents += [(False, str(one)) for one in pool_clusters]
    if table.reference is not None and pool.reference is not None:
        reference = np.concatenate([table.reference, pool.reference])
    values = np.concatenate([table.values, pool.values])
    both = _compare(
        Scores(table.names, values, reference),
        np.repeat([True, False], [len(texts), len(pool_texts)]),
        [*texts, *pool_texts],
        documents,
        ASKED,
    )
    values, is_suspect, codes = both.table.values, both.first, both.codes
    if is_suspect.all():
        raise InputError(
            f"{name}: no text is left in the pool of non-members",
            hint="texts without a score, texts that are also in question, and repeated "
            "texts are left out of it",
        )
    pool_LM = values[~is_suspect]
    codes_L = None if codes is None else codes[~is_suspect]
    n_pool = len(pool_LM) if codes_L is None else len(np.unique(codes_L))
    # Copies of a text that takes part have its p-value.
    place = {text: n for n, text in enumerate(both.texts) if is_suspect[n]}
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
            threshold = low = high = n_above = None
            if fpr * (n_pool + 1) >= 1:
                found = threshold_at_fpr(pool_LM[:, m], fpr, clusters_L=codes_L)
                threshold, low, high = found.threshold, found.low, found.high
                n_above = int(np.count_nonzero(tested > threshold))
            thresholds.append(
                TextThreshold(
                    method=method,
                    fpr=fpr,
                    threshold=threshold,
                    fpr_low=low,
                    fpr_high=high,
                    n_pool=len(pool_LM),
                    n_above=n_above,
                    n_discoveries=int(np.count_nonzero(adjusted <= fpr)),
                )
            )
    blind = both.blind(seed)
    primary = primary or table.names[0]
    primary_N = values[:, table.names.index(primary)]
    adds = None
    if blind.rows:
        adds = increment(blind, primary_N, is_suspect, clusters_N=codes).p_value
    beside = beside_reference(blind, primary, primary_N, is_suspect, clusters_N=codes)
    unmet = conditions(blind, adds, beside)
    set_result = None
    units = np.arange(len(values)) if codes is None else codes
    n_units = min(len(np.unique(units[is_suspect == side])) for side in (True, False))
    if n_units >= FEWEST_OF_SET:
        set_result = SetResult(
            benchmark=name,
            fingerprint=fingerprint,
            n_members=int(is_suspect.sum()),
            n_nonmembers=int((~is_suspect).sum()),
            features=table.names,
            n_permutations=n_permutations,
            increment_p=adds,
            beside_reference=beside,
            **_set_test(both, n_units, blind, primary_N, unmet, seed, n_permutations),
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
    whys = iter(both.why)
    why = [next(whys) if is_scored else "has no score" for is_scored in both.scored]
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
            *both.warnings,
            *([_NO_SHARE] if documents is not None else []),
            *([_MAY_BE_KIND] if unmet and is_found else []),
            *_unscored_warnings(int((~both.scored).sum())),
            *_pool_warnings(n_pool, codes_L, fprs, set_result, blind),
        ),
    )


def _set_test(
    both: _Comparison,
    n_units: int,
    blind: Blind,
    primary_N: np.ndarray,
    unmet: Sequence[str],
    seed: int,
    n_permutations: int,
) -> dict[str, Any]:
    """AUC, p-value, verdict and warnings of a set, of which a side has `n_units`."""
    values, is_suspect, sides = both.table.values, both.first, both.sides
    drawn = dict(n_permutations=n_permutations, seed=seed)
    found = set_level_test(values, is_suspect, clusters_N=both.codes, **drawn)

    def delong(scores: np.ndarray) -> tuple[float, float]:
        return auc_delong(scores[is_suspect], scores[~is_suspect], clusters=sides)

    auc, se = delong(found.scores)
    # A classifier that learnt little says nothing against a score that ranks well.
    highs = [auc_interval(auc, INFLATION * se, n=n_units)[1]]
    highs += [auc_interval(*delong(score), n=n_units)[1] for score in values.T]
    is_flat = all(_is_constant(score) for score in values.T)
    primary_auc, primary_se = delong(primary_N)
    verdict = ranking_verdict(
        found.p_value,
        auc=primary_auc,
        auc_high=max(highs),
        is_lower=_is_surely_lower(primary_auc, primary_se, n_units),
        blind=blind,
        unmet=unmet,
        is_set=True,
        constant=is_flat,
    )
    return {
        "auc": auc,
        "p_value": found.p_value,
        "p_adjusted": found.p_value,
        "verdict": verdict,
        "warnings": (
            *blind.warnings,
            *(_constant_warnings("every score", values) if is_flat else ()),
            *verdict_warnings(verdict, found.p_value, primary_auc, unmet),
        ),
    }


def _pool_warnings(
    n_pool: int,
    codes_L: np.ndarray | None,
    fprs: Sequence[float],
    set_result: SetResult | None,
    blind: Blind,
) -> tuple[str, ...]:
    unit = "non-members" if codes_L is None else "documents of non-members"
    found = [
        f"no threshold at a false-positive rate of {fpr:g}: it needs a pool of at "
        f"least {int(np.ceil(1 / fpr - 1 - 1e-9))} {unit} (found {n_pool})"
        for fpr in fprs
        if fpr * (n_pool + 1) < 1
    ]
    if codes_L is not None and n_pool < len(codes_L):
        found.append(
            f"the pool comes from {n_pool} documents, and each counts as one: a "
            "p-value applies to a text from another document, and the false-positive "
            "rate of a threshold has no interval"
        )
    if set_result is None:
        found.append(
            f"no set-level test: each set needs at least {FEWEST_OF_SET} texts, or "
            "documents if texts come from documents"
        )
    elif set_result.verdict == CONFOUNDED:
        found.append(
            "the texts alone tell the suspected set from the pool, so p-values, "
            "thresholds and the share seen may show a difference in kind or date, not "
            "memory"
        )
    return (*found, *blind.warnings)


def _scored_texts(values_NM: np.ndarray) -> np.ndarray:
    """(N,) bool: texts with all their scores; ValueError for one that has some only."""
    finite_NM = np.isfinite(values_NM)
    scored_N: np.ndarray = np.all(finite_NM, axis=1)
    broken_N = ~scored_N & ~np.isnan(values_NM).all(axis=1)
    if broken_N.any():
        row = int(np.flatnonzero(broken_N)[0])
        raise ValueError(f"values must be finite or NaN as a whole row, row {row}")
    return scored_N


def _is_surely_lower(auc: float, se: float, n: int) -> bool:
    """True if members rank lower, at the level at which they would rank higher."""
    return auc_interval(auc, se, n=n, level=1 - 2 * CONTAMINATED_LEVEL)[1] < 0.5


def _is_constant(scores_N: np.ndarray) -> bool:
    """True if scores differ by no more than rounding."""
    largest = max(1.0, float(np.abs(scores_N).max(initial=0)))
    return bool(np.ptp(scores_N) <= 1e-12 * largest) if len(scores_N) else True


def _constant_warnings(name: str, scores_N: np.ndarray) -> tuple[str, ...]:
    """One sentence where a score is the same for every text, else nothing."""
    said = (
        f"{name} is the same for every text, so it shows neither memory nor its "
        "absence",
    )
    return said if _is_constant(scores_N) else ()


def _unscored_warnings(n: int) -> list[str]:
    """One sentence where texts have no score, else nothing."""
    said = (
        f"texts without a score are left out: {n} (empty, or without a token to score)"
    )
    return [said] if n else []
