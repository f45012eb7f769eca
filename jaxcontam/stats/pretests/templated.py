"""Whether the rows of a file differ in a few words only.

Lists whose order the world knows (chemical elements by atomic number, countries by
region) look random to every check of the file, and a model that read such a list
anywhere prefers their order. They are short of words that tell one row from another.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxcontam.results import Pretest
from jaxcontam.stats.pretests.similarity import words_of

# Words in this share of the rows belong to the template.
_COMMON = 0.5
# Rows that are looked at in longer files.
_MOST_ROWS = 10_000
MOST_OWN_WORDS = 4
"""Most words outside the template in the median row of a templated file."""


def templated(texts: Sequence[str]) -> Pretest:
    """Share of the median row that at least half of all rows have, too.

    Informative, never a failure: `passed` is always True, `applicable` False. Where
    the median row has at most 4 words of its own, `note` says so: no check of the file
    can then tell whether its order is one that the world knows.

    Args:
        texts: Rows; if more than 10,000, about that many are looked at, evenly spaced.
    """
    step = math.ceil(len(texts) / _MOST_ROWS) or 1
    rows = [words_of(text) for text in texts[::step]]
    n_rows = Counter(word for row in rows for word in set(row))
    own = [sum(n_rows[word] < _COMMON * len(rows) for word in row) for row in rows]
    shares = [
        1 - n / len(row) if row else 1.0 for n, row in zip(own, rows, strict=True)
    ]
    few = len(rows) > 1 and float(np.median(own)) <= MOST_OWN_WORDS
    return Pretest(
        name="templated",
        statistic=float(np.median(shares)) if shares else 0.0,
        p_value=1.0,
        passed=True,
        # What the world knows points forwards.
        directional=True,
        applicable=False,
        note=_words(float(np.median(own))) if few else None,
    )


def is_templated(pretests: Sequence[Pretest]) -> bool:
    """Whether a battery calls its file templated."""
    return any(t.name == "templated" and t.note is not None for t in pretests)


def _words(n_own: float) -> str:
    return (
        f"rows differ in a few words only (the median one has {n_own:g} of its own): "
        "no check of the file can tell an order that the world knows from a random one"
    )
