"""Texts of unknown membership against a pool of non-members: one by one, and as a set.

Dimension key
    N  suspected texts
    L  texts of the pool
    M  scores
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.membership_results import SetResult, TextThreshold
from jaxcontam.methods.membership.blind import Blind, blind_baselines
from jaxcontam.methods.membership.judging import Scores, codes_of, scored_texts
from jaxcontam.methods.membership.verdicts import CONFOUNDED, set_verdict
from jaxcontam.stats.conformal import conformal_p_values, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg
from jaxcontam.stats.roc import auc_delong, auc_interval
from jaxcontam.stats.set_level import set_level_test

FEWEST_OF_SET = 20
"""Texts, or documents, of each set below which there is no set-level test."""

_N_PERMUTATIONS = 9999


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextJudgement:
    """Suspected texts as a pool of non-members sees them.

    Attributes:
        names: The M scores.
        p_values: (N, M) conformal p-values, NaN where a text has no score.
        adjusted: (N, M) the same after Benjamini and Hochberg, each score by itself.
        thresholds: One for each score and false-positive rate.
        set_result: Of the suspected texts as a set; None where there are too few.
        blind: Baselines that tell suspected texts from the pool.
        warnings: What the reader should know, one sentence each.
    """

    names: tuple[str, ...]
    p_values: np.ndarray
    adjusted: np.ndarray
    thresholds: tuple[TextThreshold, ...]
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
    n_permutations: int = _N_PERMUTATIONS,
) -> TextJudgement:
    """P-value of each text, thresholds, and a test of the whole set.

    Null hypothesis: suspected texts and pool were drawn alike, and the model saw
    neither. Whether they were drawn alike is looked at by classifiers that read the
    texts alone; where these tell them apart, the p-values prove nothing.

    Args:
        name: Of the suspected set.
        fingerprint: Digest of its texts.
        table: N suspected texts, M scores.
        pool: L non-members, the same scores.
        texts: The N texts.
        pool_texts: The L texts.
        clusters: Document of each suspected text, or None.
        pool_clusters: Document of each text of the pool; with `clusters` or not at all.
        fprs: False-positive rates of the thresholds.
        seed: Seeds folds and permutations.
        n_permutations: Of the set-level test.

    Raises:
        ValueError: If scores, lengths or clusters do not fit, or no text of the pool
            has a score.
    """
    if table.names != pool.names:
        raise ValueError(f"scores must be the same, got {table.names}, {pool.names}")
    if (clusters is None) != (pool_clusters is None):
        raise ValueError("clusters must be of both sets or of none")
    values_NM, pool_LM = (np.asarray(t.values, np.float64) for t in (table, pool))
    if len(values_NM) != len(texts) or len(pool_LM) != len(pool_texts):
        raise ValueError("each text must have a row of scores")
    is_scored_N, is_scored_L = scored_texts(values_NM), scored_texts(pool_LM)
    n_pool = int(is_scored_L.sum())
    p_NM, adjusted_NM = np.full((2, *values_NM.shape), np.nan)
    thresholds = []
    for m, method in enumerate(table.names):
        pool_L = pool_LM[is_scored_L, m]
        p_NM[:, m] = conformal_p_values(values_NM[:, m], pool_L)
        adjusted_NM[is_scored_N, m] = benjamini_hochberg(p_NM[is_scored_N, m])
        for fpr in fprs:
            n_found = int(np.count_nonzero(adjusted_NM[:, m] <= fpr))
            thresholds.append(
                _threshold(method, fpr, pool_L, values_NM[is_scored_N, m], n_found)
            )
    is_suspect = np.repeat([True, False], [len(texts), len(pool_texts)])
    both_clusters = None
    if clusters is not None and pool_clusters is not None:
        # A document of one set is another one than its namesake of the other set.
        both_clusters = [("suspect", str(c)) for c in clusters]
        both_clusters += [("pool", str(c)) for c in pool_clusters]
    blind = blind_baselines(
        [*texts, *pool_texts], is_suspect, clusters=both_clusters, seed=seed
    )
    values = np.concatenate([values_NM, pool_LM])
    scored = np.concatenate([is_scored_N, is_scored_L])
    codes = None if both_clusters is None else codes_of(both_clusters)[scored]
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
        set_result=set_result,
        blind=blind,
        warnings=_warnings(is_scored_N, is_scored_L, n_pool, fprs, set_result, blind),
    )


def _threshold(
    method: str, fpr: float, pool_L: np.ndarray, scores_N: np.ndarray, n_found: int
) -> TextThreshold:
    threshold = low = high = n_above = None
    if fpr * (len(pool_L) + 1) >= 1:
        found = threshold_at_fpr(pool_L, fpr)
        threshold, low, high = found.threshold, found.low, found.high
        n_above = int(np.count_nonzero(scores_N > threshold))
    return TextThreshold(
        method=method,
        fpr=fpr,
        threshold=threshold,
        fpr_low=low,
        fpr_high=high,
        n_pool=len(pool_L),
        n_above=n_above,
        n_discoveries=n_found,
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
        values, is_suspect, clusters=codes, n_permutations=n_permutations, seed=seed
    )
    sides = None if codes is None else (codes[is_suspect], codes[~is_suspect])
    scores = found.scores
    auc, se = auc_delong(scores[is_suspect], scores[~is_suspect], clusters=sides)
    high = auc_interval(auc, se, n=n)[1]
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
        verdict=set_verdict(found.p_value, auc_high=high, blind=blind),
        warnings=blind.warnings,
    )


def _warnings(
    is_scored_N: np.ndarray,
    is_scored_L: np.ndarray,
    n_pool: int,
    fprs: Sequence[float],
    set_result: SetResult | None,
    blind: Blind,
) -> tuple[str, ...]:
    found = []
    n_unscored = int((~is_scored_N).sum() + (~is_scored_L).sum())
    if n_unscored:
        found.append(
            f"texts without a score, which are left out: {n_unscored} (empty, or "
            "without a token that could be scored)"
        )
    for fpr in fprs:
        if fpr * (n_pool + 1) < 1:
            found.append(
                f"no threshold at a false-positive rate of {fpr:g}: it needs a pool of "
                f"at least {int(np.ceil(1 / fpr - 1 - 1e-9))} non-members, there are "
                f"{n_pool}"
            )
    if set_result is None:
        found.append(
            f"no set-level test: each set needs at least {FEWEST_OF_SET} texts, or "
            "documents where texts come from some"
        )
    elif set_result.verdict == CONFOUNDED:
        found.append(
            "the texts alone tell the suspected set from the pool, so that p-values "
            "and thresholds may show a difference of kind or date, not of memory"
        )
    found.extend(blind.warnings)
    return tuple(found)
