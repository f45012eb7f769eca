r"""Word n-grams of texts: words, hash tables with exact matches, and their index.

Words are the runs of `\w` in the lower-cased NFKC form of a text: case, punctuation,
white space and width of characters do not count. A language that is written without
spaces has few and long words, so that its n-grams are rarer than in English.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat

import numpy as np

UNKNOWN = 0
"""Id of every word outside the vocabulary, and of the gap between documents."""

_find_words = re.compile(r"\w+").findall
# No letters under NFKC either: without them most English text is ASCII, which is
# split several times faster.
_TYPOGRAPHIC = "\u00a0\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026"
_ASCII_WORDS = bytes(
    ord(chr(byte).lower()) if byte < 128 and _find_words(chr(byte)) else ord(" ")
    for byte in range(256)
)
# 2^64 / golden ratio, odd: multiplying by it spreads low bits to the top.
_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# Slots of the first filter for each n-gram of a table: 1 in 16 misses gets past it.
_SLOTS_PER_NGRAM = 16
_MAX_SLOT_BITS = 27


def words_of(text: str) -> list[str]:
    r"""Words of a text: runs of `\w` after NFKC and lower-casing."""
    if not text.isascii():
        for character in _TYPOGRAPHIC:
            text = text.replace(character, " ")
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).decode().split()
    return _find_words(unicodedata.normalize("NFKC", text).lower())


def word_ids(words: list[str], vocabulary: Mapping[str, int]) -> np.ndarray:
    """Ids of words, int32; `UNKNOWN` for those outside the vocabulary."""
    found: Callable[..., int] = vocabulary.get  # pyright: ignore[reportAssignmentType]
    return np.fromiter(map(found, words, repeat(UNKNOWN)), np.int32, len(words))


def word_keys(n_words: int) -> np.ndarray:
    """A random 64-bit key for each id in [0, n_words], uint64."""
    rng = np.random.default_rng(0)
    return rng.integers(0, _MASK, n_words + 1, dtype=np.uint64, endpoint=True)


def ngram_hashes(keys: np.ndarray, lengths: Collection[int]) -> dict[int, np.ndarray]:
    """Rolling hashes of all n-grams, for several n at once.

    Args:
        keys: (T,) uint64, the key of each word of a text.
        lengths: Values of n, each at least 1.

    Returns:
        For each n, (max(0, T - n + 1),) uint64: `[i]` is the hash of words i to
        i + n - 1, the polynomial of their keys modulo 2^64.
    """
    by_length = {1: keys}
    for n in sorted(set(lengths)):
        _add_hashes(by_length, n)
    return {n: by_length[n] for n in lengths}


def _add_hashes(by_length: dict[int, np.ndarray], n: int) -> None:
    """Add the hashes of n-grams, from two parts that other n share: 13 = 8 + 5."""
    if n in by_length:
        return
    # A recursive closure would be a reference cycle that keeps large arrays alive.
    left = 1 << ((n - 1).bit_length() - 1)
    right = n - left
    _add_hashes(by_length, left)
    _add_hashes(by_length, right)
    size = max(0, len(by_length[1]) - n + 1)
    joined = by_length[left][:size] * np.uint64(pow(_MULTIPLIER, right, 1 << 64))
    joined += by_length[right][left : left + size]
    by_length[n] = joined


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NgramTable:
    """Distinct n-grams of some texts, found by hash and then compared word by word.

    Attributes:
        n: Words of an n-gram.
        ids: (P,) int32, the texts' word ids, one after the other.
        shown_at: (G,) int64, index in `ids` of the first occurrence of each n-gram.
        starts: Indices in `ids` of all occurrences, n-gram by n-gram.
        bounds: (G + 1,) bounds of each n-gram's part of `starts`.
        hashes: (G,) uint64, ascending.
        slots: bool, True at the top bits of every hash.
        shift: Bits to drop from a hash to get its slot.
        n_same: Most n-grams that share one hash.
    """

    n: int
    ids: np.ndarray = dataclasses.field(repr=False)
    shown_at: np.ndarray = dataclasses.field(repr=False)
    starts: np.ndarray = dataclasses.field(repr=False)
    bounds: np.ndarray = dataclasses.field(repr=False)
    hashes: np.ndarray = dataclasses.field(repr=False)
    slots: np.ndarray = dataclasses.field(repr=False)
    shift: int
    n_same: int

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """Find all occurrences of the table's n-grams in a text.

        Args:
            hashes: (T - n + 1,) uint64 from `ngram_hashes` with the same keys.
            ids: (T,) int32 word ids of the text, `UNKNOWN` where in no vocabulary.

        Returns:
            (places, ngrams): index in the text, ascending, and number in the table.
            Hash collisions are excluded.
        """
        places = np.flatnonzero(self.slots[hashes >> np.uint64(self.shift)])
        wanted = hashes[places]
        ngrams = np.searchsorted(self.hashes, wanted)
        all_places, all_ngrams = [], []
        for _ in range(self.n_same):
            inside = ngrams < len(self)
            places, wanted, ngrams = places[inside], wanted[inside], ngrams[inside]
            alike = self.hashes[ngrams] == wanted
            places, wanted, ngrams = places[alike], wanted[alike], ngrams[alike]
            same = same_words(ids, places, self.ids, self.shown_at[ngrams], self.n)
            all_places.append(places[same])
            all_ngrams.append(ngrams[same])
            ngrams = ngrams + 1
        places, ngrams = np.concatenate(all_places), np.concatenate(all_ngrams)
        order = np.argsort(places, kind="stable")
        return places[order], ngrams[order]

    def held_at(self, ngrams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All occurrences of given n-grams in `ids`.

        Returns:
            (places, rows): index in `ids`, and index in `ngrams`.
        """
        counts = np.diff(self.bounds)[ngrams]
        rows = np.repeat(np.arange(len(ngrams)), counts)
        before = np.cumsum(counts) - counts
        within = np.arange(len(rows)) - before[rows]
        return self.starts[self.bounds[ngrams][rows] + within], rows


def ngram_table(
    ids: np.ndarray,
    starts: np.ndarray,
    n: int,
    keys: np.ndarray,
) -> NgramTable:
    """Table of the n-grams that start at given indices.

    Args:
        ids: (P,) int32 word ids, none `UNKNOWN` within an n-gram.
        starts: Indices in `ids`, each at most P - n, at least one.
        n: Words of an n-gram.
        keys: From `word_keys`.
    """
    all_hashes = ngram_hashes(keys[ids], [n])[n][starts]
    order = np.argsort(all_hashes, kind="stable")
    is_first, has_collision = _first_of_each(all_hashes[order], ids, starts[order], n)
    if has_collision:
        # N-grams with one hash, each kept together.
        words = [ids[starts + i] for i in reversed(range(n))]
        order = np.lexsort((*words, all_hashes))
        is_first, _ = _first_of_each(all_hashes[order], ids, starts[order], n)
    all_hashes, starts = all_hashes[order], starts[order].astype(np.int64)
    firsts = np.flatnonzero(is_first)
    hashes = all_hashes[firsts]
    slot_bits = min(
        max(8, (len(hashes) * _SLOTS_PER_NGRAM - 1).bit_length()),
        _MAX_SLOT_BITS,
    )
    shift = 64 - slot_bits
    slots = np.zeros(1 << slot_bits, bool)
    slots[hashes >> np.uint64(shift)] = True
    return NgramTable(
        n=n,
        ids=ids,
        shown_at=starts[firsts],
        starts=starts,
        bounds=np.append(firsts, len(starts)),
        hashes=hashes,
        slots=slots,
        shift=shift,
        n_same=int(np.unique(hashes, return_counts=True)[1].max()),
    )


def _first_of_each(
    hashes: np.ndarray, ids: np.ndarray, starts: np.ndarray, n: int
) -> tuple[np.ndarray, bool]:
    """Mask of n-grams that differ from the one before, and whether two share a hash."""
    has_new_hash, has_new_words = np.ones((2, len(starts)), bool)
    has_new_hash[1:] = hashes[1:] != hashes[:-1]
    has_new_words[1:] = ~same_words(ids, starts[1:], ids, starts[:-1], n)
    return has_new_hash | has_new_words, bool((has_new_words & ~has_new_hash).any())


def same_words(
    ids: np.ndarray, places: np.ndarray, others: np.ndarray, at: np.ndarray, n: int
) -> np.ndarray:
    """Whether the n ids from each place equal the n ids from its partner; bool."""
    same = np.ones(len(places), bool)
    for i in range(n):
        same &= ids[places + i] == others[at + i]
    return same


def shingles(ids: list[int], n: int) -> list[tuple[int, ...]]:
    """All n-grams of ids in order, as tuples."""
    return list(zip(*(ids[i:] for i in range(n)), strict=False))


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


def overlap_index(texts: Sequence[str]) -> OverlapIndex:
    """Index texts; one with fewer than `LONG` words is searched for as a whole."""
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
            tables[n] = ngram_table(ids, starts, n, keys)
    plain = tuple(map(collapsed, texts))
    return OverlapIndex(plain, vocabulary, keys, ids, owner, first, n_words, tables)


def collapsed(text: str) -> str:
    """A text with each run of white space as one space, and none around it."""
    return " ".join(text.split())
