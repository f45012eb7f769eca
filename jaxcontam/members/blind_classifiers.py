"""Classifiers of the blind baselines, and the features of texts that they read.

Each is fitted on some texts to judge others. How fluent a text is to a model that saw
neither side is a rival of every score: members may rank higher only because non-members
are worse language, such as texts with two words exchanged, which no count of words or
characters shows. A reference that the user names says so, or, where there is none,
n-gram models of the other texts, which are weak and know no label.

Dimension key
    N  texts
    F  features
    T  tokens of a text
    P  predicted tokens of all texts
    G  distinct n-grams
    C  distinct contexts
"""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxcontam.members.token_scores import FRACTION, mean_of_lowest

# Distinct words and character n-grams that keep their own feature; more than
# these share one now and then, which costs a little power and no validity.
_N_HASHES = 1 << 18

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(training rows, their labels, rows to judge) -> decision values, higher = member."""


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
        model.fit(features_NF[training], labels, sample_weight=_balanced(labels))
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


def _balanced(labels_N: np.ndarray) -> np.ndarray:
    """(N,) weights under which both labels weigh the same."""
    share = labels_N.mean()
    return np.where(labels_N, 0.5 / share, 0.5 / (1 - share))


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Space of two characters and more, and every space that is no blank.
_WIDE = re.compile(r"\s{2,}|[^\S ]")
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b")
_MONTH = re.compile(
    r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sep(?:t|tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)
# A text without a year: before all of them, so that one cut tells it apart.
_NO_YEAR = 0.0


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
        years = [float(year) for year in _YEAR.findall(text)]
        numbers = _NUMBER.findall(text)
        n_words = max(1, len(text.split()))
        digits = sum(c.isdigit() for c in text)
        # Beyond 15 digits a number is a code, and a float holds no more.
        largest = max((float(re.sub(r"\D", "", n)[:15]) for n in numbers), default=0.0)
        rows.append(
            [
                min(years, default=_NO_YEAR),
                max(years, default=_NO_YEAR),
                len(years) / n_words,
                len(_MONTH.findall(text)) / n_words,
                len(numbers) / n_words,
                digits / max(1, len(text)),
                np.log1p(largest),
                np.log1p(len(numbers)),
            ]
        )
    return np.array(rows, np.float64).reshape(len(texts), 8)


_WORD = re.compile(r"\w+|[^\w\s]")
_WORD_ORDER, _CHARACTER_ORDER = 3, 5


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
    return np.hstack(
        [
            _features(words, folds_N, _WORD_ORDER),
            _features([list(text) for text in texts], folds_N, _CHARACTER_ORDER),
        ]
    )


def _features(
    tokens: Sequence[Sequence[str]], folds_N: np.ndarray, order: int
) -> np.ndarray:
    lengths_N = np.array([len(some) for some in tokens], np.int64)
    found = np.split(
        held_out_logprobs(tokens, folds_N, order=order), np.cumsum(lengths_N)[:-1]
    )
    return np.array([fluency_of(some) for some in found]).reshape(len(tokens), 2)


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
