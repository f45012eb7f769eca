"""What a reader knows and no file says: lists, roles, words that belong together."""

from eval.natural_order.words import listed
from eval.study import data_file

_FACTS = data_file(__file__)
CYCLES = tuple(_FACTS["cycles"].items())
"""Lists that begin again at their end: the words before an item, and the items."""

ROTATIONS = tuple(map(listed, _FACTS["rotations"]))
"""Labels that templates repeat."""

ROLES = tuple(tuple(map(tuple, genre["openings"])) for genre in _FACTS["roles"])
"""Genres, their roles in order, and how a row of each role may begin."""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = listed(text)
    return tuple(zip(words[::2], words[1::2], strict=True))


ANSWERS = _pairs(_FACTS["answers"])
"""What is asked for, and its answer."""

CAUSES = _pairs(_FACTS["causes"])
"""A cause, and its effect."""
