"""Texts of unknown membership against a pool of non-members: one by one, and as a set.

Dimension key
    N  suspected texts
    L  texts of the pool
    M  scores
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.methods.membership.blind import INFLATION, Blind, blind_baselines
from jaxcontam.methods.membership.documents import (
    copies_warnings,
    independent_codes,
    rows_of,
)
from jaxcontam.methods.membership.judging import (
    constant_warnings,
    is_constant,
    scored_texts,
    unscored_warnings,
)
from jaxcontam.methods.membership.score import Scores
from jaxcontam.methods.membership.verdicts import (
    CONFOUNDED,
    reference_warnings,
    set_verdict,
)
from jaxcontam.results.membership import (
    N_PERMUTATIONS,
    SeenShare,
    SetResult,
    TextThreshold,
)
from jaxcontam.stats.conformal import conformal_p_values, share_seen, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg
from jaxcontam.stats.relabelling import set_level_test
from jaxcontam.stats.roc import auc_delong, auc_interval

FEWEST_OF_SET = 20
"""Texts, or documents, of each set below which there is no set-level test."""

_NO_SHARE = "texts of one document are alike, so that no share seen is given"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextJudgement:
    """Suspected texts as a pool of non-members sees them.

    Attributes:
        names: The M scores.
        p_values: (N, M) conformal p-values, NaN where a text has no score.
        adjusted: (N, M) the same after Benjamini and Hochberg, each score by itself.
        thresholds: One for each score and false-positive rate.
        shares: How many suspected texts were seen, by each score; none where texts come
            from documents, or all stand in the pool.
        set_result: Test of the suspected texts as a set; None if there are too few.
        blind: Baselines that tell suspected texts from the pool.
        warnings: What the reader should know, one sentence each.
    """

    names: tuple[str, ...]
    p_values: np.ndarray
    adjusted: np.ndarray
    thresholds: tuple[TextThreshold, ...]
    shares: tuple[SeenShare, ...]
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
    fprs: Sequence[float] = (0.01, 0.05),
    seed: int = 0,
    n_permutations: int = N_PERMUTATIONS,
) -> TextJudgement:
    """P-value of each text, thresholds, and a test of the whole set.

    Null hypothesis: suspected texts and pool were drawn alike, and the model saw
    neither. Whether they were drawn alike is looked at by classifiers that read the
    texts alone; where these tell them apart, the p-values prove nothing.

    Copies of one text count as one, in the pool as in the set. A text in question that
    stands in the pool, too, is taken out of the pool, since a pool of texts that the
    model saw hides them; its p-value is that against the others. The share seen, the
    set-level test and the baselines leave out on both sides what stands twice in both
    together: taken out of one only, frequent texts would make sets of one law differ.

    Args:
        name: Name of the suspected set.
        fingerprint: Digest of its texts.
        table: N suspected texts, M scores.
        pool: L non-members, the same scores, and a reference or none as there.
        texts: The N texts.
        pool_texts: The L texts.
        clusters: Document of each suspected text, or None.
        pool_clusters: Document of each text of the pool; with `clusters` or not at all.
        fprs: False-positive rates of the thresholds.
        seed: Seeds folds and permutations.
        n_permutations: Permutations of the set-level test.

    Raises:
        InputError: If no text of the pool has a score and is not in question.
        ValueError: If scores, lengths or clusters do not fit.
    """
    if table.names != pool.names:
        raise ValueError(f"scores must be the same, got {table.names}, {pool.names}")
    if (clusters is None) != (pool_clusters is None):
        raise ValueError("clusters must be of both sets or of none")
    values_NM, pool_LM = table.values, pool.values
    if len(values_NM) != len(texts) or len(pool_LM) != len(pool_texts):
        raise ValueError("each text must have a row of scores")
    asked, known = set(texts), set(pool_texts)
    is_alone_N = np.array([text not in known for text in texts], bool)
    is_alone_L = np.array([text not in asked for text in pool_texts], bool)
    is_scored_N, is_scored_L = scored_texts(values_NM), scored_texts(pool_LM)
    used_L = is_scored_L & is_alone_L
    if not used_L.any():
        raise InputError(
            f"{name}: no text is left in the pool of non-members",
            hint="texts without a score and texts that are in question, too, are no "
            "part of it",
        )
    own_pool = rows_of(pool_texts, used_L)
    codes_L = independent_codes(own_pool, rows_of(pool_clusters, used_L))
    if codes_L is not None and pool_clusters is None:
        # Copies have one score: one of each stands for them all.
        firsts = np.unique(codes_L, return_index=True)[1]
        used_L[np.flatnonzero(used_L)] = np.isin(np.arange(len(codes_L)), firsts)
        codes_L = None
    n_pool = int(used_L.sum()) if codes_L is None else len(np.unique(codes_L))
    p_NM, adjusted_NM = np.full((2, *values_NM.shape), np.nan)
    thresholds = []
    for m, method in enumerate(table.names):
        pool_L = pool_LM[used_L, m]
        p_NM[:, m] = conformal_p_values(values_NM[:, m], pool_L, clusters_L=codes_L)
        adjusted_NM[is_scored_N, m] = benjamini_hochberg(p_NM[is_scored_N, m])
        for fpr in fprs:
            n_found = int(np.count_nonzero(adjusted_NM[:, m] <= fpr))
            scores_N = values_NM[is_scored_N, m]
            found = None
            if fpr * (n_pool + 1) >= 1:
                found = threshold_at_fpr(pool_L, fpr, clusters_L=codes_L)
            thresholds.append(
                TextThreshold(
                    method=method,
                    fpr=fpr,
                    threshold=None if found is None else found.threshold,
                    fpr_low=None if found is None else found.low,
                    fpr_high=None if found is None else found.high,
                    n_pool=len(pool_L),
                    n_above=None
                    if found is None
                    else int(np.count_nonzero(scores_N > found.threshold)),
                    n_discoveries=n_found,
                )
            )
    # The two sets must come about alike, whatever their sizes: of two draws from one
    # source with repeats the larger holds more of its frequent texts, so a text counts
    # that stands once in both together.
    both = np.concatenate([is_alone_N, is_alone_L])
    n_repeated = 0
    if clusters is None:
        counts = Counter([*texts, *pool_texts])
        both = np.array([counts[text] == 1 for text in (*texts, *pool_texts)], bool)
        n_repeated = sum(n > 1 and bool(text.strip()) for text, n in counts.items())
    is_suspect = np.repeat([True, False], [len(texts), len(pool_texts)])[both]
    both_texts = rows_of([*texts, *pool_texts], both)
    both_clusters = None
    if clusters is not None and pool_clusters is not None:
        # A document of one set is another one than its namesake of the other set.
        both_clusters = [("suspect", str(c)) for c in clusters]
        both_clusters += [("pool", str(c)) for c in pool_clusters]
        both_clusters = rows_of(both_clusters, both)
    both_reference = None
    if table.reference is not None and pool.reference is not None:
        both_reference = np.concatenate([table.reference, pool.reference])[both]
    blind = blind_baselines(
        both_texts,
        is_suspect,
        clusters=both_clusters,
        reference_N2=both_reference,
        seed=seed,
    )
    values = np.concatenate([values_NM, pool_LM])[both]
    scored = np.concatenate([is_scored_N, is_scored_L])[both]
    codes = independent_codes(
        rows_of(both_texts, scored), rows_of(both_clusters, scored)
    )
    set_result = _set_result(
        name,
        fingerprint,
        table.names,
        values[scored],
        is_suspect[scored],
        codes,
        blind,
        seed,
        n_permutations,
    )
    return TextJudgement(
        names=table.names,
        p_values=p_NM,
        adjusted=adjusted_NM,
        thresholds=tuple(thresholds),
        shares=_shares(table.names, values[scored], is_suspect[scored])
        if both_clusters is None
        else (),
        set_result=set_result,
        blind=blind,
        warnings=(
            *_shared_warning(sum(bool(text.strip()) for text in asked & known)),
            *_repeats_warning(n_repeated),
            *copies_warnings(rows_of(both_texts, scored), both_clusters),
            *([_NO_SHARE] if both_clusters is not None else []),
            *_warnings(
                is_scored_N, is_scored_L, n_pool, codes_L, fprs, set_result, blind
            ),
        ),
    )


def _shares(
    names: tuple[str, ...],
    values: np.ndarray,
    is_suspect: np.ndarray,
) -> tuple[SeenShare, ...]:
    """One a score; none where a set is empty."""
    n = int(is_suspect.sum())
    if n in (0, len(is_suspect)):
        return ()
    found = (share_seen(score[is_suspect], score[~is_suspect]) for score in values.T)
    return tuple(
        SeenShare(
            method=name,
            n_texts=n,
            n_pool=len(values) - n,
            low=low,
            estimate=estimate,
        )
        for name, (low, estimate) in zip(names, found, strict=True)
    )


def _set_result(
    name: str,
    fingerprint: str,
    names: tuple[str, ...],
    values: np.ndarray,
    is_suspect: np.ndarray,
    codes: np.ndarray | None,
    blind: Blind,
    seed: int,
    n_permutations: int,
) -> SetResult | None:
    units = np.arange(len(values)) if codes is None else codes
    n = min(len(np.unique(units[is_suspect == side])) for side in (True, False))
    if n < FEWEST_OF_SET:
        return None
    found = set_level_test(
        values, is_suspect, clusters_N=codes, n_permutations=n_permutations, seed=seed
    )
    sides = None if codes is None else (codes[is_suspect], codes[~is_suspect])

    def auc_and_high(scores: np.ndarray, inflation: float) -> tuple[float, float]:
        auc, se = auc_delong(scores[is_suspect], scores[~is_suspect], clusters=sides)
        return auc, auc_interval(auc, inflation * se, n=n)[1]

    auc, high = auc_and_high(found.scores, INFLATION)
    # A classifier that learnt little says nothing against a score that ranks well.
    highs = [high, *(auc_and_high(score, 1.0)[1] for score in values.T)]
    is_flat = all(is_constant(score) for score in values.T)
    verdict = set_verdict(
        found.p_value, auc_high=max(highs), blind=blind, constant=is_flat
    )
    return SetResult(
        benchmark=name,
        fingerprint=fingerprint,
        n_members=int(is_suspect.sum()),
        n_nonmembers=int((~is_suspect).sum()),
        features=names,
        auc=auc,
        p_value=found.p_value,
        n_permutations=n_permutations,
        p_adjusted=found.p_value,
        verdict=verdict,
        warnings=(
            *blind.warnings,
            *(constant_warnings("every score", values) if is_flat else ()),
            *reference_warnings(verdict, found.p_value, blind),
        ),
    )


def _shared_warning(n: int) -> tuple[str, ...]:
    if not n:
        return ()
    return (
        f"{n} distinct {'text' if n == 1 else 'texts'} in question "
        f"{'stands' if n == 1 else 'stand'} in the pool of non-members, too, and "
        f"{'was' if n == 1 else 'were'} taken out of it, and out of the set-level test",
    )


def _repeats_warning(n: int) -> tuple[str, ...]:
    if not n:
        return ()
    return (
        f"{n} distinct {'text stands' if n == 1 else 'texts stand'} more than once in "
        "both sets together and count in neither the share seen nor the set-level test",
    )


def _warnings(
    is_scored_N: np.ndarray,
    is_scored_L: np.ndarray,
    n_pool: int,
    codes_L: np.ndarray | None,
    fprs: Sequence[float],
    set_result: SetResult | None,
    blind: Blind,
) -> tuple[str, ...]:
    found = unscored_warnings(int((~is_scored_N).sum() + (~is_scored_L).sum()))
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
