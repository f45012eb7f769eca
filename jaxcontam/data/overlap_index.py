"""Index of the n-grams of a benchmark's texts, for the search of a corpus."""

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
"""Words of the n-gram that marks an example; shorter texts are matched whole."""

SHORT = 8
"""Words of the n-grams whose share found is reported."""

SHINGLE = 5
"""Words of the shingles whose containment is reported."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OverlapIndex:
    """N-grams of F texts, of P words including gaps.

    Attributes:
        texts: (F,) texts with each run of white space as one space.
        vocabulary: Word -> id from 1.
        keys: uint64, a random key for each id.
        ids: (P,) int32 word ids of the texts, each followed by one `UNKNOWN`.
        owner: (P,) int32, number of the text of each word.
        first: (F,) index of each text's first word.
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
    """Index texts; one with fewer than `LONG` words is searched for as a whole.

    Args:
        texts: Texts to search for.
        hash_bits: Bits of a hash; few make hashes collide, for tests.
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
