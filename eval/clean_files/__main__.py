"""Is a clean model accused by any command, whatever the file?

Question: small files of many kinds (copies, near-copies, ties, blank and look-alike
rows, two rows, groups, passages; published in a drawn order, or in an order that nobody
drew; sides of unequal size or ease), and models that are functions of texts and never
saw a file. How often is each test below its level, and how often does a verdict accuse?
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.clean_files.commands import COMMANDS, Job, tasks_of
from eval.clean_files.findings import (
    ACCUSING,
    LEVELS,
    Held,
    added,
    failures,
    judged,
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
