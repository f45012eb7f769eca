"""Is a clean model accused, whatever the file?

Question: small files of many kinds (copies, near-copies, ties, blank and look-alike
rows, two rows, groups, passages, published in a drawn order; sides of unequal size or
ease), and models that are functions of texts and never saw a file. How often is each
test below its level, and how often does a verdict accuse? Files in an order that nobody
drew are those of `eval.natural_order`.
Command: `python -m eval.clean_files`. Hardware: 2 CPU cores, 20 minutes; no model is
trained or loaded; finished parts stay. Headline: docs/log.

Rule, fixed beforehand: where the file satisfies the null hypothesis and the test says
that it is exact, p-values are counted at 0.05, 0.01 and 0.001. Everywhere the word
that accuses is counted at its own level (`findings.ACCUSING`): where the null does not
hold, the verdict must not accuse whatever p says. Counts are of each cell (command,
test, kind of file, reader), and of its sums over kinds, over readers and over both. One
fails where so many have an exact binomial probability below 0.01 divided by the number
of counts: one failure or more in a hundred studies whose levels all hold.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.clean_files import answers, members, orders
from eval.clean_files.findings import (
    ACCUSING,
    LEVELS,
    Finding,
    Held,
    Tally,
    added,
    failures,
    judged,
    tallied,
)
from eval.population import made_records
from eval.study import (
    Clock,
    Grid,
    Records,
    StudyFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.errors import check_names

Ask = Callable[[int, Path], Iterator[Finding]]
"""(number of a file, folder for it) -> what is said of it."""

COMMANDS: Mapping[str, tuple[Ask, float]] = {
    "released": (orders.released, 1.0),
    "shuffled": (orders.shuffled, 1.0),
    "labelled": (members.labelled, 0.15),
    "asked": (members.asked, 0.2),
    "reference": (members.beside_reference, 0.06),
    "replicate": (answers.replicate, 1.0),
    "inflation": (answers.inflation, 1.0),
}
"""Commands, and the share of `--n-files` that each is asked about: less of what costs
more, such as the baselines of `membership`."""

# Files of a task.
_CHUNK = 25

Task = tuple[str, int, int]
"""A command, its first file, and the one after its last."""


def tasks_of(name: str, n_files: int, seed: int) -> list[Task]:
    """A command's share of files, from file `seed` on."""
    end = seed + max(1, round(COMMANDS[name][1] * n_files))
    starts = range(seed, end, _CHUNK)
    return [(name, start, min(start + _CHUNK, end)) for start in starts]


def counted(task: Task) -> dict[str, Tally]:
    """Findings of a command on some files, by cell."""
    name, start, end = task
    findings: list[Finding] = []
    for number in range(start, end):
        with tempfile.TemporaryDirectory() as folder:
            findings += COMMANDS[name][0](number, Path(folder))
    return tallied(findings)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Inputs that a process needs to ask any command."""

    records: Records

    def inputs(self, task: Task) -> tuple[Any, ...]:
        """Name of a record, and the files that determine it."""
        return "{}-{}-{}".format(*task), *task

    def maker(self) -> Callable[[Task], dict[str, Any]]:
        """Returns what counts."""
        return lambda task: {"cells": counted(task)}


# Failing counts that the table shows; the JSON file has all.
_SHOWN = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CleanFiles(StudyFlags):
    """Ask every command about files that no model saw."""

    n_files: int = 2_000
    """Files a command."""
    only: tuple[str, ...] = ()
    """Commands to ask (default: all)."""
    processes: int = 2
    """Processes that ask."""
    any_code: bool = False
    """Take finished parts that other code counted."""
    out: Path = Path("runs/clean_files")
    """Folder for counts and tables; finished parts of a command stay."""

    positive = ("n_files", "processes")

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        check_names("command", self.only, COMMANDS)

    def run(self) -> dict[str, Any]:
        """Ask what is missing, print tables; returns the numbers."""
        clock = Clock.start()
        folder = self.out / "tiny" if self.tiny else self.out
        job = Job(records=Records(folder / "records", any_code=self.any_code))
        n_files = 12 if self.tiny else self.n_files
        tasks = [
            task
            for name in self.only or COMMANDS
            for task in tasks_of(name, n_files, self.seed)
        ]
        parts, lost = made_records(job, tasks, n_processes=self.processes, of="parts")
        tallies = added(part["cells"] for part in parts.values())
        held = judged(tallies)
        failing = [
            {**dataclasses.asdict(one), "cell": one.cell.key} for one in failures(held)
        ]
        cells = {key: dict(tallies[key]) for key in sorted(tallies)}
        return finish_study(
            "clean_files",
            self,
            clock=clock,
            out=folder,
            numbers={
                "n_counts": len(held),
                "failed": {job.inputs(task)[0]: f.reason for task, f in lost.items()},
                "failures": failing,
                "cells": cells,
            },
            grids=grids(tallies, held),
            earlier_seconds=job.records.earlier_seconds,
        )


def grids(tallies: Mapping[str, Mapping[str, int]], held: Sequence[Held]) -> list[Grid]:
    """A line for each test, and one for each count above its level."""
    failing = failures(held)
    rows = []
    for (command, test), cells in grouped(
        tallies.items(), lambda row: tuple(row[0].split("|")[:2])
    ).items():
        for holds in ("level", "words"):
            own = added({"": t} for key, t in cells if key.endswith(f"|{holds}"))
            of_test = (command, test, holds == "level")
            if own:
                fails = [
                    (one.cell.command, one.cell.test, one.cell.holds) == of_test
                    for one in failing
                ]
                name = f"{command}, {test}" + (" *" if holds == "words" else "")
                accused = own[""][ACCUSING[command.split()[0]][0]]
                rows.append((name, own[""], accused, sum(fails)))
    columns = {
        "command, test": "{r[0]}",
        "files": "{r[1][n]}",
        "not tested": lambda row: f"{row[1]['refused']}",
        **{f"<={x:g}": lambda row, x=x: _share(row[1], f"p<={x}") for x in LEVELS},
        "accused": "{r[2]}",
        "fail": "{r[3]}",
    }
    title = f"Counts above their level: {len(failing)} of {len(held)}"
    title += f", the surest {_SHOWN}" if len(failing) > _SHOWN else ""
    shown = {
        "command, test, kind, reader": lambda one: ", ".join(
            filter(None, one.cell.key.split("|")[:4])
        ),
        "what": "{r.what}",
        "count": "{r.count} of {r.n}",
    }
    words = "Shares of files below each level; files accused (*: words alone are held)"
    return [
        Grid.of(words, rows, columns),
        Grid.of(title, failing[:_SHOWN], shown),
    ]


def _share(tally: Mapping[str, int], what: str) -> str:
    n = tally["n"] - tally["refused"]
    return f"{tally[what] / n:.4f}".removeprefix("0") if n else "-"


if __name__ == "__main__":
    sys.exit(run_study("clean_files", CleanFiles))
