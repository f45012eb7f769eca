"""Decided tests: `AuditResult`, and how a command writes and prints them."""

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.errors import InputError
from jaxcontam.processes import is_first
from jaxcontam.proof.advice import (
    AuditedFile,
    Step,
    audited_files,
    next_steps,
    refusal,
    why,
)
from jaxcontam.proof.result import Evidence, OrderResult, UnscoredFile
from jaxcontam.proof.verdict import decide
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import (
    DAMAGE,
    REPORT_NAME,
    Writable,
    read_report,
    write_files,
)
from jaxcontam.stats.result import Pretest
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxcontam.data.benchmark import Benchmark
    from jaxcontam.reports.flags import ReportFlags
    from jaxcontam.scoring.opened import OpenModel


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditResult(Writable):
    """Tests of one or several benchmarks, decided.

    Attributes:
        report: Everything that `report.json` holds.
        evidence: For each row of `report.results` what its p-value was computed from.
    """

    report: Report
    evidence: tuple[Evidence | None, ...]

    @property
    def results(self) -> tuple[OrderResult, ...]:
        """Every test of every benchmark."""
        return tuple(row for row in self.report.results if isinstance(row, OrderResult))

    @property
    def unscored(self) -> tuple[UnscoredFile, ...]:
        """Files that were not scored, since their order failed its checks."""
        return self.report.unscored

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks, scored ones first."""
        rows = [*self.results, *self.unscored]
        return tuple(dict.fromkeys(row.benchmark for row in rows))

    @property
    def primary(self) -> OrderResult | None:
        """The test that decides; None where the file was not scored.

        Raises:
            ValueError: If there are several benchmarks.
        """
        if len(self.benchmarks) != 1:
            raise ValueError(
                f"{len(self.benchmarks)} benchmarks: ask result[benchmark, method]"
            )
        return next((row for row in self.results if row.primary), None)

    @property
    def verdict(self) -> str | None:
        """`contaminated`, `suspected`, `inconclusive`, `no evidence`, `invalid design`.

        Raises:
            ValueError: If there are several benchmarks.
        """
        primary = self.primary
        return self.unscored[0].verdict if primary is None else primary.verdict

    @property
    def p_value(self) -> float | None:
        """p-value of the deciding test; None where the file was not scored."""
        return None if self.primary is None else self.primary.numbers.p_value

    @property
    def effect(self) -> float | None:
        """Effect of the deciding test, nats per example boundary."""
        return None if self.primary is None else self.primary.numbers.effect

    @property
    def pretests(self) -> tuple[Pretest, ...]:
        """Checks of the file's order; a test's `refusals` are those that failed it."""
        primary = self.primary
        return self.unscored[0].pretests if primary is None else primary.pretests

    @property
    def why(self) -> str:
        """The deciding test, and the reasons for a verdict no stronger or weaker."""
        file = self._file
        return refusal(file) if isinstance(file, UnscoredFile) else why(file)

    @property
    def next_steps(self) -> tuple[Step, ...]:
        """Steps after a suspicion or an invalid design, best first: words, flags.

        Raises:
            ValueError: If there are several benchmarks.
        """
        words = kind_of(self.report.command).words(self.report)
        return next_steps(self._file, self.report.command, words)

    @property
    def _file(self) -> AuditedFile | UnscoredFile:
        if self.primary is None:
            return self.unscored[0]
        (file,) = audited_files(self.results)
        return file

    def __getitem__(self, key: str | tuple[str, str]) -> OrderResult:
        """A test by its name, or by benchmark and name.

        Raises:
            KeyError: If it was not made, or several benchmarks have it.
        """
        benchmark, method = key if isinstance(key, tuple) else (None, key)
        named = [row for row in self.results if row.method == method]
        found = [row for row in named if benchmark in (None, row.benchmark)]
        if len(found) != 1:
            made = sorted({f"{row.benchmark}, {row.method}" for row in self.results})
            raise KeyError(f"{key!r}: {len(found)} such tests among: {'; '.join(made)}")
        return found[0]

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        data = {ARCHIVE_NAME: archive_bytes(self.evidence)}
        return write_files(self.report, data, out)

    def plot(self, benchmark: str | None = None) -> "Figure":
        """Depth of each p-value, and what an example gains beside its neighbours.

        Args:
            benchmark: Which one, where there are several.

        Raises:
            ValueError: If it was not scored.
        """
        from jaxcontam.proof.plots import audit_figure

        rows = [row for row in self.results if benchmark in (None, row.benchmark)]
        if len({row.benchmark for row in rows}) != 1:
            raise ValueError(
                f"benchmark must be one that was scored, got {benchmark!r}"
            )
        return audit_figure(rows)

    def __repr__(self) -> str:
        from jaxcontam.proof.plots import summary_text

        return summary_text(
            self.report, kind_of(self.report.command).words(self.report)
        )


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
        with contextlib.suppress(InputError, OSError, *DAMAGE):
            if own & _questions(read_report(path)):
                found.append(path.parent.name)
    return tuple(found)


def _questions(report: Report) -> set[tuple[str, ...]]:
    """Model and texts of each row; also model and file, whatever --text takes of it."""
    if report.model is None:
        return set()
    model, command = report.model.fingerprint, report.command
    words = [*itertools.takewhile(lambda word: not word.startswith("--"), command[2:])]
    if "--members" in command:
        words.append(command[command.index("--members") + 1])
    files = {os.path.realpath(word) for word in words}
    by_file = itertools.product(
        [model], {row.benchmark for row in report.results}, files
    )
    return {*by_file, *((model, row.fingerprint) for row in report.results)}


def publish(
    command: "ReportFlags",
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
    from jaxcontam.reports.flags import flags_of

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
