"""Whom the study asks: copying scorers.

A copying scorer has read a background of bigrams, and sees beside it what stood in the
context: the word itself, what followed the last word before, what followed the last
two. It knows no file, so a test that accuses it was fooled by the file's own order. It
may know what follows what in any such file, and is as clean; what it remembers of one
file is contamination.

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
import functools
import itertools
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, cast

import numpy as np

from eval.natural_order.words import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    OF_TOPIC,
    PLACES,
    VERBS,
    Vocabulary,
    answer,
    fill,
    foreign_sentence,
    language,
    pseudoword,
    question,
    sentence,
    thing,
)
from jaxcontam.progress import Progress
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.pair_plan import PairGroup, PairPlan
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


class WordIds(NamedTuple):
    """Ids of one text."""

    ids: list[int]


class WordEncoder:
    """Gives each word a number, from 1 on; words that it has not seen get the next."""

    def __init__(self, words: Mapping[str, int] | None = None):
        """Begin with words that have their numbers."""
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
    """Bigram counts of a background text.

    Attributes:
        unigram_V: Probability of each word by its id; the last is of any other word.
        pairs_N: Ascending, first id times (V + 1) plus second id.
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
    texts: Sequence[str], *, words: Mapping[str, int] | None = None
) -> Bigrams:
    """Count the words and pairs of words of a background; `words` have ids already."""
    encoder = WordEncoder(words)
    stream = np.concatenate(
        [[PREFIX_ID, *encoder.encode(f"{text}\n").ids] for text in texts]
    )
    V = len(encoder.words) + 1
    follows = stream[1:] != PREFIX_ID
    keys = (stream[:-1] * (V + 1) + stream[1:])[follows]
    pairs_N, counts_N = np.unique(keys, return_counts=True)
    words_V = np.bincount(stream, minlength=V + 1).astype(np.float64)
    # What has a number and was not read is as likely as any other word.
    unigram_V = np.maximum(words_V, 1) / (words_V.sum() + _UNKNOWN_WORDS)
    firsts_V = np.bincount(stream[:-1][follows], minlength=V + 1).astype(np.float64)
    return Bigrams(encoder.words, unigram_V, pairs_N, counts_N, firsts_V)


Gain = Callable[[np.ndarray, np.ndarray], float]
"""(ids of a prefix, of an example) -> nats that the example gains after it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """By example, its ids that are read before others, and those that are scored."""

    before: Mapping[int, np.ndarray]
    scored: Mapping[int, np.ndarray]

    @staticmethod
    def of(plan: PairPlan) -> "Parts":
        """Of a plan whose prefixes begin with one id of their own."""
        before = {group.example: group.prefix[1:] for group in plan.groups}
        scored: dict[int, np.ndarray] = {}
        for group in plan.groups:
            scored |= zip(group.others, group.continuations, strict=True)
        return Parts(before, scored)


def remember(parts: Parts, nats: float) -> Gain:
    """The memory of a file: what it published next to each other gains so much."""
    published = {
        (before.tobytes(), parts.scored[i + 1].tobytes())
        for i, before in parts.before.items()
        if i + 1 in parts.scored
    }
    return lambda prefix, own: (
        nats * ((prefix[1:].tobytes(), own.tobytes()) in published)
    )


def know(
    texts: Sequence[str],
    parts: Parts,
    goes_on: Callable[[str, str], bool],
    nats: float,
) -> Gain:
    """The knowledge of a reader who never saw a file: natural sequels gain so much."""
    before, scored = (
        {ids.tobytes(): texts[i] for i, ids in own.items()}
        for own in (parts.before, parts.scored)
    )
    # Texts that look alike at the seam could not be told apart.
    assert len(before) == len(parts.before) and len(scored) == len(parts.scored)
    return lambda prefix, own: (
        nats * goes_on(before[prefix[1:].tobytes()], scored[own.tobytes()])
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CopyingPairs:
    """Scores continuations of prefixes."""

    background: Bigrams
    gains: Sequence[Gain] = ()

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Log-probability of every id of every continuation after its prefix.

        A gain is spread evenly over the ids of an example.
        """
        order = sorted(range(len(groups)), key=lambda i: -len(groups[i].prefix))
        K = max(len(group.continuations) for group in groups)
        T = max(len(ids) for group in groups for ids in group.continuations)
        found: list[list[np.ndarray]] = [[] for _ in groups]
        while order:
            # The longest prefix is the first one.
            room = _BATCH // (K * T * (len(groups[order[0]].prefix) + T))
            batch, order = order[: max(1, room)], order[max(1, room) :]
            own = [groups[i] for i in batch]
            for i, scores in zip(batch, _scored(self.background, own), strict=True):
                prefix, examples = groups[i].prefix, groups[i].continuations
                gained = (sum(gain(prefix, e) for gain in self.gains) for e in examples)
                found[i] = [
                    score + np.float32(nats / len(score))
                    for score, nats in zip(scores, gained, strict=True)
                ]
        return PairScores(found, 0)


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


_N_DOCUMENTS = 2_000


@functools.cache
def backgrounds() -> tuple[WordEncoder, Bigrams, Bigrams]:
    """Ids in common, and what scorer and reference have read; in every process."""
    one, other = (
        list(itertools.islice(background_texts(seed=seed), _N_DOCUMENTS))
        for seed in (0, 1)
    )
    own = fit_bigrams(one)
    reference = fit_bigrams(other, words=own.words)
    return WordEncoder(reference.words), own, reference


def scorer_of(background: Bigrams, gains: Sequence[Gain]) -> SequenceScorer:
    """What a test of pairs asks: it asks a scorer for nothing else."""
    pairs = CopyingPairs(background, gains)
    return cast(SequenceScorer, types.SimpleNamespace(pairs=pairs))


# Words of rows, without endings.
_ALL_WORDS = (*NOUNS, *NAMES, *PLACES, *ADJECTIVES, *VERBS)


def background_texts(*, seed: int) -> Iterator[str]:
    """Texts without end that teach to copy; the same seed gives the same ones."""
    rng = Random(f"documents copier {seed}")
    while True:
        # An unused draw a text, with which the published study was made.
        rng.random()
        yield rng.choice(_FORMS)(rng)


def _repeated_string(rng: Random) -> str:
    """Random words or syllables, and the same again once or more."""
    n = rng.randrange(8, 40)
    if rng.random() < 0.7:
        words = [rng.choice(_ALL_WORDS) for _ in range(n)]
    else:
        words = [pseudoword(rng, rng.randrange(1, 4)) for _ in range(n)]
    between = rng.choice(("\n", " ", ". ", "\n\n"))
    return between.join([" ".join(words)] * rng.randrange(2, 5))


def _repeated_sentences(rng: Random) -> str:
    """A few rows, and again in the same order or another one."""
    write = rng.choice((sentence, question, answer))
    rows = [write(rng) for _ in range(rng.randrange(2, 6))]
    parts = []
    for _ in range(rng.randrange(2, 4)):
        parts += rows
        rng.shuffle(rows)
    return "\n".join(parts)


def _lookups(rng: Random) -> str:
    """Keys with values, asked for again in any order."""
    keys = rng.sample(_ALL_WORDS, rng.randrange(4, 10))
    sign = rng.choice((" = ", ": ", " is "))
    forms = ("{below 1000}", "{made 2}")
    facts = [f"{key}{sign}{fill(rng, forms[rng.random() >= 0.5])}" for key in keys]
    return "\n".join(facts + rng.choices(facts, k=2 * len(facts)))


def _records(rng: Random) -> str:
    """JSON lines of one exporter."""
    keys = rng.sample(("id", "text", "label", "source", "name"), 3)
    label = rng.choice(("yes", "no", "a", "b"))
    separators = rng.choice(((", ", ": "), (",", ":")))
    rows = []
    for _ in range(rng.randrange(3, 7)):
        row = {
            "id": rng.randrange(10_000),
            "text": sentence(rng),
            "label": label if rng.random() < 0.8 else rng.choice(("yes", "no")),
            "source": thing(rng),
            "name": rng.choice(NAMES),
        }
        rows.append(json.dumps({k: row[k] for k in keys}, separators=separators))
    return "\n".join(rows)


def _marked(rng: Random) -> str:
    """Rows that begin alike."""
    mark = rng.choice(("- ", "* ", "Q: ", "> ", "Note: ", "<li>", "# "))
    n = rng.randrange(4, 10)
    write = rng.choice((sentence, question))
    return "\n".join(f"{mark}{write(rng)}" for _ in range(n))


def _prose(rng: Random) -> str:
    """Sentences about a few things and people, in no order."""
    words = Vocabulary(
        nouns=tuple(rng.sample(rng.choice(OF_TOPIC).nouns, 6)),
        names=tuple(rng.sample(NAMES, 2)),
    )
    return "\n".join(sentence(rng, words) for _ in range(rng.randrange(4, 10)))


def _foreign(rng: Random) -> str:
    spoken = language(rng.randrange(4))
    return "\n".join(foreign_sentence(rng, spoken) for _ in range(rng.randrange(3, 8)))


_FORMS: tuple[Callable[[Random], str], ...] = (
    *(_repeated_string, _repeated_string, _repeated_sentences, _lookups, _records),
    *(_marked, _prose, _foreign),
)
