"""The index of methods: `METHODS`, from the tables of the rooms."""

import importlib
from collections.abc import Iterable, Mapping

from jaxcontam.proof.kind import MATRIX_WORDS, kind_of_tests
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.methods import MethodRow, Words, joined_rows, words_of
from jaxcontam.reports.page import method_rows, named_methods
from jaxcontam.reports.report import Report

# What the methods of a table give, and where it stands: a line a table.
_TABLES = (
    ("proofs", "orders.methods:TESTS"),
    ("proofs", "ownership.methods:TESTS"),
    ("rankings (membership)", "members.scores:SCORES"),
    ("completions (replicate)", "replication.page:REPLICATION_METHODS"),
)


def _grouped() -> dict[str, dict[str, MethodRow]]:
    found: dict[str, dict[str, MethodRow]] = {}
    for group, place in _TABLES:
        module, _, name = place.partition(":")
        table = getattr(importlib.import_module(f"jaxcontam.{module}"), name)
        found.setdefault(group, {}).update(table)
    return found


GROUPS: Mapping[str, Mapping[str, MethodRow]] = _grouped()
"""What methods give -> name -> row."""

METHODS: Mapping[str, MethodRow] = {
    name: row for rows in GROUPS.values() for name, row in rows.items()
}

OWN = joined_rows((), MethodRow)
"""Those of other packages."""

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
