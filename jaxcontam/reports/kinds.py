"""Kinds of reports: what the rows, words, page, table and check of each one are.

A kind stands in the room whose command writes it, and is loaded when one is met.
"""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.errors import InputError
from jaxcontam.reports.methods import Words
from jaxcontam.reports.report import Report

if TYPE_CHECKING:
    from jaxcontam.reports.page import Page

_PLACES = {
    "audit": "orders.verify:AUDIT",
    "calibrate": "orders.verify:CALIBRATION",
    "prove": "proof.kind:MATRIX",
    "canary": "ownership.methods:VERSIONS",
    "variants": "ownership.methods:VERSIONS",
    "membership": "members.kind:MEMBERSHIP",
    "replicate": "replication.recorded:REPLICATION",
    "inflation": "score_gap.page:INFLATION",
}
COMMANDS = tuple(_PLACES)
"""Commands that write reports."""

# A study plants what several rooms test.
_STUDY = "methods:STUDY"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Files and rows to score again that `verify` is asked for."""

    benchmarks: tuple[Path, ...] = ()
    rescore: int = 0
    model: str | None = None

    def refuse(self) -> None:
        """Say that a kind of report can be asked for neither."""
        if self.benchmarks or self.rescore:
            raise InputError("a report of another command than audit")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Differences between a report and its evidence.

    Attributes:
        faults: Differences, a line each.
        n: Rows that were made again, `unit` by `unit`.
        words: What was checked, if nothing differs.
    """

    faults: list[str]
    n: int
    unit: str
    words: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of report.

    Attributes:
        report: Its dataclass, whose annotations say what its rows are.
        words: Words for the methods of a report.
        page: (report, its folder) -> page, from the report and its evidence.
        check: (folder, report.json as JSON values, what is asked) -> what differs.
        rows: Rows of results.csv as JSON values; None: those of report.json.
    """

    report: type[Report]
    words: Callable[[Report], Words]
    page: Callable[[Report, Path], "Page"]
    check: Callable[[Path, dict[str, Any], Asked], Checked]
    rows: Callable[[Report], list[dict[str, Any]]] | None = None


def kind_of(command: Sequence[str]) -> Kind:
    """The kind of the reports of a command line, by its first word."""
    place = _PLACES.get(command[0] if command else "", _STUDY)
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"jaxcontam.{module}"), name)
