"""Plots of membership scores."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from jaxcontam.members.page import blind_name
from jaxcontam.members.result import BlindBaseline, ScorePicture, ScoreResult, SetResult
from jaxcontam.proof.plots import _MOST_POINTS
from jaxcontam.reports.figure import (
    BLUE,
    DECIDES,
    GREY,
    ORANGE,
    TALL,
    interval_row,
    intervals_figure,
    plotted,
    svg_text,
)

# Told apart by dash as well as by colour, for grey print and colour-blind readers.
_COLOURS = (BLUE, ORANGE, "#2a7f62", "#8e4585", "#5b4636", "#0f8b8d", "#b8336a")
_DASHES = ("-", "--", ":", "-.")


def roc_plot(pictures: Sequence[ScorePicture], *, primary: str | None = None) -> str:
    """ROC curves of scores of the same texts, both rates on a logarithmic scale.

    It shows what matters in an audit: how many members are found where false alarms
    are rare. It begins below one non-member. The primary score is drawn heavier.
    """
    first = pictures[0]
    floors = 0.5 / len(first.nonmembers), 0.5 / len(first.members)
    with plotted(TALL) as (figure, axes):
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
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(floors[0], 1), ylim=(min(floors), 1.05))
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
        labels = axes.get_legend_handles_labels()[1]
        return svg_text(figure, f"ROC curves: {'; '.join(labels)}")


def _thinned(fpr_R: np.ndarray, tpr_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer points, spread over ranks on a log scale, where few would be told apart."""
    n = len(fpr_R)
    if n <= _MOST_POINTS:
        return fpr_R, tpr_R
    kept = np.geomspace(1, n, _MOST_POINTS).round().astype(np.int64) - 1
    even = np.linspace(0, n - 1, _MOST_POINTS).round().astype(np.int64)
    chosen = np.unique(np.concatenate([kept, even]))
    return fpr_R[chosen], tpr_R[chosen]


def membership_figure(
    scores: Sequence[ScoreResult | SetResult], blind: Sequence[BlindBaseline]
) -> Figure:
    """AUC of every score and of every blind baseline, with 95 % intervals."""
    if not scores:
        raise ValueError("no members and non-members are known, so there is no AUC")
    rows = [
        interval_row(row, "auc", row.method, DECIDES[row.primary]) for row in scores
    ]
    rows += [interval_row(one, "auc", blind_name(one.name)) for one in blind]
    return intervals_figure(rows, "AUC", nothing=0.5)
