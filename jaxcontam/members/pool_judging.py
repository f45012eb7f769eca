"""Texts of unknown membership against a pool of non-members: one by one, and as a set.

Dimension key
    N  suspected texts
    L  texts of the pool
    M  scores
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.documents import ASKED, codes_of, compared, rows_of
from jaxcontam.errors import InputError
from jaxcontam.members.blind import (
    INFLATION,
    Blind,
    beside_reference,
    blind_baselines,
    increment,
)
from jaxcontam.members.judging import (
    constant_warnings,
    is_constant,
    is_surely_lower,
    scored_texts,
    unscored_warnings,
)
from jaxcontam.members.result import N_PERMUTATIONS, SeenShare, SetResult, TextThreshold
from jaxcontam.members.score import Scores
from jaxcontam.members.verdicts import (
    CONFOUNDED,
    conditions,
    ranking_verdict,
    verdict_warnings,
)
from jaxcontam.stats.conformal import conformal_p_values, share_seen, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg
from jaxcontam.stats.relabelling import set_level_test
from jaxcontam.stats.roc import auc_delong, auc_interval

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
