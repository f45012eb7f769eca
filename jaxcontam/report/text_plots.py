"""Plots of texts and of several models as SVG text: scores, rates, AUCs, effects.

Dimension key
    R  thresholds
"""

import dataclasses
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.results.membership import ScorePicture

_TALL, _SMALL, _SQUARE = (4.0, 4.2), (4.0, 2.6), (3.6, 3.4)
# Inches of a plot of intervals: its width, what stands around it, and each line.
_INTERVALS = (4.2, 0.8, 0.26)
# Told apart by dash as well as by colour, for grey print and colour-blind readers.
_COLOURS = (BLUE, ORANGE, "#2a7f62", "#8e4585", "#5b4636", "#0f8b8d", "#b8336a")
_DASHES = ("-", "--", ":", "-.")
# Points a curve; a screen shows no more across a plot.
_MOST_POINTS = 200
_BINS = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number with its interval: one line of `intervals_plot`.

    Attributes:
        name: Of the line.
        group: Heading above lines that belong together; "" without one.
        value: The number.
        low: Lower end; None without an interval.
        high: Upper end.
        look: Colour, marker and filling.
        label: In the legend; "" for none.
    """

    name: str
    group: str = ""
    value: float
    low: float | None
    high: float | None
    look: tuple[str, str, str] = (BLUE, "o", "full")
    label: str = ""


def roc_plot(pictures: Sequence[ScorePicture], *, primary: str | None = None) -> str:
    """ROC curves of all scores, with both rates on a logarithmic scale.

    It shows what matters in an audit: how many members are found where false alarms
    are rare. It begins below one non-member.

    Args:
        pictures: At least one, all of the same texts.
        primary: The score that decides, drawn heavier.
    """
    first = pictures[0]
    floors = 0.5 / len(first.nonmembers), 0.5 / len(first.members)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_TALL)
        axes.plot([floors[0], 1], [floors[0], 1], color=GREY, lw=0.8, label="chance")
        for i, picture in enumerate(pictures):
            fpr_R, tpr_R = _thinned(picture.fpr, picture.tpr)
            axes.step(
                np.maximum(fpr_R, floors[0]),
                np.maximum(tpr_R, floors[1]),
                where="post",
                color=_COLOURS[i % len(_COLOURS)],
                ls=_DASHES[i % len(_DASHES)],
                lw=2.2 if picture.method == primary else 1.0,
                label=f"{picture.method}, AUC {picture.auc:.3f}",
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(floors[0], 1)
        axes.set_ylim(min(floors), 1.05)
        axes.set_xlabel("false-positive rate")
        axes.set_ylabel("true-positive rate")
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
        labels = axes.get_legend_handles_labels()[1]
        return svg_text(figure, f"ROC curves: {'; '.join(labels)}")


def histogram(
    groups: Mapping[str, np.ndarray],
    xlabel: str,
    ylabel: str,
    *,
    edges: np.ndarray | None = None,
    shares: bool = True,
    band: tuple[float, float] | None = None,
    ticks: Sequence[float] = (),
    mark: tuple[str, float] | None = None,
) -> str:
    """Histograms of groups in one plot; values beyond the edges go into the last bins.

    Args:
        groups: Label -> finite values; what is known or unremarkable comes first.
        xlabel: What the values are.
        ylabel: What is counted.
        edges: (n_bins + 1,) ascending; by default between quantiles of all values.
        shares: Each group adds up to 1; else values are counted.
        band: Shaded range of what is suspicious, on a logarithmic axis.
        ticks: Of a logarithmic axis.
        mark: Label and value of a line.
    """
    if edges is None:
        # Scores have long tails.
        every = np.concatenate(list(groups.values()))
        ends = [
            *np.quantile(every, [0.005, 0.995]),
            *([] if mark is None else mark[1:]),
        ]
        low, high = float(min(ends)), float(max(ends))
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = np.linspace(low, high, _BINS + 1)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        if band is not None:
            axes.axvspan(*band, color=GREY, alpha=0.25, lw=0, label="suspicious")
        colours = (GREY, ORANGE, BLUE) if band is None else (ORANGE, BLUE)
        for i, (label, values) in enumerate(groups.items()):
            weight = 1 / max(1, len(values)) if shares else 1
            axes.hist(
                np.clip(values, edges[0], edges[-1]),
                bins=edges.tolist(),
                weights=np.full(len(values), weight),
                histtype="stepfilled" if band is None else "step",
                alpha=0.55 if band is None else None,
                lw=1.5,
                color=colours[i % len(colours)],
                label=label,
            )
        if mark is not None:
            axes.axvline(mark[1], color=ORANGE, lw=2, label=mark[0])
        if ticks:
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
            axes.minorticks_off()
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        # Above the axes: it hides neither the bars nor the line.
        figure.legend(frameon=False, loc="outside upper left", ncols=3)
        medians = ", ".join(
            f"{name} {np.median(values):.3g} ({len(values)})"
            for name, values in groups.items()
            if len(values)
        )
        at = "" if mark is None else f"; the {mark[0]} stands at {mark[1]:.3g}"
        return svg_text(figure, f"Histograms of {xlabel}; medians: {medians}{at}")


def intervals_plot(rows: Sequence[Interval], xlabel: str, *, nothing: float) -> str:
    """Numbers with their 95 % intervals, one line each.

    Args:
        rows: At least one; lines of a group stand together.
        xlabel: What the numbers are.
        nothing: Value where there is no effect, drawn as a line.
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    has_groups = groups != [""]
    # A free line before each group, for its name.
    places = [
        i + (groups.index(row.group) + 1) * has_groups for i, row in enumerate(rows)
    ]
    n_lines = places[-1] + 1
    width, around, line = _INTERVALS
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((width, around + line * n_lines))
        labelled: set[str] = set()
        for place, row in zip(places, rows, strict=True):
            colour, marker, filling = row.look
            ends = None
            if row.low is not None and row.high is not None:
                # A bootstrap interval may leave out the estimate by a rounding error.
                ends = np.maximum([[row.value - row.low], [row.high - row.value]], 0)
            axes.errorbar(
                row.value,
                place,
                xerr=ends,
                fmt=marker,
                fillstyle=filling,  # pyright: ignore[reportArgumentType]
                color=colour,
                capsize=2,
                label=row.label if row.label not in labelled else f"_{row.label}",
            )
            labelled.add(row.label)
        axes.axvline(nothing, color="black", lw=0.6)
        axes.set_yticks(places, [row.name for row in rows])
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
        if labelled != {""}:
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        values = "; ".join(
            f"{row.group + ', ' if row.group else ''}{row.name}: {row.value:.2f}"
            for row in rows
        )
        return svg_text(figure, f"{xlabel} with 95 % intervals: {values}")


def overlap_plot(points: Sequence[tuple[float, float, str]]) -> str:
    """ROUGE-L with the guided instruction over that with the general one.

    Args:
        points: General, guided and label of each instance: `exact`, `near` or `no`.
    """
    kinds = (("exact", ORANGE, "o"), ("near", BLUE, "s"), ("no", GREY, "x"))
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SQUARE)
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for kind, colour, marker in kinds:
            own = [(x, y) for x, y, label in points if label == kind]
            if own:
                x, y = zip(*own, strict=True)
                axes.plot(x, y, marker, color=colour, ms=5, alpha=0.8, label=kind)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("ROUGE-L, general instruction")
        axes.set_ylabel("ROUGE-L, guided instruction")
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"ROUGE-L of {len(points)} instances, guided over general instruction; "
            f"{sum(y > x for x, y, _ in points)} are closer when guided",
        )


def _thinned(fpr_R: np.ndarray, tpr_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer points, spread over ranks on a log scale, where few would be told apart."""
    n = len(fpr_R)
    if n <= _MOST_POINTS:
        return fpr_R, tpr_R
    kept = np.geomspace(1, n, _MOST_POINTS).round().astype(np.int64) - 1
    even = np.linspace(0, n - 1, _MOST_POINTS).round().astype(np.int64)
    chosen = np.unique(np.concatenate([kept, even]))
    return fpr_R[chosen], tpr_R[chosen]
