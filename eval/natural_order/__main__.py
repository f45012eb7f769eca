"""Is a clean model accused on files in natural order?

Question: of files whose order nobody drew (27 kinds at two strengths), and of random
orders (8 kinds), how many are refused, suspected, or called contaminated when a scorer
that never saw them and copies from its context is audited; when it also knows what
follows what (9 of the kinds); and how many are found when it remembers them?
Command: `python -m eval.natural_order`. Hardware: 15 minutes of one CPU core; a killed
run goes on where it stopped. Headline: docs/results/natural_order.md has the tables.

The scorer knows no file: a background of bigrams, and a cache of what stood in the
context. One that knows gives 0.5 or 2 nats to each natural sequel, published or not.
Remembered files gain 0.5 nats at each published boundary. Each is audited beside a
reference that has read another background, has no memory, and knows as much, half as
much, or nothing; and beside a flat one that knows as much but halves every score.

`eval.real_models` asks pretrained transformers about the same kinds of files.
"""

import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from eval.natural_order.audited import (
    Case,
    Record,
    inputs_of,
    maker,
    record_from,
)
from eval.natural_order.kinds import KINDS
from eval.population import made_records
from eval.study import (
    Clock,
    Column,
    Grid,
    Records,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
)
from jaxcontam.reports.figure import BLUE, ORANGE, STYLE, figure_axes, svg_text

PLANTED_NATS = 0.5
# Nats that a sequel gains from a scorer that knows what follows what.
_KNOWS = (0.5, 2.0)
# Kinds that are fast to give many rows.
_LONG_KINDS = ("documents", "labels_text", "key_order", "random_sentences")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NaturalOrder(ResumedFlags):
    """Audit clean copying scorers on files in natural order.

    Hardware: 15 minutes of one CPU core (--tiny: seconds).
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
        cases = cases_of(self.seed, tiny=self.tiny)
        records = Records(folder / "records", any_code=self.any_code)
        done, failures = made_records(
            records,
            cases,
            inputs_of,
            maker,
            n_processes=self.processes,
            of="files",
        )
        found = [record_from(one["record"]) for one in done.values()]
        return finish_study(
            "natural_order",
            self,
            clock=clock,
            out=folder,
            numbers={
                "n_cases": len(cases),
                "failed": failures,
                "planted_nats": PLANTED_NATS,
                "records": [dataclasses.asdict(record) for record in found],
            },
            grids=grids(found),
            figures={"natural_order": figure(found)},
            earlier_seconds=records.earlier_seconds,
        )


def cases_of(seed: int, *, tiny: bool = False) -> list[Case]:
    """Every file of the study: clean ones copied and known, and remembered ones."""

    def cases(
        names: Iterable[str], strengths: slice, n: int, n_seeds: int, **more: Any
    ) -> list[Case]:
        return [
            Case(kind=name, strength=strength, n=n, seed=seed + s, **more)
            for name in names
            for strength in KINDS[name].strengths[strengths]
            for s in range(n_seeds)
        ]

    kinds = ("labels_text", "running_names", "random_sentences") if tiny else KINDS
    known = [name for name in kinds if KINDS[name].goes_on]
    random = [name for name in kinds if KINDS[name].law == "exchangeable"]
    natural = [name for name in kinds if name not in random]
    strongest, weakest, both = slice(-1, None), slice(1), slice(None)
    if tiny:
        return [
            *cases(kinds, strongest, 60, 1),
            *cases(kinds, strongest, 60, 1, nats=PLANTED_NATS),
            *cases(known, strongest, 60, 1, knows=_KNOWS[-1]),
        ]
    return [
        *cases(kinds, strongest, 300, 1, nats=PLANTED_NATS),
        *(
            case
            for knows in _KNOWS
            for n, n_seeds in ((300, 4), (120, 2), (1_000, 1))
            for case in cases(known, both, n, n_seeds, knows=knows)
        ),
        *cases(natural, both, 300, 7),
        *cases(random, both, 300, 13),
        *cases(_LONG_KINDS, weakest, 5_000, 1),
        *cases(_LONG_KINDS, weakest, 20_000, 1),
        *cases(natural, both, 1_000, 1),
        *cases(random, both, 1_000, 2),
    ]


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
    "direction, median log10 p": lambda row: (
        f"{statistics.median(one.log10_p for one in row[1]):.1f}"
    ),
    "adjacency <= 0.001": lambda row: _share(
        [one.adjacency_log10_p <= LEVEL for one in row[1]]
    ),
}


def grids(records: Sequence[Record]) -> list[Grid]:
    """By law and length; by kind and strength; known; and the same files remembered."""
    clean = _only_copied(records)
    knowing = [r for r in records if r.case.knows and not r.case.nats]
    remembered = [r for r in records if r.case.nats]
    gain = f"{PLANTED_NATS:g} nats a boundary"
    tables = {
        "Scorers that never saw the files, by law and rows": [
            *_rows("{1}, {2:,} rows", clean, lambda r: (*_law(r), r.case.n)),
            ("all", clean),
        ],
        "Scorers that never saw the files, by kind and strength": _rows(
            "{1} {2:g} ({0})", clean, lambda r: (r.law, r.case.kind, r.case.strength)
        ),
        "A clean scorer that knows what follows what": [
            *_rows("{0}", knowing, lambda r: (r.case.kind,)),
            ("all", knowing),
        ],
        f"The same scorer, which remembers the file ({gain})": _rows(
            "{1}", remembered, _law
        ),
    }
    kept = {title: [row for row in rows if row[1]] for title, rows in tables.items()}
    return [Grid.of(title, rows, _COLUMNS) for title, rows in kept.items() if rows]


def _rows(
    name: str, records: Sequence[Record], key: Callable[[Record], tuple[Any, ...]]
) -> list[tuple[str, list[Record]]]:
    """Records by a key in its order, under a name that is made of it."""
    found = sorted(grouped(records, key).items(), key=lambda row: row[0])
    return [(name.format(*of), own) for of, own in found]


def _law(record: Record) -> tuple[int, str]:
    return _LAWS.index(record.law), record.law


def _only_copied(records: Sequence[Record]) -> list[Record]:
    """Records of scorers that never saw the file, and know nothing."""
    return [r for r in records if not (r.case.nats or r.case.knows)]


def _share(flags: Sequence[bool]) -> str:
    count = sum(flags)
    return "0" if not count else f"{count} ({count / len(flags):.2g})"


def figure(records: Sequence[Record]) -> str:
    """Shares of copied files by kind: adjacency at 0.001, and called contaminated."""
    clean = [r for r in _only_copied(records) if r.law != "exchangeable"]
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
