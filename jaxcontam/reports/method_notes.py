"""Words for the methods behind a report's numbers, from the tables of methods."""

from collections.abc import Iterable
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.orders.methods import METHODS, score_method
from jaxcontam.replication.catalogue import REPLICATION_METHODS
from jaxcontam.reports.page import method_rows, named_methods
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import MethodWords, Words

# Numbers of single commands, which no table of methods has.
_OTHERS = (
    MethodWords(
        name="matrix",
        label="matrix",
        finds="a published column that scores better than the others, row by row; "
        "knows nothing of where the numbers come from",
        source="the randomisation test of Fisher, summed over rows, p counted exactly",
    ),
    MethodWords(
        name="set_level",
        label="set_level",
        finds="a set of texts that as a whole is more familiar than the non-members, "
        "by the scores below together",
        source="Maini et al. 2024, arXiv:2406.06443; not as in the authors' code: "
        "scales come from both sides, all texts are held out once, and a permutation "
        "replaces the t-test",
    ),
)


def method_words(names: Iterable[str] = ()) -> Words:
    """Name -> words of every test, and of the methods that are named, where known."""
    tests = (name for name, row in METHODS.items() if hasattr(row, "words"))
    found = {name: _words_of(name) for name in (*tests, *names)}
    return {name: words for name, words in found.items() if words is not None}


def report_words(report: Report) -> Words:
    """Words of every test and of the methods of a report."""
    return method_words(named_methods(report))


def named_rows(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Name, what it finds, and source of each method that a page names."""
    known = list(dict.fromkeys(names))
    words = method_words(known)
    return method_rows(words[name] for name in known if name in words)


def _words_of(name: str) -> MethodWords | None:
    for words in _OTHERS:
        if words.name == name:
            return words
    for row in REPLICATION_METHODS:
        # BLEURT and embeddings are one row for all tests.
        if name == row.name or name.startswith(f"{row.name}_"):
            return _words(name, row)
    if name in METHODS:
        return _words(name, METHODS[name])
    try:
        return _words(name, score_method(name))
    except InputError:
        # A study may have scores of its own.
        return None


def _words(name: str, row: Any) -> MethodWords:
    departure = getattr(row, "departure", "")
    words = f"{row.source}; not as in the authors' code: {departure}"
    return MethodWords(
        name=name,
        finds=row.finds,
        source=words if departure else row.source,
        label=getattr(row, "label", "") or name,
        null=getattr(row, "null", ""),
        validity=getattr(row, "validity", ""),
        proof=getattr(row, "words", None),
    )
