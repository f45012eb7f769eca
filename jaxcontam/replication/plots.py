"""Plots of completions."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from jaxcontam.replication.page import replication_rows
from jaxcontam.reports.figure import (
    BLUE,
    DECIDES,
    GREY,
    ORANGE,
    SQUARE,
    interval_row,
    intervals_figure,
    plotted,
    svg_text,
)
from jaxcontam.reports.methods import Words
from jaxcontam.reports.report import Report


def overlap_plot(points: Sequence[tuple[float, float, str]]) -> str:
    """ROUGE-L of instances (general, guided, label), guided over general."""
    kinds = (("exact", ORANGE, "o"), ("near", BLUE, "s"), ("no", GREY, "x"))
    with plotted(SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for kind, colour, marker in kinds:
            own = [(x, y) for x, y, label in points if label == kind]
            if own:
                x, y = zip(*own, strict=True)
                axes.plot(x, y, marker, color=colour, ms=5, alpha=0.8, label=kind)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_xlabel("ROUGE-L, general instruction")
        axes.set_ylabel("ROUGE-L, guided instruction")
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"ROUGE-L of {len(points)} instances, guided over general instruction; "
            f"{sum(y > x for x, y, _ in points)} are closer when guided",
        )


def replication_figure(report: Report, words: Words) -> Figure:
    """Share of copies by every judge, then what other methods found, with intervals."""
    judges, _, others = replication_rows(report.results)
    rows = [
        interval_row(row, "rate", words[row.method].label, DECIDES[row.primary])
        for row in (*judges, *others)
        if row.rate is not None
    ]
    if not rows:
        raise ValueError("nothing was judged, so there is no share")
    return intervals_figure(rows, "share of instances that are found", nothing=0.0)
