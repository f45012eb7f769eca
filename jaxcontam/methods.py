"""Every test and every membership score, by name: `METHODS`."""

from collections.abc import Iterable, Mapping

from jaxcontam.members.score import ScoreMethod
from jaxcontam.members.scores import SCORES, score_words
from jaxcontam.orders.methods import TESTS
from jaxcontam.ownership.methods import TESTS as OF_OWNERS
from jaxcontam.proof.kind import MATRIX_WORDS, kind_of_tests
from jaxcontam.proof.test_row import TestRow
from jaxcontam.reports.methods import MethodRow, Words, joined_rows, words_of
from jaxcontam.reports.page import method_rows, named_methods
from jaxcontam.reports.report import Report

METHODS: Mapping[str, TestRow | ScoreMethod] = {**TESTS, **OF_OWNERS, **SCORES}

OWN = joined_rows((), MethodRow)
"""Those of other packages."""

_PROOFS: Mapping[str, TestRow] = {**TESTS, **OF_OWNERS}


def method_words(names: Iterable[str] = ()) -> Words:
    """Name -> words of every test, and of the methods that are named, where known."""
    found = {name: words_of(row) for name, row in _PROOFS.items()}
    for name in names:
        words = MATRIX_WORDS if name == MATRIX_WORDS.name else score_words(name)
        if name not in found and words is not None:
            found[name] = words
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
