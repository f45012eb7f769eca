"""Numbers, dates and marks of a row that could count on from the row before.

Dimension key
    N  rows
    Q  places where a number may stand, or scales
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

_NUMBER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?:\.\d{1,6})?"
# The quickest way to see that a row holds no number, date or time.
_DIGIT = re.compile(r"\d")
_AFTER_WORD = re.compile(rf"(?:([^\W\d_]+)[^\w\n]{{0,4}})?(?<!\d)({_NUMBER})")
# The first numbers of a row, the last ones, and those after the most frequent words.
_FIRST, _LAST, _WORDS = 6, 2, 6

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct")
_MONTHS += ("nov", "dec")
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
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


def numbers_by_place(texts: Sequence[str]) -> np.ndarray:
    """(Q, N) numbers of each row, nan where it has none at that place.

    Places are the first six and the last two numbers, and the first number after each
    of the six words that stand before a number in most rows. Which words these are
    does not depend on the order of the rows.
    """
    found = [_AFTER_WORD.findall(t) if _DIGIT.search(t) else [] for t in texts]
    n_rows = Counter(word for row in found for word in {w for w, _ in row if w})
    words = sorted(n_rows, key=lambda word: (-n_rows[word], word))[:_WORDS]
    numbers_QN = np.full((_FIRST + _LAST + len(words), len(texts)), np.nan)
    for i, row in enumerate(found):
        if not row:
            continue
        values = [float(number.replace(",", "")) for _, number in row]
        for q, value in enumerate(values[:_FIRST]):
            numbers_QN[q, i] = value
        for q, value in enumerate(values[-_LAST:][::-1]):
            numbers_QN[_FIRST + q, i] = value
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
    readers: list[tuple[Callable[[str], float], int]] = [
        (_date, 0),
        (_clock, 0),
        (_month, 12),
        (_weekday, 7),
        (_ordinal, 0),
        (_roman, 0),
        (_letter, 0),
    ]
    values_QN = np.array([[read(text) for text in texts] for read, _ in readers])
    return values_QN.reshape(len(readers), len(texts)), [cycle for _, cycle in readers]


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


def _clock(text: str) -> float:
    match = _CLOCK.search(text) if ":" in text else None
    if match is None:
        return np.nan
    return int(match[1]) * 3600.0 + int(match[2]) * 60 + int(match[3] or 0)


def _month(text: str) -> float:
    match = _MONTH_NAME.search(text)
    return np.nan if match is None else float(_MONTHS.index(match[1].lower()[:3]))


def _weekday(text: str) -> float:
    match = _DAY_NAME.search(text) if "day" in text.lower() else None
    return np.nan if match is None else float(_DAYS.index(match[1].lower()[:3]))


def _ordinal(text: str) -> float:
    match = _ORDINAL.search(text)
    if match is None:
        return np.nan
    if match[2]:
        return float(match[2])
    word = (match[1] or match[3]).lower()
    return float(_LATER[word] if word in _LATER else _ORDINALS.index(word) + 1)


def _roman(text: str) -> float:
    match = _ROMAN_MARK.search(text)
    if match is None:
        return np.nan
    digits = [_ROMAN[letter] for letter in match[1].lower()]
    following = [*digits[1:], 0]
    return float(
        sum(-d if d < n else d for d, n in zip(digits, following, strict=True))
    )


def _letter(text: str) -> float:
    match = _LETTER_MARK.search(text)
    return np.nan if match is None else float(ord(match[1].lower()))
