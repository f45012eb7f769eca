"""Tables and the figure of the study of natural order."""

import itertools
import statistics
from collections.abc import Sequence

import matplotlib

from eval.natural_order.audited import Record
from eval.study import Grid
from jaxcontam.report.figure import BLUE, ORANGE, STYLE, figure_axes, svg_text

LEVEL = -3.0
"""log10 of the level of `contaminated`."""

_HEADER = (
    "kind",
    "files",
    "refused",
    "contaminated",
    "suspected",
    "direction, median log10 p",
    "adjacency, median log10 p",
    "adjacency <= 0.001",
)


def grids(records: Sequence[Record]) -> list[Grid]:
    """By law and length; by kind and strength; and the same files remembered."""
    clean = [record for record in records if not record.case.nats]
    planted = [record for record in records if record.case.nats]
    found = [
        Grid(
            "Scorers that never saw the files, by law and rows",
            _HEADER,
            tuple(
                _cells(f"{law}, {n:,} rows", own)
                for law in ("exchangeable", "reversible", "forward")
                for n in sorted({r.case.n for r in clean})
                if (own := [r for r in clean if (r.law, r.case.n) == (law, n)])
            )
            + ((_cells("all", clean),) if clean else ()),
        ),
        Grid(
            "Scorers that never saw the files, by kind and strength",
            _HEADER,
            _by_kind(clean),
        ),
    ]
    if planted:
        gain = planted[0].case.nats
        rows = tuple(
            _cells(law, own)
            for law in ("exchangeable", "reversible", "forward")
            if (own := [r for r in planted if r.law == law])
        )
        title = f"The same scorer, which remembers the file ({gain:g} nats a boundary)"
        found.append(Grid(title, _HEADER, rows))
    return found


def _by_kind(records: Sequence[Record]) -> tuple[tuple[str, ...], ...]:
    def key(record: Record) -> tuple[str, str, float]:
        return record.law, record.case.kind, record.case.strength

    return tuple(
        _cells(f"{kind} {strength:g} ({law})", list(own))
        for (law, kind, strength), own in itertools.groupby(
            sorted(records, key=key), key
        )
    )


def _cells(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    n = len(records)
    adjacency = [record.adjacency_log10_p for record in records]
    return (
        name,
        f"{n}",
        _share(sum(record.refused for record in records), n),
        _share(sum(record.verdict == "contaminated" for record in records), n),
        _share(sum(record.verdict == "suspected" for record in records), n),
        f"{statistics.median(record.log10_p for record in records):.1f}",
        f"{statistics.median(adjacency):.1f}",
        _share(sum(p <= LEVEL for p in adjacency), n),
    )


def _share(count: int, n: int) -> str:
    return "0" if not count else f"{count} ({count / n:.2g})"


def figure(records: Sequence[Record]) -> str:
    """Shares of clean files by kind: adjacency at 0.001, and called contaminated."""
    clean = [r for r in records if not r.case.nats and r.law != "exchangeable"]
    kinds = sorted(
        {record.case.kind for record in clean},
        key=lambda kind: _accused([r for r in clean if r.case.kind == kind])[0],
    )
    shares = [_accused([r for r in clean if r.case.kind == kind]) for kind in kinds]
    with matplotlib.rc_context(STYLE):
        return _drawn(kinds, shares)


def _drawn(kinds: Sequence[str], shares: Sequence[tuple[float, float]]) -> str:
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
