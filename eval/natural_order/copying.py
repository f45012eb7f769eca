"""A scorer that has read nothing and copies from its context, as language models do.

A background bigram model, and beside it what stood in the context: the word itself,
what followed the last word before, what followed the last two. It knows no file, so a
test that accuses it was fooled by the file's own order. It may know what follows what
in any such file, and is as clean; what it remembers of one file is contamination.

Dimension key
    N  bigrams of the background
    V  words of the background
    G  prefixes
    K  continuations of each
    P  ids of a prefix, padded at the left
    T  ids of a continuation, padded at the right
    L  P + T
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jaxcontam.progress import Progress
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores

PREFIX_ID = 0
"""Before each text."""

CONTEXT = 512
"""Ids that are read at once."""

# Weights of the background, and of what the context holds; a part of which the
# context has no example leaves its weight to the background.
BACKGROUND, WORD, AFTER_ONE, AFTER_TWO = 0.55, 0.1, 0.15, 0.2
# Bigrams count against so many of the unigram model.
_PRIOR = 5.0
# Number of words that the background lacks.
_UNKNOWN_WORDS = 10_000
# Entries of the largest comparison of a batch: what a processor's cache holds.
_BATCH = 1_500_000

# Case, spaces and punctuation are kept: they are what exporters and annotators differ
# in. A digit is a word, so that neighbouring numbers have words in common.
_WORD = re.compile(r" ?[^\W\d_]+|\d| ?[^\w\s]|_|\s")


@dataclasses.dataclass(frozen=True, slots=True)
class WordIds:
    """Ids of one text."""

    ids: list[int]


class WordEncoder:
    """Gives each word a number; words that it has not seen get the next one."""

    def __init__(self, words: Mapping[str, int] | None = None):
        """Begin with some words.

        Args:
            words: Their numbers, from 1 on without a gap.
        """
        self.words = dict(words or {})

    def encode(self, sequence: str, /, *, add_special_tokens: bool = False) -> WordIds:
        """Ids of a text; nothing is added."""
        words = self.words
        return WordIds(
            [words.setdefault(word, len(words) + 1) for word in _WORD.findall(sequence)]
        )

    def encode_batch(
        self, input: Sequence[str], /, *, add_special_tokens: bool = False
    ) -> list[WordIds]:
        """The same of each text."""
        return [self.encode(text) for text in input]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Bigrams:
    """What a background text says of each word after each other one.

    Attributes:
        words: Its vocabulary.
        unigram_V: Probability of each word by its id; the last is of any other word.
        pairs_N: Ascending, first id times (V + 1) plus second id.
        counts_N: Counts of these pairs.
        firsts_V: How often each word is the first of a pair.
    """

    words: Mapping[str, int]
    unigram_V: np.ndarray
    pairs_N: np.ndarray
    counts_N: np.ndarray
    firsts_V: np.ndarray

    def probability(self, before: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """p(id | id before it), of arrays of one shape; padding gives any number."""
        V = len(self.unigram_V) - 1
        # Every word that the background lacks is the last one.
        before, ids = (np.where((a < 0) | (a > V), V, a) for a in (before, ids))
        keys = before.astype(np.int64) * (V + 1) + ids
        at = np.searchsorted(self.pairs_N, keys).clip(max=len(self.pairs_N) - 1)
        counts = np.where(self.pairs_N[at] == keys, self.counts_N[at], 0)
        prior = _PRIOR * self.unigram_V[ids]
        return (counts + prior) / (self.firsts_V[before] + _PRIOR)


def fit_bigrams(
    texts: Sequence[str],
    *,
    words: Mapping[str, int] | None = None,
    separator: str = "\n",
) -> Bigrams:
    """Count the words and the pairs of words of a background.

    Args:
        texts: Each begins with `PREFIX_ID` and ends with the separator.
        words: Numbers of words that have one already.
        separator: As after each example of a file.
    """
    encoder = WordEncoder(words)
    stream = np.concatenate(
        [[PREFIX_ID, *encoder.encode(text + separator).ids] for text in texts]
    )
    V = len(encoder.words) + 1
    follows = stream[1:] != PREFIX_ID
    keys = (stream[:-1] * (V + 1) + stream[1:])[follows]
    pairs_N, counts_N = np.unique(keys, return_counts=True)
    words_V = np.bincount(stream, minlength=V + 1).astype(np.float64)
    n = words_V.sum() + _UNKNOWN_WORDS
    # What has a number and was not read is as likely as any other word.
    unigram_V = np.maximum(words_V, 1) / n
    firsts_V = np.bincount(stream[:-1][follows], minlength=V + 1)
    return Bigrams(
        encoder.words, unigram_V, pairs_N, counts_N, firsts_V.astype(np.float64)
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Published neighbours that a scorer remembers.

    Attributes:
        after: Ids of an example -> ids of those that a remembered file has before it.
        nats: By which the memory raises the log-probability of the later one.
    """

    after: Mapping[bytes, Sequence[np.ndarray]]
    nats: float

    def bonus(self, prefix: np.ndarray, ids: np.ndarray) -> float:
        """Nats that these ids gain after this prefix."""
        for before in self.after.get(ids.tobytes(), ()):
            if np.array_equal(prefix[-len(before) :], before):
                return self.nats
        return 0.0


def remember(ids: Sequence[np.ndarray], nats: float) -> Memory:
    """The memory of a file in its published order."""
    after: dict[bytes, list[np.ndarray]] = {}
    for first, second in itertools.pairwise(ids):
        after.setdefault(second.tobytes(), []).append(first)
    return Memory(after, nats)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What a reader who never saw a file expects after a text.

    Attributes:
        texts: Ids of an example -> its text, for examples in any order.
        goes_on: Whether the second of two texts is a natural sequel of the first.
        nats: By which the log-probability of a sequel is higher.
    """

    texts: Mapping[bytes, str]
    goes_on: Callable[[str, str], bool]
    nats: float

    def bonus(self, prefix: np.ndarray, ids: np.ndarray) -> float:
        """Nats that these ids gain after the prefix id and one example."""
        before, after = self.texts[prefix[1:].tobytes()], self.texts[ids.tobytes()]
        return self.nats if self.goes_on(before, after) else 0.0


def know(
    texts: Sequence[str],
    ids: Sequence[np.ndarray],
    goes_on: Callable[[str, str], bool],
    nats: float,
) -> Knowledge:
    """The knowledge of a reader who may be asked about these texts."""
    asked = {own.tobytes(): text for own, text in zip(ids, texts, strict=True)}
    return Knowledge(asked, goes_on, nats)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CopyingPairs:
    """Scores continuations of prefixes."""

    background: Bigrams
    gains: Sequence[Memory | Knowledge] = ()

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Log-probability of every id of every continuation after its prefix.

        The bonus of a remembered or expected neighbour is spread evenly over its ids.
        """
        lengths = [
            (len(group.prefix), max(map(len, group.continuations))) for group in groups
        ]
        order = sorted(range(len(groups)), key=lambda i: lengths[i])
        found: list[list[np.ndarray]] = [[] for _ in groups]
        total, done = sum(group.n_targets for group in groups), 0
        while order:
            batch = order[: _room(order, groups, lengths)]
            del order[: len(batch)]
            own = [groups[i] for i in batch]
            for i, group, scores in zip(
                batch, own, _scored(self.background, own), strict=True
            ):
                found[i] = self._with_gains(group, scores)
                done += group.n_targets
            if progress is not None:
                progress(done, total)
        return PairScores(found, 0)

    def _with_gains(
        self, group: PairGroup, scores: list[np.ndarray]
    ) -> list[np.ndarray]:
        if not self.gains:
            return scores
        found = []
        for score, ids in zip(scores, group.continuations, strict=True):
            nats = sum(gain.bonus(group.prefix, ids) for gain in self.gains)
            found.append(score + np.float32(nats / len(ids)))
        return found


def _room(
    order: Sequence[int],
    groups: Sequence[PairGroup],
    lengths: Sequence[tuple[int, int]],
) -> int:
    """How many of the next groups a batch takes."""
    n, P, T, K = 0, 0, 0, 0
    for i in order:
        P, T = max(P, lengths[i][0]), max(T, lengths[i][1])
        K = max(K, len(groups[i].continuations))
        if n and (n + 1) * K * T * (P + T) > _BATCH:
            break
        n += 1
    return n


def _scored(background: Bigrams, groups: Sequence[PairGroup]) -> list[list[np.ndarray]]:
    """Log-probabilities of groups of like lengths."""
    G = len(groups)
    K = max(len(group.continuations) for group in groups)
    P = max(len(group.prefix) for group in groups)
    T = max(len(ids) for group in groups for ids in group.continuations)
    ids_GKL = np.full((G, K, P + T), -1, np.int32)
    for g, group in enumerate(groups):
        ids_GKL[g, :, P - len(group.prefix) : P] = group.prefix
        for k, ids in enumerate(group.continuations):
            ids_GKL[g, k, P : P + len(ids)] = ids
    logprobs_GKT = _logprobs(background, ids_GKL, P)
    return [
        [logprobs_GKT[g, k, : len(ids)] for k, ids in enumerate(group.continuations)]
        for g, group in enumerate(groups)
    ]


def _logprobs(background: Bigrams, ids_GKL: np.ndarray, P: int) -> np.ndarray:
    """`logprobs_GKT`, float32, of the ids from P on; padding gives any number."""
    G, K, L = ids_GKL.shape
    # Two more at the left, so that the first id has words before it.
    wide = np.full((G, K, L + 2), -1, np.int32)
    wide[..., 2:] = ids_GKL
    # [.., i, j]: is the word at P - 2 + i that at j - 2?
    same = wide[..., P:, None] == wide[..., None, :]
    # The context of target t is what stands before P + t.
    before_TL = np.arange(L) < P + np.arange(L - P)[:, None]
    before_TL = before_TL & (ids_GKL >= 0)[..., None, :]
    word = same[..., 2:, 2:] & before_TL
    after_one = same[..., 1:-1, 1:-1] & before_TL
    after_two = same[..., :-2, :-2] & after_one
    p = background.probability(ids_GKL[..., P - 1 : -1], ids_GKL[..., P:])
    weight = np.full(p.shape, BACKGROUND + WORD + AFTER_ONE + AFTER_TWO)
    cached = np.zeros(p.shape)
    for share, there in (
        (WORD, before_TL),
        (AFTER_ONE, after_one),
        (AFTER_TWO, after_two),
    ):
        n_there = np.count_nonzero(there, axis=-1)
        n_same = np.count_nonzero(there & word, axis=-1)
        cached += share * n_same / np.maximum(n_there, 1)
        weight -= share * (n_there > 0)
    return np.log(weight * p + cached).astype(np.float32)
