"""Is a clean model accused by any command, whatever the file?

Question: small files of many kinds (copies, near-copies, ties, blank and look-alike
rows, two rows, groups, passages; published in a drawn order, or in an order that nobody
drew; sides of unequal size or ease), and models that are functions of texts and never
saw a file. How often is each test below its level, and how often does a verdict accuse?
Command: `python -m eval.clean_files`. Hardware: 2 CPU cores, 20 minutes; no model is
trained or loaded; finished commands stay. Headline: docs/log.

Rule, fixed beforehand: where the file satisfies the null hypothesis and the test says
that it is exact, p-values are counted at 0.05, 0.01 and 0.001. Everywhere the word
that accuses is counted at its own level (`findings.ACCUSING`): where the null does not
hold, the verdict must not accuse whatever p says. Counts are of each cell (command,
test, kind of file, reader), and of its sums over kinds, over readers and over both. One
fails where so many have an exact binomial probability below 0.01 divided by the number
of counts: one failure or more in a hundred studies whose levels all hold.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.clean_files import answers, matrices, members, orders
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
from jaxcontam.progress import progress_bar

Ask = Callable[[int, Path], Iterator[Finding]]
"""(number of a file, folder for it) -> what is said of it."""

COMMANDS: Mapping[str, tuple[Ask, float]] = {
    "released": (orders.released, 1.0),
    "shuffled": (orders.shuffled, 1.0),
    "natural": (orders.natural, 0.4),
    "options": (orders.options, 1.0),
    "labelled": (members.labelled, 0.15),
    "asked": (members.asked, 0.2),
    "reference": (members.beside_reference, 0.06),
    "replicate": (answers.replicate, 1.0),
    "inflation": (answers.inflation, 1.0),
    "prove": (matrices.prove, 1.0),
    "canary": (matrices.canary, 1.0),
    "chat": (matrices.canary_chat, 1.0),
    "variants": (matrices.variants, 1.0),
}
"""What is asked, and the share of `--n-files` that it is asked of: less of what costs
more, such as the baselines of `membership`."""

# Files that a process takes at once.
_CHUNK = 25


def counts(
    name: str, n_files: int, seed: int, *, processes: int = 1
) -> dict[str, Tally]:
    """What a command says of its share of files, from file `seed` on, by cell."""
    n = max(1, round(COMMANDS[name][1] * n_files))
    chunks = [
        range(seed + start, seed + min(start + _CHUNK, n))
        for start in range(0, n, _CHUNK)
    ]
    if processes == 1:
        return added(_counted(name, chunk) for chunk in chunks)
    spawn = multiprocessing.get_context("spawn")
    with (
        progress_bar(name, unit="files/s") as progress,
        concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool,
    ):
        waiting = [pool.submit(_counted, name, chunk) for chunk in chunks]
        found = []
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            found.append(future.result())
            progress(min(n, number * _CHUNK), n)
    return added(found)


def _counted(name: str, files: Sequence[int]) -> dict[str, Tally]:
    findings: list[Finding] = []
    for number in files:
        with tempfile.TemporaryDirectory() as folder:
            findings += COMMANDS[name][0](number, Path(folder))
    return tallied(findings)


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
        failing = [
            {**dataclasses.asdict(one), "cell": one.cell.key} for one in failures(held)
        ]
        cells = {key: dict(tallies[key]) for key in sorted(tallies)}
        return finish_study(
            "clean_files",
            self,
            clock=clock,
            out=folder,
            numbers={"n_counts": len(held), "failures": failing, "cells": cells},
            grids=grids(tallies, held),
            earlier_seconds=records.earlier_seconds,
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
                name = f"{command}, {test}" + " *" * (holds == "words")
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
    title += f", the surest {_SHOWN}" * (len(failing) > _SHOWN)
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
