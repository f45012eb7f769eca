"""The end of a command that tests: verdicts, files, and what is printed."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from jaxcontam.analyses.saved import write_files
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.processes import is_first
from jaxcontam.report.provenance import library_versions
from jaxcontam.results import Evidence, OrderResult, Report
from jaxcontam.terminal import Terminal, json_text
from jaxcontam.verdict import decide

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel


def with_notes(results: Sequence[OrderResult], model: "OpenModel") -> list[OrderResult]:
    """Results with what a reader should know of the model's answers."""
    notes = model.notes()
    return [dataclasses.replace(row, warnings=row.warnings + notes) for row in results]


def publish(
    results: Sequence[OrderResult],
    evidence: Sequence[Evidence],
    *,
    command: Sequence[str],
    seed: int,
    watch: Stopwatch,
    model: "OpenModel",
    min_effect: float,
    out: Path,
    as_json: bool,
    show: Callable[[list[OrderResult], Console], None],
) -> dict[str, Any]:
    """Decide, write report.json, orders.npz and report.html, print; the report.

    With several processes the first does; the others return nothing.

    Args:
        results: One per test, before verdicts.
        evidence: One a result.
        command: The command line that made it.
        seed: The run's seed.
        watch: The run's timer.
        model: What was scored.
        min_effect: See `decide`.
        out: Folder.
        as_json: Print the report instead of calling `show`.
        show: Prints the decided results.
    """
    decided = decide(with_notes(results, model), min_effect=min_effect)
    report = Report(
        command=tuple(command),
        seed=seed,
        started=watch.started,
        wall_seconds=watch.seconds,
        model=model.info,
        device=model.device,
        versions=library_versions(),
        min_effect=min_effect,
        results=tuple(decided),
    )
    if not is_first():
        return {}
    written = write_files(report, evidence, out)
    return shown(written, lambda console: show(decided, console), as_json=as_json)


def shown(
    written: tuple[dict[str, Any], Path],
    show: Callable[[Console], None],
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Print what was written, as JSON or in words; returns the document.

    Args:
        written: Document and page; see `write_files`.
        show: Prints tables and sentences.
        as_json: Print the document instead.
    """
    document, page = written
    if as_json:
        print(json_text(document))
        return document
    console = Terminal()
    show(console)
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)
    return document
