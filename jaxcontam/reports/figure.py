"""Style and colours of every figure, and SVG text that repeats to the byte."""

import contextlib
import dataclasses
import html
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

# Blue and orange keep apart for colour-blind readers and in grey print.
BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#8a8f98"
# Characters of a name beside the axes.
_NAME = 32
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "jaxcontam",
    # Names of models and files hold dollar signs, which are no formulas.
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}
"""For `matplotlib.rc_context`."""


def figure_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure of one plot; its size is in inches."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


@contextlib.contextmanager
def plotted(size: tuple[float, float]) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one plot for the block that draws it, in the style of reports."""
    with matplotlib.rc_context(STYLE):
        yield figure_axes(size)


def svg_text(figure: Figure, label: str | None = None) -> str:
    """The `<svg>` element of a figure, to stand in a page.

    `label` says what it shows to those who cannot see it; pages of reports need one.
    """
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            # Its labels are formulas, which the style shows as they are typed.
            if isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_major_formatter("{x:g}")
                axis.set_minor_formatter("")
    buffer = io.StringIO()
    metadata = {"Date": None} if label is None else {"Date": None, "Title": label}
    with warnings.catch_warnings():
        # The text stands in the page, whose reader's fonts draw it.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    # The declaration before <svg> is for files of their own.
    text = text[text.index("<svg") :]
    if label is None:
        return text
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


TALL, SMALL, SQUARE = (4.0, 4.2), (4.0, 2.6), (3.6, 3.4)
# Inches of a plot of intervals: its width, what stands around it, and each line.
_INTERVALS = (4.2, 0.8, 0.26)
_BINS = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number with its interval: a line of `intervals_plot` under its `group`."""

    name: str
    group: str = ""
    value: float
    low: float | None
    high: float | None
    colour: str


def histogram(
    groups: Mapping[str, np.ndarray],
    xlabel: str,
    ylabel: str,
    *,
    mark: tuple[str, float] | None = None,
) -> str:
    """Histograms of groups in one plot, each adding up to 1.

    Bins lie between quantiles of all values; what lies beyond goes into the last ones.
    Groups are label -> finite values, what is known or unremarkable first; `mark` is
    the label and value of a line.
    """
    # Scores have long tails.
    every = np.concatenate(list(groups.values()))
    ends = [*np.quantile(every, [0.005, 0.995]), *(mark or ())[1:]]
    low, high = float(min(ends)), float(max(ends))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    with plotted(SMALL) as (figure, axes):
        colours = GREY, ORANGE, BLUE
        for i, (label, values) in enumerate(groups.items()):
            axes.hist(
                np.clip(values, low, high),
                bins=edges.tolist(),
                weights=np.full(len(values), 1 / max(1, len(values))),
                histtype="stepfilled",
                alpha=0.55,
                lw=1.5,
                color=colours[i % len(colours)],
                label=label,
            )
        if mark is not None:
            axes.axvline(mark[1], color=ORANGE, lw=2, label=mark[0])
        axes.set(xlabel=xlabel, ylabel=ylabel)
        # Above the axes: it hides neither the bars nor the line.
        figure.legend(frameon=False, loc="outside upper left", ncols=3)
        medians = ", ".join(
            f"{name} {np.median(values):.3g} ({len(values)})"
            for name, values in groups.items()
            if len(values)
        )
        at = "" if mark is None else f"; the {mark[0]} stands at {mark[1]:.3g}"
        return svg_text(figure, f"Histograms of {xlabel}; medians: {medians}{at}")


def interval_row(
    row: object, field: str, name: str, colour: str = GREY, group: str = ""
) -> Interval:
    """A field of a result with its interval, which FIELD_low and FIELD_high hold."""
    low, high = (getattr(row, f"{field}_{end}", None) for end in ("low", "high"))
    value = getattr(row, field)
    return Interval(
        name=name, group=group, value=value, low=low, high=high, colour=colour
    )


def intervals_plot(rows: Sequence[Interval], xlabel: str, *, nothing: float) -> str:
    """`intervals_figure` as SVG text."""
    values = "; ".join(
        f"{row.group + ', ' if row.group else ''}{row.name}: {row.value:.2f}"
        for row in rows
    )
    figure = intervals_figure(rows, xlabel, nothing=nothing)
    return svg_text(figure, f"{xlabel} with 95 % intervals: {values}")


def intervals_figure(
    rows: Sequence[Interval], xlabel: str, *, nothing: float
) -> Figure:
    """Numbers with 95 % intervals, a line each; `nothing` is that of no effect."""
    groups = list(dict.fromkeys(row.group for row in rows))
    has_groups = groups != [""]
    # A free line before each group, for its name.
    places = [
        i + (groups.index(row.group) + 1) * has_groups for i, row in enumerate(rows)
    ]
    n_lines = places[-1] + 1
    width, around, line = _INTERVALS
    with plotted((width, around + line * n_lines)) as (figure, axes):
        for place, row in zip(places, rows, strict=True):
            ends = None
            if row.low is not None and row.high is not None:
                # A bootstrap interval may leave out the estimate by a rounding error.
                ends = np.maximum([[row.value - row.low], [row.high - row.value]], 0)
            axes.errorbar(
                row.value, place, xerr=ends, fmt="o", color=row.colour, capsize=2
            )
        axes.axvline(nothing, color="black", lw=0.6)
        # A long name without its middle, which would leave no room to the axes.
        names, half = [row.name for row in rows], _NAME // 2
        names = [n if len(n) <= _NAME else f"{n[:half]}…{n[-half:]}" for n in names]
        axes.set_yticks(places, names)
        axes.set_ylim(n_lines - 0.4, -0.6)
        for group in groups if has_groups else ():
            axes.text(
                0,
                places[[row.group for row in rows].index(group)] - 0.75,
                group,
                transform=axes.get_yaxis_transform(),
                fontweight="bold",
                va="center",
                # That line must not run through a name.
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )
        axes.set_xlabel(xlabel)
    return figure


# A row that decides stands out.
DECIDES = {True: ORANGE, False: GREY}
