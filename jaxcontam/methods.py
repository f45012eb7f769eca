"""The index of methods: `METHODS`, from the tables of the rooms."""

import importlib
from collections.abc import Iterable, Mapping

from jaxcontam.proof.kind import MATRIX_WORDS, kind_of_tests
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.methods import MethodRow, Words, joined_rows, words_of
from jaxcontam.reports.page import method_rows, named_methods
from jaxcontam.reports.report import Report

# Room -> its table, and what its methods give: a line a room.
_TABLES = {
    "orders": ("orders.methods:TESTS", "proofs"),
    "ownership": ("ownership.methods:TESTS", "proofs"),
    "members": ("members.scores:SCORES", "rankings (membership)"),
    "replication": ("replication.page:REPLICATION_METHODS", "completions (replicate)"),
}


def _table(place: str) -> Mapping[str, MethodRow]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"jaxcontam.{module}"), name)


ROOMS = {room: _table(place) for room, (place, _) in _TABLES.items()}
"""Room -> its methods by name."""

METHODS: Mapping[str, MethodRow] = {
    name: row for rows in ROOMS.values() for name, row in rows.items()
}

GIVES = {name: _TABLES[room][1] for room, rows in ROOMS.items() for name in rows}
"""Method -> what it gives."""

OWN = joined_rows((), MethodRow)
"""Methods of other packages."""

_PROOFS = {name: row for name, row in METHODS.items() if isinstance(row, TestRow)}


def method_words(names: Iterable[str] = ()) -> Words:
    """Name -> words of every test, and of the methods that are named, where known."""
    wanted = {*_PROOFS, *names}
    found = {name: words_of(row) for name, row in METHODS.items() if name in wanted}
    if MATRIX_WORDS.name in wanted:
        found[MATRIX_WORDS.name] = MATRIX_WORDS
    return found


def named_rows(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Name, what it finds, and source of each method that a page names."""
    known = list(dict.fromkeys(names))
    words = method_words(known)
    return method_rows(words[name] for name in known if name in words)


def _study_words(report: Report) -> Words:
    return method_words(named_methods(report))


STUDY = kind_of_tests(_PROOFS, words=_study_words)
"""Reports of a study, which plants what several rooms test."""
