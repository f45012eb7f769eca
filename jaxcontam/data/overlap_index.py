"""The texts of a benchmark as tables of n-grams, to be looked for in a corpus."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from jaxcontam.data.ngrams import (
    UNKNOWN,
    NgramTable,
    ngram_table,
    word_ids,
    word_keys,
    words_of,
)

LONG = 13
"""Words of the n-gram that marks an example, and of the longest whole short one."""

SHORT = 8
"""Words of the n-grams whose share is taken."""

SHINGLE = 5
"""Words of the shingles whose containment is taken."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OverlapIndex:
    """N-grams of all texts to look for; F texts, P words in all with gaps.

    Attributes:
        texts: (F,) each with runs of white space as one space.
        vocabulary: Word -> id from 1.
        keys: uint64, a random key an id.
        ids: (P,) int32, the texts' words with one `UNKNOWN` after each text.
        owner: (P,) int32, the text that a word belongs to.
        first: (F,) where each text begins.
        n_words: (F,) words of each text.
        tables: By n: `LONG` and `SHORT` for longer texts, n for texts of n words.
    """

    texts: tuple[str, ...]
    vocabulary: Mapping[str, int] = dataclasses.field(repr=False)
    keys: np.ndarray = dataclasses.field(repr=False)
    ids: np.ndarray = dataclasses.field(repr=False)
    owner: np.ndarray = dataclasses.field(repr=False)
    first: np.ndarray = dataclasses.field(repr=False)
    n_words: np.ndarray = dataclasses.field(repr=False)
    tables: Mapping[int, NgramTable] = dataclasses.field(repr=False)

    def words(self, text: int) -> np.ndarray:
        """Word ids of one text."""
        return self.ids[self.first[text] : self.first[text] + self.n_words[text]]


def overlap_index(texts: Sequence[str], *, hash_bits: int = 64) -> OverlapIndex:
    """Index texts; one with fewer than `LONG` words is looked for as a whole.

    Args:
        texts: What to look for.
        hash_bits: Fewer make hashes collide, for tests.
    """
    vocabulary: dict[str, int] = {}
    parts: list[np.ndarray] = []
    for text in texts:
        words = words_of(text)
        for word in words:
            vocabulary.setdefault(word, len(vocabulary) + 1)
        parts.append(np.append(word_ids(words, vocabulary), np.int32(UNKNOWN)))
    n_words = np.array([len(part) - 1 for part in parts], np.int64)
    ids = np.concatenate([*parts, np.zeros(0, np.int32)])
    owner = np.repeat(np.arange(len(parts), dtype=np.int32), n_words + 1)
    first = np.concatenate([[0], np.cumsum(n_words + 1)[:-1]]).astype(np.int64)
    keys = word_keys(len(vocabulary))
    # Words from a place to the end of its text.
    left = (first + n_words)[owner] - np.arange(len(ids))
    length = n_words[owner]
    is_first = np.arange(len(ids)) == first[owner]
    tables = {}
    for n in range(1, LONG + 1):
        wanted = is_first & (length == n)
        if n in (LONG, SHORT):
            wanted |= left >= n
        if (starts := np.flatnonzero(wanted)).size:
            tables[n] = ngram_table(ids, starts, n, keys, hash_bits=hash_bits)
    plain = tuple(map(collapsed, texts))
    return OverlapIndex(plain, vocabulary, keys, ids, owner, first, n_words, tables)


def collapsed(text: str) -> str:
    """A text with each run of white space as one space, and none around it."""
    return " ".join(text.split())
