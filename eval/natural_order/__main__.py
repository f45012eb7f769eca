"""Is a clean model accused on files in natural order?

Question: of files whose order nobody drew (66 kinds at two strengths), and of random
orders (16 kinds), how many are refused, suspected, or called contaminated when a scorer
that never saw them and copies from its context is audited; when it also knows what
follows what (13 of the kinds); and how many are found when it remembers them?
Command: `python -m eval.natural_order`. Hardware: 2 CPU cores, an hour and a half; a
killed run goes on where it stopped. Headline: docs/log has the table.

The scorer knows no file: a background of bigrams, and a cache of what stood in the
context. One that knows gives 0.5 or 2 nats to each natural sequel, published or not.
Remembered files gain 0.5 nats at each published boundary. Each is audited beside a
reference that has read another background, has no memory, and knows as much, half as
much, or nothing; and beside a flat one that knows as much but halves every score.

Two small transformers, trained until they copy, are asked about a file of each kind,
each beside the other one; then, with one file in four read 15 times, about these.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from eval.natural_order.audited import (
    Case,
    Record,
    audited_case,
    case_file,
    record_from,
)
from eval.natural_order.kinds import KINDS
from eval.natural_order.transformers import (
    COPIES,
    SHAPES,
    copying,
    model_folder,
    train_transformer,
)
from eval.study import Clock, Column, Grid, StudyFlags, finish_study, grouped, run_study
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.progress import progress_bar
from jaxcontam.reports.figure import BLUE, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.reports.report_files import make_folder

PLANTED_NATS = 0.5
_RECORDS = "records.jsonl"
# One kind in so many is planted in the transformers.
_PLANTED_KINDS = 4
# (rows, seeds of each natural kind and strength, seeds of each random kind).
_CLEAN = ((300, 7, 13), (1_000, 1, 2))
# Nats that a sequel gains from a scorer that knows what follows what.
_KNOWS = (0.5, 2.0)
# (rows, seeds of each kind, strength and number of nats).
_KNOWING = ((300, 4), (120, 2), (1_000, 1))
# Kinds that are slow to give so many rows are left out.
_LONG = ((5_000, 1), (20_000, 1))
_LONG_KINDS = ("documents", "labels_text", "key_order", "random_sentences")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NaturalOrder(StudyFlags):
    """Audit clean copying scorers on files in natural order.

    Hardware: 2 CPU cores, an hour and a half (--tiny: seconds).
    """

    processes: int = 2
    """Processes that audit files."""
    out: Path = Path("runs/natural_order")
    """Folder for a record of each file, tables and the figure; finished files stay."""

    positive = ("processes",)

    def run(self) -> dict[str, Any]:
        """Audit what is missing, print tables; returns the numbers."""
        clock = Clock.start()
        folder = self.out / "tiny" if self.tiny else self.out
        make_folder(folder)
        cases = cases_of(self.seed, tiny=self.tiny)
        done = _finished(folder / _RECORDS)
        missing = [case for case in cases if case not in done]
        taken = [done[case] for case in cases if case in done]
        if missing:
            if any(case.reader for case in missing):
                train_readers(cases, folder)
            self._audit(missing, folder / _RECORDS, done)
        records = [done[case] for case in cases if case in done]
        return finish_study(
            "natural_order",
            self,
            clock=clock,
            out=folder,
            numbers={
                "n_cases": len(cases),
                "planted_nats": PLANTED_NATS,
                "records": [dataclasses.asdict(record) for record in records],
            },
            grids=[*grids(records), *copying_grids(records, folder)],
            figures={"natural_order": figure(records)},
            earlier_seconds=sum(record.seconds for record in taken),
        )

    def _audit(self, cases: list[Case], path: Path, done: dict[Case, Record]) -> None:
        """Audit cases in processes; each record is kept as it comes."""
        spawn = multiprocessing.get_context("spawn")
        with (
            path.open("a", encoding="utf-8") as file,
            progress_bar("files", unit="files/s") as progress,
            concurrent.futures.ProcessPoolExecutor(
                self.processes, mp_context=spawn
            ) as pool,
        ):
            waiting = [pool.submit(audited_case, case, path.parent) for case in cases]
            for number, future in enumerate(
                concurrent.futures.as_completed(waiting), 1
            ):
                record = future.result()
                done[record.case] = record
                file.write(json.dumps(dataclasses.asdict(record)) + "\n")
                file.flush()
                progress(number, len(cases))


def cases_of(seed: int, *, tiny: bool = False) -> list[Case]:
    """Every file of the study: clean ones copied and known, and remembered ones."""
    if tiny:
        kinds = ("labels_text", "running_names", "random_sentences")
        gains: tuple[dict[str, Any], ...] = (
            {},
            {"nats": PLANTED_NATS},
            {"knows": _KNOWS[-1]},
        )
        return [
            Case(kind=kind, strength=KINDS[kind].strengths[-1], n=60, seed=seed, **gain)
            for kind in kinds
            for gain in gains
            if "knows" not in gain or KINDS[kind].goes_on is not None
        ]
    clean = {
        n: [
            Case(kind=kind.name, strength=strength, n=n, seed=seed + s)
            for kind in KINDS.values()
            for s in range(n_random if kind.law == "exchangeable" else n_natural)
            for strength in kind.strengths
            if kind.most_rows is None or n <= kind.most_rows
        ]
        for n, n_natural, n_random in _CLEAN
    }
    planted = [
        Case(
            kind=kind.name,
            strength=kind.strengths[-1],
            n=300,
            seed=seed,
            nats=PLANTED_NATS,
        )
        for kind in KINDS.values()
    ]
    long = [
        Case(kind=name, strength=KINDS[name].strengths[0], n=n, seed=seed + s)
        for n, n_seeds in _LONG
        for name in _LONG_KINDS
        for s in range(n_seeds)
    ]
    knowing = [
        Case(kind=kind.name, strength=strength, n=n, seed=seed + s, knows=knows)
        for n, n_seeds in _KNOWING
        for kind in KINDS.values()
        if kind.goes_on is not None
        for strength in kind.strengths
        for knows in _KNOWS
        for s in range(n_seeds)
    ]
    short, *longer = clean.values()
    asked = [*_of_transformers(planted), *planted, *knowing]
    return [*asked, *short, *long, *itertools.chain(*longer)]


def _of_transformers(files: Sequence[Case]) -> list[Case]:
    """The same files for each transformer, clean and with some of them planted."""
    return [
        dataclasses.replace(case, nats=0.0, reader=reader, copies=copies)
        for reader in SHAPES
        for copies, step in ((0, 1), (COPIES, _PLANTED_KINDS))
        for case in files[::step]
    ]


def train_readers(cases: Sequence[Case], folder: Path) -> None:
    """Train the transformers of a study; finished ones stay.

    Args:
        cases: All of the study, finished or not.
        folder: Takes the models.
    """
    readers = sorted({case.reader for case in cases} - {""})
    for name in readers:
        train_transformer(name, folder)
    for name in readers:
        files = [case_file(c) for c in cases if c.reader == name and c.copies]
        train_transformer(name, folder, planted=files)


def _finished(path: Path) -> dict[Case, Record]:
    """Records of an earlier start; a line that was cut short is made again."""
    found: dict[Case, Record] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = record_from(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            found[record.case] = record
    return found


LEVEL = -3.0
"""log10 of the level of `contaminated`."""

_LAWS = ("exchangeable", "reversible", "forward")


def _said(verdict: str, beside: str = "verdict") -> Column:
    return lambda row: _share([getattr(one, beside) == verdict for one in row[1]])


_COLUMNS = {
    "kind": "{r[0]}",
    "files": lambda row: f"{len(row[1])}",
    "refused": lambda row: _share([one.refused for one in row[1]]),
    "contaminated": _said("contaminated"),
    "reference knows half": _said("contaminated", "verdict_half"),
    "reference is flat": _said("contaminated", "verdict_flat"),
    "reference knows nothing": _said("contaminated", "verdict_ignorant"),
    "suspected": _said("suspected"),
    "direction <= 0.001, not refused": lambda row: _share(
        [one.log10_p <= LEVEL and not one.refused for one in row[1]]
    ),
    "direction, median log10 p": lambda row: _median(one.log10_p for one in row[1]),
    "adjacency <= 0.001": lambda row: _share(
        [one.adjacency_log10_p <= LEVEL for one in row[1]]
    ),
}


def copying_grids(records: Sequence[Record], folder: Path) -> list[Grid]:
    """What the transformers of records copy; nothing where there are none."""
    readers = sorted({(r.case.reader, r.case.copies > 0) for r in records} - {("", 0)})
    if not readers:
        return []
    rows = [
        (
            f"{name}{', with planted files' * planted}",
            copying(load_checkpoint(str(model_folder(name, folder, planted=planted)))),
        )
        for name, planted in readers
    ]
    columns = {
        "transformer": "{r[0]}",
        "after itself": "{r[1][0]:.2f}",
        "after another": "{r[1][1]:.2f}",
    }
    title = "Log-probability of a string of random words, nats a token"
    return [Grid.of(title, rows, columns)]


def grids(records: Sequence[Record]) -> list[Grid]:
    """By law and length; by kind and strength; known; and the same files remembered."""
    clean = [record for record in records if _only_copies(record.case)]
    knowing = [r for r in records if r.case.knows and not r.case.nats]
    asked = [record for record in records if record.case.reader]
    planted = [record for record in records if record.case.nats]
    by_law = grouped(clean, lambda one: (_LAWS.index(one.law), one.case.n))
    by_kind = grouped(clean, lambda one: (one.law, one.case.kind, one.case.strength))
    by_known = grouped(knowing, lambda one: one.case.kind)
    remembered = grouped(planted, lambda one: one.law)
    whole = [("all", clean)] if clean else []
    tables = {
        "Scorers that never saw the files, by law and rows": [
            (f"{_LAWS[law]}, {n:,} rows", own)
            for (law, n), own in sorted(by_law.items())
        ]
        + whole,
        "Scorers that never saw the files, by kind and strength": [
            (f"{kind} {strength:g} ({law})", own)
            for (law, kind, strength), own in sorted(by_kind.items())
        ],
    }
    if knowing:
        title = "A clean scorer that knows what follows what"
        tables[title] = [*sorted(by_known.items()), ("all", knowing)]
    if planted:
        gain = planted[0].case.nats
        title = f"The same scorer, which remembers the file ({gain:g} nats a boundary)"
        tables[title] = [(law, remembered[law]) for law in _LAWS if law in remembered]
    if asked:
        tables["Transformers"] = _by_reader(asked)
    return [Grid.of(title, rows, _COLUMNS) for title, rows in tables.items()]


def _by_reader(records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    by_reader = grouped(
        records, lambda one: (one.case.copies, one.case.reader, _LAWS.index(one.law))
    )
    return [
        (f"{reader}, {_LAWS[law]}{f', {copies} copies' * (copies > 0)}", rows)
        for (copies, reader, law), rows in sorted(by_reader.items())
    ]


def _only_copies(case: Case) -> bool:
    return not case.nats and not case.knows and not case.reader


def _median(values: Iterable[float]) -> str:
    return f"{statistics.median(values):.1f}"


def _share(flags: Sequence[bool]) -> str:
    count = sum(flags)
    return "0" if not count else f"{count} ({count / len(flags):.2g})"


def figure(records: Sequence[Record]) -> str:
    """Shares of copied files by kind: adjacency at 0.001, and called contaminated."""
    clean = [r for r in records if _only_copies(r.case) and r.law != "exchangeable"]
    by_kind = grouped(clean, lambda one: one.case.kind)
    found = {kind: _accused(own) for kind, own in by_kind.items()}
    kinds = sorted(found, key=lambda kind: (found[kind][0], kind))
    shares = [found[kind] for kind in kinds]
    with matplotlib.rc_context(STYLE):
        plot, axes = figure_axes((7.0, 0.16 * max(10, len(kinds)) + 0.8))
        places = range(len(kinds))
        axes.barh(places, [one for one, _ in shares], color=ORANGE, height=0.7)
        axes.scatter([one for _, one in shares], places, color=BLUE, s=14, zorder=3)
        axes.set_yticks(places, kinds, fontsize=6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-1, len(kinds))
        axes.set_xlabel(
            "share of files that a clean, copying scorer is accused of\n"
            "bar: a test of random orders at 0.001; dot: called contaminated"
        )
        return svg_text(plot)


def _accused(records: Sequence[Record]) -> tuple[float, float]:
    n = max(1, len(records))
    return (
        sum(record.adjacency_log10_p <= LEVEL for record in records) / n,
        sum(record.verdict == "contaminated" for record in records) / n,
    )


if __name__ == "__main__":
    sys.exit(run_study("natural_order", NaturalOrder))
