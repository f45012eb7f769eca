"""Statistics that point forward: each changes its sign if a file is read backwards.

Memory of a file points forward, natural order mostly does not: likeness reads the same
backwards. But a model that can read prefers an order in which rows take up what those
before them left, memory or none.

Null hypothesis: each contiguous stratum was as likely to stand the other way round: its
statistic has a random sign, whatever drifts through the file.

A mark alone (every second row is a question) reads the same backwards; it counts where
the rows beside each other are alike, as an answer and its own question are.

Dimension key
    N  rows
    T  words, or characters, of rows
    V  distinct ones
    E  distinct words of each row, one row after the other
    P  pairs of neighbours within a stratum
    K  strata
    Q  statistics of one kind, of which the best counts
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.stats.multiple import max_t, shared_sums
from jaxcontam.stats.pretests.attraction import (
    OPEN,
    Attraction,
    draws_of,
    law_of_best,
    two_sided_p,
)
from jaxcontam.stats.pretests.null import ends_of, gate, group_codes, neighbour_pairs
from jaxcontam.stats.pretests.similarity import NumberedWords, ReadWords, read_words
from jaxcontam.stats.result import Pretest

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_REFERS = re.compile(
    r"^\W*(?:this|that|these|those|he|she|it|they|his|her|its|their|him|them|"
    r"the (?:former|latter|same)|such|as (?:before|above)|above|previous(?:ly)?|again|"
    r"also|therefore|thus|hence|then|however|moreover|but|and|so|afterwards|later)\b",
    re.IGNORECASE,
)
_NEW = re.compile(r"\b(?:an?|another|some) (\w+)(?: (\w+))?", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:the|this|that|these|those|such|its|his|her|their) (\w+)(?: (\w+))?",
    re.IGNORECASE,
)


_NUMBER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?:\.\d{1,6})?"
# The quickest way to see that a row holds no number, date or time.
_DIGIT = re.compile(r"\d")
_AFTER_WORD = re.compile(rf"(?:([^\W\d_]+)[^\w\n]{{0,4}})?(?<!\d)({_NUMBER})")
# The first numbers of a row, the last ones, and those after the most frequent words.
_FIRST, _LAST, _WORDS = 6, 2, 6

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct")
_MONTHS += ("nov", "dec")
_MONTH = rf"({'|'.join(_MONTHS)})[a-z]*\.?"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_ORDINALS += ("eighth", "ninth", "tenth", "eleventh", "twelfth")
# What comes after all that is counted, and what comes last.
_LATER = {"next": 50, "then": 50, "finally": 99, "lastly": 99, "last": 99}
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}

_ISO = re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\b")
_DAY_FIRST = re.compile(r"\b(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? {_MONTH},? (\d{{4}})\b", re.I)
_MONTH_DAY = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b", re.I)
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?\b")
_MONTH_NAME = re.compile(
    r"\b(january|february|march|april|may|june|july|august|september|october|november|"
    r"december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b(?=[ .,]|$)",
    re.I,
)
_DAY_NAME = re.compile(r"\b(mon|tues|wednes|thurs|fri|satur|sun)day\b", re.I)
_ORDINAL = re.compile(
    rf"\b(?:({'|'.join(_ORDINALS)})(?:ly)?|(\d{{1,3}})(?:st|nd|rd|th)|"
    rf"({'|'.join(_LATER)}))\b",
    re.I,
)
_ROMAN_MARK = re.compile(
    r"(?:^\W{0,2}(?=[ivxlc]+[.):])|"
    r"\b(?:chapter|section|part|act|scene|book|article|volume) )([ivxlc]{1,7})\b",
    re.I,
)
_LETTER_MARK = re.compile(r"^\W{0,2}([a-z])[.):]", re.I)


# Rows per stratum; short files have smaller ones, so that 2 ^ -K does not bind.
_SIZE, SMALL, _SHORT = 8, 5, 320
# A word that can be handed on is in at most this many rows, or this share of them.
_FEW_ROWS, _RARE = 3, 0.02
# First words that may tell speakers apart, letters that may tell languages apart.
_SPEAKERS, _LETTERS, _COMPONENTS = 4, 64, 2
# A row that ends so goes on in the next one, unless so many rows end alike (`Answer:`).
_OPEN_ENDS = frozenset(":,([{=\\\uff1a\uff0c\u3001\uff08\u3010\u300c")
_ALIKE_ENDS = 1 / 2
# Share of open rows that is no wonder in a list; lines of code have .24 to .62, rows of
# 21 public benchmarks and corpora at most .07.
_OPEN_SHARE = 0.1
# Share of rows that begin with a word that refers back, from which a note says so.
_BACK_SHARE = 0.1
# Code points of Unicode, and rows whose characters are in memory at once.
_POINTS, _ROWS_AT_ONCE = sys.maxunicode + 1, 5_000


def forward_pretests(
    texts: Sequence[str],
    *,
    groups: Sequence[object] | None = None,
    seed: int = 0,
    read: ReadWords = read_words,
) -> tuple[Pretest, ...]:
    """Test whether rows point forward: what counts on, what is taken up, who answers.

    - `forward_numbers`: numbers at the same place, or after the same word, rise or
      count on from row to row.
    - `forward_dates`: so do dates, times, months, days, ordinals, marks.
    - `forward_names`: rare words stand late in a row and early in the next.
    - `forward_references`: what is new in a row (a house) is known in the next (this
      house), or a row that refers back is like the one before it.
    - `forward_turns`: a question is like the row after it, or one speaker's row is.
    - `forward_translations`: so is a row in another script or language.
    - `forward_lines`: rows end in the middle, as lines of one text do.

    Each but the last, which tests a share, is the best of several statistics,
    two-sided, by max-T over shared signs. Rows pass or not by Holm over these alone;
    see `gate`.
    """
    codes_N = group_codes(len(texts), groups)
    rows = [ends_of(text) for text in texts]
    size = SMALL if len(rows) < _SHORT else _SIZE
    left_P, right_P, stratum_P = neighbour_pairs(codes_N, size)
    found: dict[str, np.ndarray] = {}
    if len(left_P):
        in_rows = read(tuple(rows))
        alike_P = _products(in_rows.vectors[left_P], in_rows.vectors[right_P])
        for name, marks_QN in {
            "turns": _speakers(rows, in_rows.words),
            "translations": _scripts(rows),
        }.items():
            found[name] = alike_P * (marks_QN[:, left_P] - marks_QN[:, right_P])
        refers_1N = np.array([[bool(_REFERS.match(row)) for row in rows]], np.float64)
        back_1P = alike_P * (refers_1N[:, right_P] - refers_1N[:, left_P])
        known_P = _made_known(rows, left_P, right_P)
        found["references"] = np.concatenate([back_1P, known_P[None]])
        found["names"] = _handed_on(in_rows.numbered, left_P, right_P)[None]
        found["numbers"] = _rises(numbers_by_place(rows), 0, left_P, right_P)
        scaled = [
            _rises(values_N[None], cycle, left_P, right_P)
            for values_N, cycle in zip(*scales(rows), strict=True)
        ]
        found["dates"] = np.concatenate(scaled)
    tests = []
    for name in ("numbers", "dates", "names", "references", "turns", "translations"):
        values_QP = found.get(name, np.zeros((1, 0)))
        one = _best_of_signs(values_QP, stratum_P, seed)
        tests.append(one.row(f"forward_{name}", directional=True))
    return gate([*tests, _lines_of_one_text(texts)])


def _lines_of_one_text(rows: Sequence[str]) -> Pretest:
    """Whether more rows than one in ten go on in the next one."""
    from scipy.special import bdtrc

    ends = [row.rstrip()[-1:] for row in rows]
    counts = Counter(ends)
    open_ends = {
        end for end in _OPEN_ENDS if counts[end] <= _ALIKE_ENDS * max(1, len(rows))
    }
    n_open = sum(
        end in open_ends or (end not in _OPEN_ENDS and _balance(row) > 0)
        for end, row in zip(ends, rows, strict=True)
    )
    n_back = sum(bool(_REFERS.match(row)) for row in rows)
    note = None
    if n_back >= _BACK_SHARE * len(rows) > 0:
        note = (
            f"{n_back} of {len(rows)} examples begin with a word such as this, it or "
            "but: sentences of one text, if that is what they are, come in an order "
            "that any model foretells"
        )
    return Pretest(
        name="forward_lines",
        statistic=n_open / max(1, len(rows)),
        p_value=float(bdtrc(n_open - 1, len(rows), _OPEN_SHARE)) if n_open else 1.0,
        passed=True,
        directional=True,
        note=note,
        applicable=n_open > 0,
    )


def _balance(row: str) -> int:
    """Brackets that a row opens, less those that it closes."""
    return sum(map(row.count, "([{")) - sum(map(row.count, ")]}"))


def _best_of_signs(
    values_QP: np.ndarray, stratum_P: np.ndarray, seed: int
) -> Attraction:
    """The statistic that stands out most, against the signs of the strata."""
    n_pairs = values_QP.shape[1]
    K = int(stratum_P.max()) + 1 if n_pairs else 0
    sums_QK = np.array([np.bincount(stratum_P, values, K) for values in values_QP])
    # Sums of rounded products need not cancel to 0.
    ties = 1e-9 * (1 + float(np.abs(values_QP).max(initial=0.0)))
    sums_QK = sums_QK[np.abs(sums_QK).max(axis=1, initial=0.0) > ties]
    if not len(sums_QK):
        return Attraction(0.0, 1.0, applicable=False)
    columns_QKM = sums_QK[:, :, None] * np.array([1.0, -1.0])
    chosen, p_value = 0, 1.0
    for n_draws in draws_of(K * len(sums_QK)):
        drawn = shared_sums(columns_QKM, n_draws=n_draws, seed=seed)
        if len(sums_QK) == 1:
            p_value = two_sided_p(drawn[0], columns_QKM[0], ties)
        else:
            best = max_t(np.concatenate([drawn, -drawn]), tolerances=ties)
            chosen = best.winner % len(sums_QK)
            p_value = law_of_best(best, len(sums_QK), n_draws, K)
        if p_value > OPEN:
            break
    return Attraction(float(sums_QK[chosen].sum()) / n_pairs, p_value)


def _rises(
    values_QN: np.ndarray, cycle: int, left_P: np.ndarray, right_P: np.ndarray
) -> np.ndarray:
    """(2Q, P) whether a value rises (1) or falls (-1), and whether it does so by 1."""
    # A missing value takes no step; what repeats in a cycle goes the shorter way.
    steps_QP = np.nan_to_num(values_QN[:, right_P] - values_QN[:, left_P])
    if cycle:
        steps_QP = (steps_QP + cycle // 2) % cycle - cycle // 2
        steps_QP[2 * np.abs(steps_QP) == cycle] = 0
    by_one_QP = np.where(np.abs(steps_QP) == 1, steps_QP, 0.0)
    return np.concatenate([np.sign(steps_QP), by_one_QP])


def _handed_on(
    words: NumberedWords, left_P: np.ndarray, right_P: np.ndarray
) -> np.ndarray:
    """(P,) how much later words of both stand in the first row than in the next."""
    from scipy.sparse import csr_array

    row_T = words.row
    within_T = np.arange(len(row_T)) - (np.cumsum(words.sizes) - words.sizes)[row_T]
    place_T = within_T / np.maximum(words.sizes - 1, 1)[row_T]
    # A word that stands in a row more than once stands in the middle of its places.
    n_E = np.bincount(words.entry)
    place_E = np.bincount(words.entry, place_T) / n_E
    rows_E, words_E = row_T[words.is_first], words.numbers[words.is_first]
    n_rows_E = np.bincount(words_E)[words_E]
    most = max(_FEW_ROWS, _RARE * len(words.sizes))
    rare_E = (n_rows_E >= 2) & (n_rows_E <= most)
    at, shape = (rows_E[rare_E], words_E[rare_E]), (len(words.sizes), words.n_kinds + 1)
    place_NV = csr_array((place_E[rare_E], at), shape)
    there_NV = csr_array((np.ones(len(at[0])), at), shape)
    later = _products(place_NV[left_P], there_NV[right_P])
    return later - _products(there_NV[left_P], place_NV[right_P])


def _made_known(
    rows: Sequence[str], left_P: np.ndarray, right_P: np.ndarray
) -> np.ndarray:
    """(P,) words new in the first row and known in the next, less the reverse."""
    new = [_words_after(_NEW, row) for row in rows]
    known = [_words_after(_KNOWN, row) for row in rows]
    pairs = zip(left_P.tolist(), right_P.tolist(), strict=True)
    found = [len(new[a] & known[b]) - len(known[a] & new[b]) for a, b in pairs]
    return np.array(found, np.float64)


def _speakers(rows: Sequence[str], words: Sequence[Sequence[str]]) -> np.ndarray:
    """(Q, N) whether a row asks, and whether it begins with a frequent first word."""
    marks = [[row.rstrip("\"')] \n").endswith("?") for row in rows]]
    firsts = [row[0] if row else "" for row in words]
    counts = Counter(firsts)
    for word in sorted(counts, key=lambda word: (-counts[word], word))[:_SPEAKERS]:
        marks.append([first == word for first in firsts])
    return np.array(marks, np.float64)


def _scripts(rows: Sequence[str]) -> np.ndarray:
    """(Q, N) share of letters beyond ASCII, and what tells rows' letters apart most."""
    counts_V = sum(
        (np.bincount(points_T, minlength=_POINTS) for points_T, _ in _points(rows)),
        np.zeros(_POINTS, np.int64),
    )
    letters = [c for c in np.flatnonzero(counts_V).tolist() if chr(c).isalpha()]
    frequent = sorted(letters, key=lambda c: (-counts_V[c], c))[:_LETTERS]
    # One column a frequent letter, then other letters, then what is none.
    n_frequent = len(frequent)
    column_V = np.full(_POINTS, n_frequent + 1)
    column_V[letters] = n_frequent
    column_V[frequent] = np.arange(n_frequent)
    counts, beyond = [np.zeros((0, n_frequent + 2), np.int64)], [np.zeros(0, np.int64)]
    for points_T, row_T in _points(rows):
        columns_T, n = column_V[points_T], int(row_T[-1]) + 1
        cells_T = row_T * (n_frequent + 2) + columns_T
        found = np.bincount(cells_T, minlength=n * (n_frequent + 2))
        counts.append(found.reshape(n, -1))
        beyond_T = (columns_T <= n_frequent) & (points_T > 127)
        beyond.append(np.bincount(row_T[beyond_T], minlength=n))
    counts_NV, beyond_N = np.concatenate(counts), np.concatenate(beyond)
    sizes_N = np.maximum(counts_NV[:, :-1].sum(axis=1), 1).astype(np.float64)
    shares_NV = counts_NV[:, :n_frequent] / sizes_N[:, None]
    centred_NV = shares_NV - shares_NV.mean(axis=0)
    # The main directions of the letters' covariance, which no order changes.
    _, vectors_VV = np.linalg.eigh(centred_NV.T @ centred_NV)
    main_NQ = centred_NV @ vectors_VV[:, -_COMPONENTS:]
    return np.concatenate([(beyond_N / sizes_N)[None], main_NQ.T])


def _points(rows: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Code points of a few rows at a time, each ended by a line feed; their rows."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        text = "".join(f"{row}\n" for row in some)
        points_T = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        sizes_N = np.array([len(row) + 1 for row in some])
        yield points_T.astype(np.int64), np.repeat(np.arange(len(some)), sizes_N)


def _words_after(pattern: re.Pattern[str], row: str) -> set[str]:
    return {word.lower() for pair in pattern.findall(row) for word in pair if word}


def _products(left: "csr_array", right: "csr_array") -> np.ndarray:
    return np.asarray(left.multiply(right).sum(axis=1), np.float64).ravel()


def numbers_by_place(texts: Sequence[str]) -> np.ndarray:
    """(Q, N) numbers of each row, nan where it has none at one of Q places.

    Places are the first six and the last two numbers, and the first number after each
    of the six words that stand before a number in most rows.
    """
    found = [_AFTER_WORD.findall(t) if _DIGIT.search(t) else [] for t in texts]
    n_rows = Counter(word for row in found for word in {w for w, _ in row if w})
    words = sorted(n_rows, key=lambda word: (-n_rows[word], word))[:_WORDS]
    numbers_QN = np.full((_FIRST + _LAST + len(words), len(texts)), np.nan)
    for i, row in enumerate(found):
        if not row:
            continue
        values = [float(number.replace(",", "")) for _, number in row]
        ends = values[:_FIRST], values[: -_LAST - 1 : -1]
        for start, some in zip((0, _FIRST), ends, strict=True):
            numbers_QN[start : start + len(some), i] = some
        first = dict(zip([w for w, _ in row][::-1], values[::-1], strict=True))
        for q, word in enumerate(words, _FIRST + _LAST):
            numbers_QN[q, i] = first.get(word, np.nan)
    return numbers_QN


def scales(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """(Q, N) places of each row on scales that everybody knows, and their cycles.

    Dates, times of day, months, days of the week, ordinals (also `next` and
    `finally`), Roman numerals and letters as marks; nan where a row has none. A cycle
    of 0 is none: after December comes January, after the tenth no first.
    """
    values_QN = np.full((1 + len(_SCALES), len(texts)), np.nan)
    for i, text in enumerate(texts):
        values_QN[0, i] = _date(text)
        lowered = text.lower()
        for q, (sign, pattern, value, _) in enumerate(_SCALES, 1):
            match = pattern.search(text) if sign in lowered else None
            if match is not None:
                values_QN[q, i] = value(match)
    return values_QN, [0, *(cycle for *_, cycle in _SCALES)]


def _date(text: str) -> float:
    if not _DIGIT.search(text):
        return np.nan
    for pattern, order in (
        (_ISO, (0, 1, 2)),
        (_DAY_FIRST, (2, 1, 0)),
        (_DAY_MONTH, (2, 1, 0)),
        (_MONTH_DAY, (2, 0, 1)),
    ):
        if match := pattern.search(text):
            year, month, day = (match[place + 1] for place in order)
            if not month.isdigit():
                month = _MONTHS.index(month.lower()) + 1
            return int(year) * 372.0 + int(month) * 31 + int(day)
    return np.nan


def _seconds(match: re.Match[str]) -> float:
    return int(match[1]) * 3600.0 + int(match[2]) * 60 + int(match[3] or 0)


def _ordinal(match: re.Match[str]) -> float:
    if match[2]:
        return float(match[2])
    word = (match[1] or match[3]).lower()
    return float(_LATER[word] if word in _LATER else _ORDINALS.index(word) + 1)


def _roman(match: re.Match[str]) -> float:
    digits = [_ROMAN[letter] for letter in match[1].lower()]
    pairs = zip(digits, [*digits[1:], 0], strict=True)
    return float(sum(-d if d < following else d for d, following in pairs))


# Sign that a row must hold (the quickest to see), pattern, value, cycle.
_SCALES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], float], int], ...]
_SCALES = (
    (":", _CLOCK, _seconds, 0),
    ("", _MONTH_NAME, lambda match: _MONTHS.index(match[1].lower()[:3]), 12),
    ("day", _DAY_NAME, lambda match: _DAYS.index(match[1].lower()[:3]), 7),
    ("", _ORDINAL, _ordinal, 0),
    ("", _ROMAN_MARK, _roman, 0),
    ("", _LETTER_MARK, lambda match: ord(match[1].lower()), 0),
)
