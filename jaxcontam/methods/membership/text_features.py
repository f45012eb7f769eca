"""What a text looks like before any model reads it: its size, numbers and dates.

Dimension key
    N  texts
    F  features
"""

import re
import zlib
from collections.abc import Sequence

import numpy as np

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
