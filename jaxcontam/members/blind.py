"""Blind baselines: how well the labels can be told without asking the model.

Members and non-members that were collected at different times or places differ in
words, dates or length, and then any score that reads text separates them. What these
classifiers reach, a membership score reaches without any memory of the model. Nor does
a text that is only worse language; a model that saw neither side looks for that.

Dimension key
    N  texts
    B  baselines
    F  features
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.documents import document_codes, independent_codes
from jaxcontam.members.blind_classifiers import (
    bag_of_words,
    boosted_trees,
    character_ngrams,
    cross_validated,
    length_features,
    logistic,
    ngram_fluency,
    number_features,
)
from jaxcontam.members.result import BesideReference, BlindBaseline
from jaxcontam.reports.terms import REFERENCE_SHARE
from jaxcontam.stats.roc import Difference, auc_delong, auc_interval, paired_delong

FEWEST = 10
"""Texts, or documents, of each label that cross-validation needs."""

NAMES = ("bag_of_words", "length", "numbers", "ngram", "fluency")
"""The baselines, in their order; with a reference model `REFERENCE` is the last."""

REFERENCE = "reference"
"""Baseline by a model that saw neither side."""

_FOLDS = 5
INFLATION = math.sqrt(2)
"""Factor on the error of held-out scores: text i judges text j and j judges i, so under
the null hypothesis the AUC has twice the variance that DeLong's error assumes."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Blind:
    """Cross-validated blind baselines of one set of labelled texts.

    Attributes:
        rows: One a baseline; empty where the groups are too small.
        scores: (N, B) float64, log-odds or the like, higher = member; each text's by
            classifiers that were fitted without its fold.
        folds: (N,) fold of each text.
        low: Largest lower end over the baselines, by DeLong's error, at a level that
            is corrected for their number; None where there is no baseline.
        above_chance: Whether a lower end is above 0.5 with the larger error that
            cross-validation has where the labels go with nothing.
        reference: (N, 3) float64, what a model that saw neither side says of each text:
            its two numbers, and the held-out prediction from both; None without one.
    """

    rows: tuple[BlindBaseline, ...]
    scores: np.ndarray
    folds: np.ndarray
    low: float | None
    above_chance: bool
    reference: np.ndarray | None = None
    warnings: tuple[str, ...] = ()

    @property
    def auc(self) -> float | None:
        """AUC of the best baseline, which is a little too high as a maximum."""
        return max((row.auc for row in self.rows), default=None)


def blind_baselines(
    texts: Sequence[str],
    labels_N: np.ndarray,
    *,
    clusters: Sequence[object] | None = None,
    reference_N2: np.ndarray | None = None,
    seed: int = 0,
) -> Blind:
    """Cross-validated AUC of five classifiers that never ask the model.

    `bag_of_words`: logistic regression on TF-IDF of words. `length`: boosted trees on
    sizes and compression. `numbers`: boosted trees on dates, years and digits.
    `ngram`: an n-gram model of the characters of each label, their log-ratio a
    character. `fluency`: logistic regression on log-probabilities under n-gram models
    of the other texts, labels unseen; or, in its place, `reference`: on those under a
    model that saw neither side. An AUC near 0.5 does not show that the labels were
    drawn at random; one well above shows that they were not.

    Equal texts, and those of one document, stay in one fold. `reference_N2` is
    `fluency_of` each text, NaN without a token. A label with fewer than 10 documents
    gives no baseline and a warning.

    Source:
        Das, Zhang and Tramer, "Blind Baselines Beat Membership Inference Attacks for
        Foundation Models", arXiv:2406.16201; Meeus et al., arXiv:2406.17975.
    """
    labels_N = np.asarray(labels_N, bool)
    N = len(texts)
    given = (labels_N, clusters, reference_N2)
    if any(one is not None and len(one) != N for one in given):
        raise ValueError("texts, labels and clusters must have the same length")
    codes_N = document_codes(texts, clusters)
    n_documents = min(len(np.unique(codes_N[labels_N == side])) for side in (0, 1))
    if n_documents < FEWEST:
        what = "texts" if clusters is None else "documents"
        warning = (
            f"no blind baseline: the smaller group has {n_documents} distinct {what}, "
            f"and {FEWEST} are needed"
        )
        nothing = np.empty((N, 0))
        folds_N = np.zeros(N, np.int64)
        return Blind((), nothing, folds_N, None, False, warnings=(warning,))
    folds_N = grouped_folds(labels_N, codes_N, n_folds=_FOLDS, seed=seed)
    fluency_NF = _filled(
        ngram_fluency(texts, folds_N) if reference_N2 is None else reference_N2
    )
    names = NAMES if reference_N2 is None else (*NAMES[:-1], REFERENCE)
    fits = (
        bag_of_words(texts),
        boosted_trees(length_features(texts), seed),
        boosted_trees(number_features(texts), seed),
        character_ngrams(texts),
        logistic(fluency_NF),
    )
    scores_NB = np.stack(
        [cross_validated(fit, labels_N, folds_N) for fit in fits], axis=1
    )
    # None where each text is its own, which needs fewer assumptions.
    units_N = independent_codes(texts, clusters)
    corrected = 1 - 0.05 / len(NAMES)
    rows, lows, surest = [], [], 0.0
    for name, scores_N in zip(names, scores_NB.T, strict=True):
        auc, se, n = _auc(scores_N, labels_N, units_N)
        low, high = auc_interval(auc, INFLATION * se, n=n)
        rows.append(BlindBaseline(name=name, auc=auc, auc_low=low, auc_high=high))
        lows.append(auc_interval(auc, se, n=n, level=corrected)[0])
        chance = auc_interval(auc, INFLATION * se, n=n, level=corrected)
        surest = max(surest, chance[0])
    return Blind(
        rows=tuple(rows),
        scores=scores_NB,
        folds=folds_N,
        low=max(lows),
        above_chance=surest > 0.5,
        reference=None
        if reference_N2 is None
        else np.column_stack([fluency_NF, scores_NB[:, -1]]),
    )


def increment(
    blind: Blind,
    score_N: np.ndarray,
    labels_N: np.ndarray,
    *,
    clusters_N: np.ndarray | None = None,
) -> Difference:
    """AUC of blind scores with a membership score, minus that of blind scores alone.

    Both are logistic regressions, cross-validated in the folds of the baselines. An
    increment near 0 means that the score tells nothing that the texts do not; where the
    labels go with the date, a positive one may still be a better guess of the date.
    `score_N` may hold NaN; `clusters_N` are document codes for the error.

    Returns:
        The increment; its p-value is one-sided, of a score that adds nothing.

    Source:
        Paired DeLong between held-out predictions. A useless score costs the larger
        regression a little, so that the test is conservative; see Demler, Pencina and
        D'Agostino (2012) for what goes wrong without held-out predictions.
    """
    if not blind.rows:
        raise ValueError("blind must have at least one baseline")
    kept_N = np.isfinite(score_N)
    labels_N, folds_N = np.asarray(labels_N, bool)[kept_N], blind.folds[kept_N]
    blind_NF = blind.scores[kept_N]
    both_NF = np.column_stack([blind_NF, np.asarray(score_N, np.float64)[kept_N]])
    predicted = [
        cross_validated(logistic(features_NF), labels_N, folds_N)
        for features_NF in (both_NF, blind_NF)
    ]
    sides = None
    if clusters_N is not None:
        codes_N = np.asarray(clusters_N)[kept_N]
        sides = codes_N[labels_N], codes_N[~labels_N]
    found = paired_delong(
        predicted[0][labels_N],
        predicted[0][~labels_N],
        predicted[1][labels_N],
        predicted[1][~labels_N],
        clusters=sides,
    )
    half = found.p_value / 2
    return dataclasses.replace(
        found, p_value=half if found.difference > 0 else 1 - half
    )


def beside_reference(
    blind: Blind,
    score: str,
    score_N: np.ndarray,
    labels_N: np.ndarray,
    *,
    clusters_N: np.ndarray | None = None,
) -> BesideReference | None:
    """A score beside a model that saw neither side; None where none was asked.

    Two hypotheses of a clean model, for which one side is easier to read: the reference
    ranks as well; it shows half of the score's excess over an AUC of 0.5, or more.
    Scores are finite; `clusters_N` are document codes for the errors.
    """
    if blind.reference is None:
        return None
    sides = None
    if clusters_N is not None:
        sides = clusters_N[labels_N], clusters_N[~labels_N]

    def one_sided(other_N: np.ndarray, share: float) -> float:
        found = paired_delong(
            score_N[labels_N],
            score_N[~labels_N],
            other_N[labels_N],
            other_N[~labels_N],
            clusters=sides,
            share=share,
        )
        half = found.p_value / 2
        return half if found.difference > 0 else 1 - half

    def auc(one_N: np.ndarray) -> float:
        return auc_delong(one_N[labels_N], one_N[~labels_N])[0]

    return BesideReference(
        score=score,
        score_auc=auc(score_N),
        reference_auc=max(map(auc, blind.reference.T)),
        p_value=max(one_sided(one_N, 1.0) for one_N in blind.reference.T),
        half_p_value=max(
            one_sided(one_N, REFERENCE_SHARE) for one_N in blind.reference.T
        ),
    )


def grouped_folds(
    labels_N: np.ndarray, clusters_N: np.ndarray, *, n_folds: int, seed: int
) -> np.ndarray:
    """(N,) folds with whole documents and about the same share of members in each.

    Documents come in random order, the largest first, and go where the fewest texts of
    their label are. Fewer folds where a label has fewer documents.
    """
    labels_N = np.asarray(labels_N, bool)
    _, codes_N = np.unique(clusters_N, return_inverse=True)
    members_C = np.bincount(codes_N, labels_N)
    others_C = np.bincount(codes_N, ~labels_N)
    fewest = min(np.count_nonzero(members_C), np.count_nonzero(others_C))
    n_folds = min(n_folds, int(fewest))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed])))
    order = rng.permutation(len(members_C))
    order = order[np.argsort(-(members_C + others_C)[order], kind="stable")]
    filled = np.zeros((2, n_folds))
    fold_C = np.empty(len(members_C), np.int64)
    for c in order:
        side = int(members_C[c] < others_C[c])
        # Ties of the own label are settled by the size of the fold.
        fold = int(np.lexsort((filled.sum(axis=0), filled[side]))[0])
        fold_C[c] = fold
        filled[:, fold] += members_C[c], others_C[c]
    return fold_C[codes_N]


def _filled(features_NF: np.ndarray) -> np.ndarray:
    """Features with the mean of the others where a text has none."""
    known_NF = np.isfinite(features_NF)
    count_F = np.maximum(1, known_NF.sum(axis=0))
    mean_F = np.where(known_NF, features_NF, 0.0).sum(axis=0) / count_F
    return np.where(known_NF, features_NF, mean_F)


def _auc(
    scores_N: np.ndarray, labels_N: np.ndarray, codes_N: np.ndarray | None
) -> tuple[float, float, int]:
    """AUC, its error, and the size of the smaller group, in documents if there are."""
    sides = None
    n = min(int(labels_N.sum()), int((~labels_N).sum()))
    if codes_N is not None:
        sides = codes_N[labels_N], codes_N[~labels_N]
        n = min(len(np.unique(side)) for side in sides)
    auc, se = auc_delong(scores_N[labels_N], scores_N[~labels_N], clusters=sides)
    return auc, se, n
