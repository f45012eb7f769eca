r"""Word n-grams of texts: words, hash tables with exact matches, and their index.

Words are the runs of `\w`, with their marks, in the lower-cased NFKC form of a text:
case, punctuation, white space and width of characters do not count, nor what nobody
sees (`as_read`).
Where a script has no spaces between words (Han, kana, Thai, Lao, Tibetan, Myanmar,
Khmer), each sign is a word, with the vowels and marks around it. It says less than a
word of English, so that n-grams of these scripts are more common.
"""

import dataclasses
import html
import html.entities
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat

import numpy as np

UNKNOWN = 0
"""Id of every word outside the vocabulary, and of the gap between documents."""


def _ranges(blocks: Sequence[range], accept: Callable[[str], bool]) -> str:
    """Characters of some blocks as ranges of a class of a pattern."""
    codes = [i for block in blocks for i in block if accept(chr(i))]
    known = set(codes)
    begins = [i for i in codes if i - 1 not in known]
    ends = [i for i in codes if i + 1 not in known]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(begins, ends, strict=True))


# Thai to Myanmar, Khmer, radicals of Han, kana.
_BLOCKS = (
    *(range(0x0E00, 0x10A0), range(0x1780, 0x1800), range(0x2E80, 0x2FE0)),
    *(range(0x3000, 0x3100), range(0x31F0, 0x3200)),
)
_MARKED = (range(0x0300, 0x1E00), range(0x3000, 0x3100), range(0xA66F, 0xAC00))
_MARKS = _ranges(_MARKED, lambda c: unicodedata.category(c).startswith("M"))
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Letters of scripts without spaces between words.
_UNSPACED = _HAN + _ranges(_BLOCKS, str.isalnum)
# Thai and Lao write some vowels before their consonant and some behind it; a sign joins
# the next consonant to the one before it in Myanmar and Khmer.
_SIGN = (
    rf"[\u0e40-\u0e44\u0ec0-\u0ec4]?[{_UNSPACED}]"
    rf"(?:[\u1039\u17d2][{_UNSPACED}]|[{_MARKS}])*"
    "[\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3]?"
)
_signs = re.compile(_SIGN)
_find_words = re.compile(r"\w+").findall
# Vowels of many scripts are marks, which are not in \w.
_SIGN_OR_WORD = rf"[{_HAN}]|{_SIGN}|(?:[^\W{_UNSPACED}]+[{_MARKS}]*)+"
# Soft hyphens, joiners, directions, variants of a glyph.
_HIDDEN = (
    "\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef"
)
_hidden = re.compile(f"[{_HIDDEN}]")
_entity = re.compile(r"&(#\d{1,7};|#[xX][0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)")
_has_rare = re.compile(rf"[{_HIDDEN}{_MARKS}{_UNSPACED}]").search
# No letters under NFKC either: without them most English text is ASCII, which is
# split several times faster.
_TYPOGRAPHIC = "\u00a0\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026"
# Characters that are looked through for a place between two signs.
_LOOK_BACK = 100
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


def as_read(text: str) -> str:
    """A text as a page shows it: entities of HTML are characters, nothing is hidden.

    An entity may itself be escaped, `&amp;quot;`; one without its semicolon is none.
    """
    if "&" in text:
        for _ in range(2):
            text = _entity.sub(_character, text)
    return text if text.isascii() else _hidden.sub("", text)


def _character(entity: re.Match[str]) -> str:
    is_known = entity[1].startswith("#") or entity[1] in html.entities.html5
    return html.unescape(entity[0]) if is_known else entity[0]


def words_of(text: str) -> list[str]:
    """Words and signs of a text after `as_read`, NFKC and lower-casing."""
    if "&" in text:
        text = as_read(text)
    if not text.isascii():
        for character in _TYPOGRAPHIC:
            text = text.replace(character, " ")
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).decode().split()
    text = unicodedata.normalize("NFKC", text).lower()
    if _has_rare(text) is None:
        return _find_words(text)
    shown = _hidden.sub("", text)
    if len(shown) < len(text):
        text = unicodedata.normalize("NFKC", shown)
    # Compiled where it is needed, which takes longer than the import.
    return re.findall(_SIGN_OR_WORD, text)


def joined_words(words: Sequence[str], *, gap: str = " ", sign_gap: str = "") -> str:
    """Words as they are written: a gap between two, and another beside a sign."""
    joined, was_sign = "", True
    for word in words:
        is_sign = _signs.match(word) is not None
        joined += (
            f"{sign_gap if is_sign or was_sign else gap}{word}" if joined else word
        )
        was_sign = is_sign
    return joined


def words_pattern(words: str) -> str:
    """Pattern of words as they are written, whatever stands between them."""
    parts = map(re.escape, re.findall(rf"{_SIGN}|[^\s{_UNSPACED}]+", words))
    return joined_words(list(parts), gap=r"[\W_]+", sign_gap=r"[\W_]*")


def last_break(text: str, begin: int, end: int) -> int:
    """The last index in (begin, end] that cuts no word; `end` if there is none."""
    space = max(text.rfind(" ", begin, end), text.rfind("\n", begin, end)) + 1
    if space > begin:
        return space
    # The last sign may go on behind `end`.
    signs = _signs.finditer(text, max(begin, end - _LOOK_BACK), end)
    return max((at for sign in signs if (at := sign.start()) > begin), default=end)


def word_ids(words: list[str], vocabulary: Mapping[str, int]) -> np.ndarray:
    """Ids of words, int32; `UNKNOWN` for those outside the vocabulary."""
    found: Callable[..., int] = vocabulary.get  # pyright: ignore[reportAssignmentType]
    return np.fromiter(map(found, words, repeat(UNKNOWN)), np.int32, len(words))


def word_keys(n_words: int) -> np.ndarray:
    """A random 64-bit key for each id in [0, n_words], uint64."""
    rng = np.random.default_rng(0)
    return rng.integers(0, _MASK, n_words + 1, dtype=np.uint64, endpoint=True)


def ngram_hashes(keys: np.ndarray, lengths: Collection[int]) -> dict[int, np.ndarray]:
    """Rolling hashes of all n-grams, for several n at once; `keys` are those of words.

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
        """(places, ngrams) of a text: where n-grams of the table stand, and which.

        Places ascend, and hash collisions are excluded. `hashes` is (T - n + 1,) uint64
        from `ngram_hashes` with the same keys, `ids` (T,) int32 word ids.
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

    def held(self, ngrams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(at, rows) of given n-grams: index in `starts`, and index in `ngrams`."""
        counts = np.diff(self.bounds)[ngrams]
        rows = np.repeat(np.arange(len(ngrams)), counts)
        before = np.cumsum(counts) - counts
        within = np.arange(len(rows)) - before[rows]
        return self.bounds[ngrams][rows] + within, rows


def ngram_table(
    ids: np.ndarray, starts: np.ndarray, n: int, keys: np.ndarray
) -> NgramTable:
    """Table of the n-grams of n words that start at given indices.

    `ids` is (P,) int32, none `UNKNOWN` within an n-gram; `starts` holds at least one
    index in it, each at most P - n; `keys` are from `word_keys`.
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
        max(8, (len(hashes) * _SLOTS_PER_NGRAM - 1).bit_length()), _MAX_SLOT_BITS
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
    """True where the n ids from a place equal the n ids from its partner."""
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
        texts: (F,) `collapsed` texts.
        vocabulary: Word -> id from 1.
        ids: (P,) int32 word ids of the texts, each followed by one `UNKNOWN`.
        owner: (P,) int32, number of the text of each word.
        first: (F,) index of each text's first word.
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
    """A text `as_read`, each run of white space as one space, and none around it."""
    return " ".join(as_read(text).split())
