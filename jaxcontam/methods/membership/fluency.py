"""How fluent texts are to a model that saw neither side: a rival of every score.

Members may rank higher only because non-members are worse language, such as texts with
two words exchanged, which no count of words or characters shows. A language model that
cannot have seen any of them says so: a reference that the user names, or, where there
is none, n-gram models of the other texts, which are weak and know no label.

Dimension key
    N  texts
    F  features
    T  tokens of a text
    P  predicted tokens of all texts
    G  distinct n-grams
    C  distinct contexts
"""

import re
from collections.abc import Sequence

import numpy as np

from jaxcontam.methods.membership.token_scores import FRACTION, mean_of_lowest

_WORD = re.compile(r"\w+|[^\w\s]")
_WORD_ORDER, _CHARACTER_ORDER = 3, 5


def fluency_of(logprobs_T: np.ndarray) -> np.ndarray:
    """(2,) float64: mean log-probability a token, and that of the least likely fifth.

    The scores `loss` and `min_k` of this model. The second is what a pair of exchanged
    words moves most. NaN without a token.

    Args:
        logprobs_T: (T,) of a text, nats.
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

    Args:
        texts: N texts.
        folds_N: (N,) int fold of each text.

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

    Args:
        tokens: N texts; the P tokens of all stand one text after the other.
        folds_N: (N,) int.
        order: Length of the longest n-grams, at least 1.
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
