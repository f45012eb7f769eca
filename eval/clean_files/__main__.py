"""Is a clean model accused by any command, whatever the file?

Question: small files of many kinds (copies, near-copies, ties, blank and look-alike
rows, two rows, groups, passages; published in a drawn order, or in an order that nobody
drew; sides of unequal size or ease), and models that are functions of texts and never
saw a file. How often is each test below its level, and how often does a verdict accuse?
Command: `python -m eval.clean_files`. Hardware: 2 CPU cores, 20 minutes; no model is
trained or loaded; finished commands stay. Headline: LOG.md.

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

from eval.clean_files.commands import COMMANDS, counts
from eval.clean_files.findings import (
    ACCUSING,
    LEVELS,
    Held,
    added,
    failures,
    judged,
)
from eval.study import (
    Clock,
    Grid,
    Records,
    StudyFlags,
    finish_study,
    grouped,
    run_study,
    say,
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
    out: Path = Path("runs/clean_files")
    """Folder for counts and tables; finished commands stay."""

    positive = ("n_files", "processes")

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        check_names("command", self.only, COMMANDS)

    def run(self) -> dict[str, Any]:
        """Ask what is missing, print tables; returns the numbers."""
        clock = Clock.start()
        folder = self.out / "tiny" if self.tiny else self.out
        records = Records(folder / "records")
        parts = []
        for name in self.only or COMMANDS:
            asked = (name, 12 if self.tiny else self.n_files, self.seed)
            found = records.read(name, *asked)
            if found is None:
                say(name)
                began = Clock.start()
                tallies = counts(*asked, processes=self.processes)
                found = {"cells": tallies, **began.cost()}
                records.write(name, found, *asked)
            parts.append(found["cells"])
        tallies = added(parts)
        held = judged(tallies)
        return finish_study(
            "clean_files",
            self,
            clock=clock,
            out=folder,
            numbers={
                "n_counts": len(held),
                "failures": [
                    {**dataclasses.asdict(one), "cell": one.cell.key}
                    for one in failures(held)
                ],
                "cells": {key: dict(tallies[key]) for key in sorted(tallies)},
            },
            grids=grids(tallies, held),
            earlier_seconds=records.earlier_seconds,
        )


def grids(tallies: Mapping[str, Mapping[str, int]], held: Sequence[Held]) -> list[Grid]:
    """A line for each test, and one for each count above its level."""
    by_test = grouped(tallies.items(), lambda row: tuple(row[0].split("|")[:2]))
    rows = []
    for names, cells in by_test.items():
        word, _ = ACCUSING[names[0].split()[0]]
        for holds in ("level", "words"):
            own = added({"": t} for key, t in cells if key.endswith(f"|{holds}"))
            if own:
                rows.append((", ".join(names), holds, own[""], word))
    failing = failures(held)
    of_test = grouped(
        failing, lambda one: (f"{one.cell.command}, {one.cell.test}", one.cell.holds)
    )
    columns = {
        "command, test": lambda row: row[0] + " *" * (row[1] == "words"),
        "files": lambda row: f"{row[2]['n']}",
        "not tested": lambda row: f"{row[2]['refused']}",
        **{
            f"<={level:g}": lambda row, level=level: _share(row[2], f"p<={level}")
            for level in LEVELS
        },
        "accused": lambda row: f"{row[2][row[3]]}",
        "fail": lambda row: f"{len(of_test.get((row[0], row[1] == 'level'), ()))}",
    }
    shown = failing[:_SHOWN]
    return [
        Grid.of(
            "Shares of files below each level; files accused (*: words alone are held)",
            rows,
            columns,
        ),
        Grid.of(
            f"Counts above their level: {len(failing)} of {len(held)}"
            + f", the surest {_SHOWN}" * (len(failing) > _SHOWN),
            shown,
            {
                "command, test, kind, reader": lambda one: ", ".join(
                    filter(None, one.cell.key.split("|")[:4])
                ),
                "what": "{r.what}",
                "count": "{r.count} of {r.n}",
            },
        ),
    ]


def _share(tally: Mapping[str, int], what: str) -> str:
    n = tally["n"] - tally["refused"]
    return f"{tally[what] / n:.4f}".removeprefix("0") if n else "-"


if __name__ == "__main__":
    sys.exit(run_study("clean_files", CleanFiles))
