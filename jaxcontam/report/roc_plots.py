"""Plots of membership scores as SVG text: ROC curves, and scores of both groups.

Dimension key
    R  thresholds
"""

import itertools
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.results.membership import ScorePicture

_WIDE, _SMALL = (8.8, 4.0), (4.0, 2.6)
# Told apart by dash as well as by colour, for grey print and colour-blind readers.
_COLOURS = (BLUE, ORANGE, "#2a7f62", "#8e4585", "#5b4636", "#0f8b8d", "#b8336a")
_DASHES = ("-", "--", ":", "-.")
# Points a curve; a screen shows no more across a plot.
_MOST_POINTS = 200
_BINS = 40


def roc_plot(pictures: Sequence[ScorePicture], *, primary: str | None = None) -> str:
    """ROC curves of all scores, linear and with both rates on a logarithmic scale.

    The logarithmic one shows what matters in an audit: how many members are found
    where false alarms are rare. It begins below one non-member.

    Args:
        pictures: At least one, all of the same texts.
        primary: The score that decides, drawn heavier.
    """
    first = pictures[0]
    floors = [0.5 / len(first.nonmembers), 0.5 / len(first.members)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=_WIDE, layout="constrained")
        linear, log = figure.subplots(1, 2)
        for axes in (linear, log):
            start = 0.0 if axes is linear else floors[0]
            axes.plot([start, 1], [start, 1], color=GREY, lw=0.8, label="chance")
            axes.set_xlabel("false-positive rate")
            axes.set_ylabel("true-positive rate")
        for i, picture in enumerate(pictures):
            _curve(linear, picture, i, primary, (0.0, 0.0))
            _curve(log, picture, i, primary, (floors[0], floors[1]))
        linear.set_aspect("equal")
        log.set_xscale("log")
        log.set_yscale("log")
        log.set_xlim(floors[0], 1)
        log.set_ylim(min(floors), 1.05)
        handles, labels = linear.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        return svg_text(figure, f"ROC curves: {'; '.join(labels)}")


def scores_plot(method: str, groups: Mapping[str, np.ndarray]) -> str:
    """Histograms of one score, as shares of each group.

    Args:
        method: The score.
        groups: Label -> scores, finite, at least one; the known non-members first.
    """
    # Scores have long tails; what lies beyond goes into the outermost bins.
    every = np.concatenate(list(groups.values()))
    low, high = (float(q) for q in np.quantile(every, [0.005, 0.995]))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1).tolist()
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        for (label, scores), colour in zip(
            groups.items(), itertools.cycle((GREY, ORANGE, BLUE)), strict=False
        ):
            axes.hist(
                np.clip(scores, low, high),
                bins=edges,
                weights=np.full(len(scores), 1 / max(1, len(scores))),
                histtype="stepfilled",
                alpha=0.55,
                color=colour,
                label=label,
            )
        axes.set_xlabel(f"{method}, higher = more likely a member")
        axes.set_ylabel("share of the texts")
        axes.legend(frameon=False)
        medians = ", ".join(
            f"{name} {np.median(scores):.3g}"
            for name, scores in groups.items()
            if len(scores)
        )
        return svg_text(figure, f"Histograms of {method}; medians: {medians}")


def _curve(
    axes: Axes,
    picture: ScorePicture,
    i: int,
    primary: str | None,
    floors: tuple[float, float],
) -> None:
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


def _thinned(fpr_R: np.ndarray, tpr_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer points, spread over ranks on a log scale, where few would be told apart."""
    n = len(fpr_R)
    if n <= _MOST_POINTS:
        return fpr_R, tpr_R
    kept = np.geomspace(1, n, _MOST_POINTS).round().astype(np.int64) - 1
    even = np.linspace(0, n - 1, _MOST_POINTS).round().astype(np.int64)
    chosen = np.unique(np.concatenate([kept, even]))
    return fpr_R[chosen], tpr_R[chosen]
