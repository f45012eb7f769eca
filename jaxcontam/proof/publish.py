"""The end of a command that tests: verdicts, files, and what is printed."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.errors import InputError
from jaxcontam.processes import is_first
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.verdict import decide
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.flags import ReportFlags, flags_of
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import REPORT_NAME, read_report, write_files
from jaxcontam.terminal import Terminal, json_text, printable

if TYPE_CHECKING:
    from jaxcontam.data.benchmark import Benchmark
    from jaxcontam.scoring.opened import OpenModel


def report_name(
    model: str, benchmarks: Sequence["Benchmark"], decides: Sequence[str]
) -> str:
    """`MODEL-BENCHMARK-DIGEST`, of the first benchmark and all that `decides`."""
    from jaxcontam.data.benchmark import fingerprint

    first = re.sub(r"[^\w.-]+", "_", benchmarks[0].name)[:60]
    more = f"-and-{len(benchmarks) - 1}" if len(benchmarks) > 1 else ""
    digest = fingerprint([*(one.fingerprint for one in benchmarks), *decides])
    return f"{model}-{first}{more}-{digest[7:15]}"


def earlier_reports(report: Report, out: Path) -> tuple[str, ...]:
    """Names of finished reports beside `out` that asked a model about the same files.

    Several looks at one question are several chances of a small p-value.
    """
    own, found = _questions(report), []
    for path in sorted(out.parent.glob(f"*/{REPORT_NAME}")):
        if path.parent.resolve() == out.resolve():
            continue
        with contextlib.suppress(InputError, OSError):
            if own & _questions(read_report(path)):
                found.append(path.parent.name)
    return tuple(found)


def _questions(report: Report) -> set[tuple[str, str]]:
    if report.model is None:
        return set()
    return {(report.model.fingerprint, row.fingerprint) for row in report.results}


def publish(
    command: ReportFlags,
    words: Sequence[str],
    results: Sequence[OrderResult],
    evidence: Sequence[Evidence],
    *,
    watch: Stopwatch,
    model: "OpenModel",
    min_effect: float,
    out: Path,
    show: Callable[[list[OrderResult], Terminal], None],
) -> dict[str, Any]:
    """Decide results that have no verdicts yet, write the report and print it."""
    notes = model.notes()
    noted = [dataclasses.replace(row, warnings=row.warnings + notes) for row in results]
    decided = decide(noted, min_effect=min_effect)
    report = watch.report(
        (*words, *flags_of(command)),
        command.seed,
        decided,
        model=model.info,
        device=model.device,
        min_effect=min_effect,
    )
    return shown(
        lambda: write_files(report, {ARCHIVE_NAME: archive_bytes(evidence)}, out),
        lambda console: show(decided, console),
        as_json=command.json,
    )


def shown(
    write: Callable[[], tuple[dict[str, Any], Path]],
    show: Callable[[Terminal], None],
    *,
    as_json: bool,
) -> dict[str, Any]:
    """Write a report and print it, in the first process; returns its document."""
    if not is_first():
        return {}
    document, page = write()
    if as_json:
        print(json_text(document))
        return document
    console = Terminal()
    show(console)
    console.say(f"\nreport: {printable(page)}")
    return document
