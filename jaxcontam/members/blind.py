"""Blind baselines, which never ask the model, and the verdict beside them.

Members and non-members that were collected at different times or places differ in
words, dates or length, and then any score that reads text separates them. What these
classifiers reach, a membership score reaches without any memory of the model.

How fluent a text is to a model that saw neither side is a rival of every score, too:
members may rank higher only because non-members are worse language, such as texts with
two words exchanged, which no count of words or characters shows. A reference that the
user names says so, or, where there is none, n-gram models of the other texts, which are
weak and know no label.

The words of the verdict are those of rankings, which prove nothing; nothing is ever
called clean.

Dimension key
    N  texts
    B  baselines
    F  features
    T  tokens of a text
    P  predicted tokens of all texts
    G  distinct n-grams
    C  distinct contexts
"""

import dataclasses
import math
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxcontam.data.documents import document_codes, independent_codes
from jaxcontam.members.result import BesideReference, BlindBaseline
from jaxcontam.members.scores import FRACTION, mean_of_lowest
from jaxcontam.reports.terms import (
    CONTAMINATED_LEVEL,
    REFERENCE_SHARE,
    SUSPECTED_LEVEL,
    RankingVerdict,
)
from jaxcontam.stats.roc import (
    Clusters,
    Difference,
    auc_delong,
    auc_interval,
    paired_delong,
)

HIGHER: RankingVerdict = "members rank higher"
MAYBE: RankingVerdict = "may rank higher"
NO_DIFFERENCE: RankingVerdict = "no difference"
LOWER: RankingVerdict = "members rank lower"
INCONCLUSIVE: RankingVerdict = "inconclusive"
CONFOUNDED: RankingVerdict = "confounded"
"""The texts alone tell the labels apart, so that a score shows no memory."""

INCREMENT_LEVEL = 0.05
"""Level at which a score must add to the blind baselines to mean anything."""

HALF_LEVEL = 0.05
"""Level at which a reference must show less than half of what the score shows."""

BLIND_AUC = 0.55
"""A blind AUC that is surely above this one confounds whatever a score reaches."""

USEFUL_AUC = 0.6
"""An AUC that a `no difference` must have been able to rule out."""

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

# Distinct words and character n-grams that keep their own feature; more than
# these share one now and then, which costs a little power and no validity.
_N_HASHES = 1 << 18
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Space of two characters and more, and every space that is no blank.
_WIDE = re.compile(r"\s{2,}|[^\S ]")
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b")
_MONTH = re.compile(
    r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sep(?:t|tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)


_WORD = re.compile(r"\w+|[^\w\s]")
_WORD_ORDER, _CHARACTER_ORDER = 3, 5

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(training rows, their labels, rows to judge) -> decision values, higher = member."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Blind:
    """Cross-validated blind baselines of one set of labelled texts.

    Attributes:
        rows: One a baseline; empty where the groups are too small.
        scores: (N, B) float64, log-odds or the like, higher = member; each text's by
            classifiers that were fitted without its fold.
        folds: (N,).
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
            f"no blind baseline: the smaller group has {n_documents} distinct {what} "
            f"(needs {FEWEST})"
        )
        folds_N = np.zeros(N, np.int64)
        return Blind((), np.empty((N, 0)), folds_N, None, False, warnings=(warning,))
    folds_N = grouped_folds(labels_N, codes_N, n_folds=_FOLDS, seed=seed)
    if reference_N2 is None:
        names, fluency_NF = NAMES, _filled(ngram_fluency(texts, folds_N))
    else:
        names, fluency_NF = (*NAMES[:-1], REFERENCE), _filled(reference_N2)
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
    both_N3 = np.column_stack([fluency_NF, scores_NB[:, -1]])
    return Blind(
        rows=tuple(rows),
        scores=scores_NB,
        folds=folds_N,
        low=max(lows),
        above_chance=surest > 0.5,
        reference=None if reference_N2 is None else both_N3,
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
    The p-value is one-sided, of a score that adds nothing. `score_N` may hold NaN;
    `clusters_N` are document codes for the error.

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
    codes_N = None if clusters_N is None else np.asarray(clusters_N)[kept_N]
    parts = [side for one_N in predicted for side in _split(one_N, labels_N)]
    found = paired_delong(*parts, clusters=_sides(codes_N, labels_N))
    return dataclasses.replace(found, p_value=_one_sided(found))


def _split(values_N: np.ndarray, labels_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values_N[labels_N], values_N[~labels_N]


def _sides(codes_N: np.ndarray | None, labels_N: np.ndarray) -> Clusters | None:
    return None if codes_N is None else _split(codes_N, labels_N)


def _one_sided(found: Difference) -> float:
    half = found.p_value / 2
    return half if found.difference > 0 else 1 - half


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
    theirs, sides = blind.reference.T, _sides(clusters_N, labels_N)

    def auc(one_N: np.ndarray) -> float:
        return auc_delong(*_split(one_N, labels_N))[0]

    def p_value(other_N: np.ndarray, share: float) -> float:
        sets = (*_split(score_N, labels_N), *_split(other_N, labels_N))
        return _one_sided(paired_delong(*sets, clusters=sides, share=share))

    return BesideReference(
        score=score,
        score_auc=auc(score_N),
        reference_auc=max(map(auc, theirs)),
        p_value=max(p_value(one_N, 1.0) for one_N in theirs),
        half_p_value=max(p_value(one_N, REFERENCE_SHARE) for one_N in theirs),
    )


def ranking_verdict(
    p_value: float,
    *,
    auc: float,
    auc_high: float,
    is_lower: bool = False,
    blind: Blind,
    unmet: Sequence[str],
    is_set: bool = False,
    constant: bool = False,
) -> RankingVerdict:
    """Verdict of the primary score, or of a set whose texts it ranks beside a pool.

    `confounded` where a blind AUC is surely above 0.55, or surely above 0.5 and, unless
    a set is asked, no lower than the score's; surely: at 95 %, corrected for the number
    of baselines. A set-level test finds the smallest difference in a large set.
    `members rank higher`, or the texts of a set do, needs a p-value of at most 0.001
    and what `conditions` asks. A score that is the same for every text shows nothing.

    `auc_high` is the upper end of the AUC's interval, for a set the largest over its
    scores and the held-out classifier; `is_lower` says that the AUC is surely below
    0.5. The p-value is corrected for several benchmarks.
    """
    if constant:
        return INCONCLUSIVE
    if blind.low is not None and blind.auc is not None:
        is_told = blind.above_chance and (is_set or blind.auc >= auc)
        if blind.low > BLIND_AUC or is_told:
            return CONFOUNDED
    if is_lower:
        return LOWER
    if p_value <= CONTAMINATED_LEVEL and not unmet:
        return HIGHER
    if p_value <= SUSPECTED_LEVEL:
        return MAYBE if auc > 0.5 else INCONCLUSIVE
    return INCONCLUSIVE if auc_high > USEFUL_AUC else NO_DIFFERENCE


def conditions(
    blind: Blind, increment_p: float | None, beside: BesideReference | None
) -> tuple[str, ...]:
    """List what `members rank higher` needs beside its p-value and has not.

    Labels that no baseline tells, since the p-value takes them for assigned by chance;
    a score that adds to the baselines; and a reference model that saw neither side, by
    which the score ranks better at 0.001 while it shows less than half of what the
    score shows, at 0.05. Where one side is a little easier to read, a reference that
    reads half of it is found out by the last.
    """
    if not blind.rows:
        return ("no blind baseline could be made: give more texts",)
    found = []
    if blind.above_chance or (blind.low is not None and blind.low > BLIND_AUC):
        found.append(
            "a blind baseline tells the sides apart, so labels were not assigned at "
            "random: take texts of one kind and date on both sides"
        )
    if increment_p is None or increment_p > INCREMENT_LEVEL:
        found.append(
            "the score is not shown to add to the blind baselines "
            f"({_needed(increment_p, INCREMENT_LEVEL)}): give more texts"
        )
    if beside is None:
        return (
            *found,
            "no reference model that saw neither side was given (membership "
            "--reference), so the verdict is at most `may rank higher`: one side may "
            "be less fluent",
        )
    aucs = f"AUC {beside.reference_auc:.2f} against {beside.score_auc:.2f}"
    if beside.p_value > CONTAMINATED_LEVEL:
        found.append(
            f"the reference model may rank as well as {beside.score} ({aucs}; "
            f"{_needed(beside.p_value, CONTAMINATED_LEVEL)}): give more texts"
        )
    if beside.half_p_value > HALF_LEVEL:
        found.append(
            f"the reference model may show half the effect of {beside.score} ({aucs}; "
            f"{_needed(beside.half_p_value, HALF_LEVEL)}), for example if one side is "
            "easier to read: give more texts, of one kind on both sides"
        )
    return tuple(found)


def verdict_warnings(
    verdict: RankingVerdict, p_value: float, auc: float, unmet: Sequence[str]
) -> tuple[str, ...]:
    """Reasons why `may rank higher` is no more, or a word on a reversed ranking."""
    if verdict == LOWER:
        return (
            f"members rank lower than non-members (AUC {auc:.2f}): check that the "
            "files, or the labels, were not swapped",
        )
    if verdict != MAYBE:
        return ()
    level = CONTAMINATED_LEVEL
    small = () if p_value <= level else (f"{_needed(p_value, level)}: give more texts",)
    return (*small, *unmet)


def _needed(p_value: float | None, level: float) -> str:
    p = "no p-value" if p_value is None else f"p = {p_value:.2g}"
    return f"{p}, at most {level:g} is required"


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
    known_NF = np.isfinite(features_NF)
    count_F = np.maximum(1, known_NF.sum(axis=0))
    mean_F = np.where(known_NF, features_NF, 0.0).sum(axis=0) / count_F
    return np.where(known_NF, features_NF, mean_F)


def _auc(
    scores_N: np.ndarray, labels_N: np.ndarray, codes_N: np.ndarray | None
) -> tuple[float, float, int]:
    """AUC, its error, and the size of the smaller group, in documents if there are."""
    sides = _sides(codes_N, labels_N)
    units = _split(np.arange(len(labels_N)), labels_N) if sides is None else sides
    auc, se = auc_delong(*_split(scores_N, labels_N), clusters=sides)
    return auc, se, min(len(np.unique(side)) for side in units)


def cross_validated(fit: Fit, labels_N: np.ndarray, folds_N: np.ndarray) -> np.ndarray:
    """(N,) decision values, each by a classifier that did not see the row's fold."""
    scores_N = np.zeros(len(labels_N))
    for fold in np.unique(folds_N):
        training = np.flatnonzero(folds_N != fold)
        held_out = np.flatnonzero(folds_N == fold)
        if len(np.unique(labels_N[training])) == 2:
            scores_N[held_out] = fit(training, labels_N[training], held_out)
    return scores_N


def bag_of_words(texts: Sequence[str]) -> Fit:
    """Logistic regression on TF-IDF of words; the weights are those of the training."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression

    counts = _hashed(texts, token_pattern=r"\b\w+\b")

    def fit(training, labels, held_out):
        weigh = TfidfTransformer(sublinear_tf=True).fit(counts[training])
        # Balanced weights: the share of members differs a little from fold to fold.
        model = LogisticRegression(class_weight="balanced", solver="liblinear")
        model.fit(weigh.transform(counts[training]), labels)
        return model.decision_function(weigh.transform(counts[held_out]))

    return fit


def boosted_trees(features_NF: np.ndarray, seed: int) -> Fit:
    """Fifty boosted trees of depth 2, which find cuts such as "after 2022"."""
    from sklearn.ensemble import GradientBoostingClassifier

    def fit(training, labels, held_out):
        model = GradientBoostingClassifier(
            n_estimators=50, max_depth=2, min_samples_leaf=3, random_state=seed
        )
        # Both labels weigh the same.
        share = labels.mean()
        weights = np.where(labels, 0.5 / share, 0.5 / (1 - share))
        model.fit(features_NF[training], labels, sample_weight=weights)
        return model.decision_function(features_NF[held_out])

    return fit


def character_ngrams(texts: Sequence[str]) -> Fit:
    """Log-ratio a character n-gram (2 to 4) under the counts of each label.

    Capitals count as other characters: a model reads them so, too.
    """
    counts = _hashed(texts, analyzer="char", ngram_range=(2, 4), lowercase=False)
    n_features = counts.shape[1]

    def fit(training, labels, held_out):
        logs = []
        for side in (True, False):
            seen = np.asarray(counts[training[labels == side]].sum(axis=0)).ravel()
            # Half a count for each feature that occurs at all, as in Krichevsky and
            # Trofimov; features of other texts must not cost the smaller label more.
            logs.append(np.log((seen + 0.5) / (seen.sum() + 0.5 * n_features)))
        total = np.maximum(np.asarray(counts[held_out].sum(axis=1)).ravel(), 1)
        return counts[held_out] @ (logs[0] - logs[1]) / total

    return fit


def logistic(features_NF: np.ndarray) -> Fit:
    """Logistic regression on features that the training texts standardise."""
    from sklearn.linear_model import LogisticRegression

    def fit(training, labels, held_out):
        rows = features_NF[training]
        middle, spread = rows.mean(axis=0), rows.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        model = LogisticRegression(class_weight="balanced")
        model.fit((rows - middle) / scale, labels)
        return model.decision_function((features_NF[held_out] - middle) / scale)

    return fit


def _hashed(texts: Sequence[str], **how: Any) -> Any:
    """Sparse (N, F) counts of hashed features; those that never occur are dropped."""
    from sklearn.feature_extraction.text import HashingVectorizer

    # Its hints know no norm of None, which the documentation names.
    how |= {"n_features": _N_HASHES, "alternate_sign": False, "norm": None}
    vectorizer = HashingVectorizer(**how)
    # A lone half of a surrogate pair, which JSON can spell, has no UTF-8.
    sound = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
    counts: Any = vectorizer.transform(sound)
    # One column stays, of zeros, where no text has any feature.
    return counts[:, np.union1d([0], counts.indices)]


def length_features(texts: Sequence[str]) -> np.ndarray:
    """(N, 11) float64: sizes of a text, on a log scale, and how it is built.

    Characters, words, lines, compressed bytes; then bytes a character, characters a
    word and compressed bytes a byte; then what a model sees and a reader of words does
    not: capitals a character, whether the first character is one, whether there is
    space at an end, runs of space a word. An empty text gives zeros.
    """
    rows = []
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        n_chars, n_words = len(text), len(text.split())
        packed = len(zlib.compress(data)) if data else 0
        sizes = np.log1p([n_chars, n_words, text.count("\n"), packed])
        shares = (
            len(data) / max(1, n_chars),
            n_chars / max(1, n_words),
            packed / max(1, len(data)),
            sum(c.isupper() for c in text) / max(1, n_chars),
            float(text[:1].isupper()),
            float(text != text.strip()),
            len(_WIDE.findall(text)) / max(1, n_words),
        )
        rows.append([*sizes, *shares])
    return np.array(rows, np.float64).reshape(len(texts), 11)


def number_features(texts: Sequence[str]) -> np.ndarray:
    """(N, 8) float64: numbers, years and months that a text names.

    Earliest year, latest year (0 without one), years, months and numbers a word,
    share of digits among the characters, largest number (log), and numbers (log).
    """
    rows = []
    for text in texts:
        # A text without a year stands before all of them: one cut tells it apart.
        years = [float(year) for year in _YEAR.findall(text)]
        span = min(years, default=0.0), max(years, default=0.0)
        numbers, n_words = _NUMBER.findall(text), max(1, len(text.split()))
        digits = sum(c.isdigit() for c in text) / max(1, len(text))
        found = (years, _MONTH.findall(text), numbers)
        # Beyond 15 digits a number is a code, and a float holds no more.
        largest = max((float(re.sub(r"\D", "", n)[:15]) for n in numbers), default=0.0)
        logs = np.log1p([largest, len(numbers)])
        rows.append([*span, *(len(one) / n_words for one in found), digits, *logs])
    return np.array(rows, np.float64).reshape(len(texts), 8)


def fluency_of(logprobs_T: np.ndarray) -> np.ndarray:
    """Mean log-probability a token, and that of the least likely fifth: (2,) float64.

    The scores `loss` and `min_k`, in nats. The second is what a pair of exchanged words
    moves most. NaN without a token.
    """
    if not len(logprobs_T):
        return np.full(2, np.nan)
    logprobs_T = np.asarray(logprobs_T, np.float64)
    return np.array([logprobs_T.mean(), mean_of_lowest(logprobs_T, FRACTION)])


def ngram_fluency(texts: Sequence[str], folds_N: np.ndarray) -> np.ndarray:
    """(N, 4) float64: `fluency_of` words, then of characters, by models of other folds.

    Trigrams of words, in any case, and five-grams of characters, each interpolated with
    its lower orders. Both sides are in the counts and no label is, so that what the
    features tell of labels they know from the texts; no text is read by a model that
    saw its fold. NaN for a text without a token.

    Source:
        Interpolation of Witten and Bell (1991), over a uniform law of all tokens.
    """
    words = [_WORD.findall(text.casefold()) for text in texts]
    features = []
    for tokens, order in ((words, _WORD_ORDER), (texts, _CHARACTER_ORDER)):
        ends_N = np.cumsum([len(some) for some in tokens], dtype=np.int64)
        logprobs_P = held_out_logprobs(tokens, folds_N, order=order)
        found = [fluency_of(some) for some in np.split(logprobs_P, ends_N[:-1])]
        features.append(np.array(found).reshape(len(texts), 2))
    return np.hstack(features)


def held_out_logprobs(
    tokens: Sequence[Sequence[str]], folds_N: np.ndarray, *, order: int
) -> np.ndarray:
    """(P,) float64 log-probability of every token, by counts of the other folds.

    Texts stand one after the other; n-grams have at most `order` tokens.
    """
    codes = {t: i for i, t in enumerate(dict.fromkeys(t for ts in tokens for t in ts))}
    V = len(codes)
    # Each text starts with marks, so that its first token has a whole context.
    padded = [[V] * (order - 1) + [codes[t] for t in ts] for ts in tokens]
    stream = np.array([code for ts in padded for code in ts], np.int64)
    is_target = np.array(
        [i >= order - 1 for ts in padded for i in range(len(ts))], bool
    )
    targets_P = np.flatnonzero(is_target)
    fold_P = np.repeat(np.asarray(folds_N), [len(ts) for ts in tokens])
    logprobs_P = np.zeros(len(targets_P))
    if not len(targets_P):
        return logprobs_P
    # What ends a place earlier, as one number: the context of the next longer n-gram.
    before = np.zeros(len(stream), np.int64)
    levels = []
    for _ in range(order):
        pairs = before * (V + 1) + stream
        _, context_P = np.unique(before[targets_P], return_inverse=True)
        _, first_P, gram_P = np.unique(
            pairs[targets_P], return_index=True, return_inverse=True
        )
        levels.append((context_P, gram_P, context_P[first_P]))
        _, whole = np.unique(pairs, return_inverse=True)
        before = np.concatenate([[0], whole[:-1] + 1])
    for fold in np.unique(fold_P):
        inside_P = fold_P == fold
        chance = np.full(int(inside_P.sum()), 1 / V)
        for context_P, gram_P, context_of_G in levels:
            chance = _interpolated(chance, inside_P, context_P, gram_P, context_of_G)
        logprobs_P[inside_P] = np.log(chance)
    return logprobs_P


def _interpolated(
    lower: np.ndarray,
    inside_P: np.ndarray,
    context_P: np.ndarray,
    gram_P: np.ndarray,
    context_of_G: np.ndarray,
) -> np.ndarray:
    """Chances of the tokens inside a fold, from counts outside and the lower order."""
    count_G = np.bincount(gram_P[~inside_P], minlength=len(context_of_G))
    n_contexts = int(context_P.max()) + 1
    count_C = np.bincount(context_P[~inside_P], minlength=n_contexts)
    kinds_C = np.bincount(context_of_G[count_G > 0], minlength=n_contexts)
    own = context_P[inside_P]
    n, kinds = count_C[own], kinds_C[own]
    seen = (count_G[gram_P[inside_P]] + kinds * lower) / np.maximum(1, n + kinds)
    return np.where(n > 0, seen, lower)
