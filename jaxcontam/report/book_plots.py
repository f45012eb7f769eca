"""Plots of `jaxcontam books`: rates of books, and how well each score tells them."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import MaxNLocator

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text

_SIZE = (4.0, 2.8)
_N_BINS = 10


def rate_histogram(tested: Sequence[float], unseen: Sequence[float]) -> str:
    """How many books have which contamination rate.

    Args:
        tested: Rates of the books in question, in [0, 1].
        unseen: Those of known books that the model was not trained on, each judged by
            the other known books; perhaps none.
    """
    edges = np.linspace(0, 100, _N_BINS + 1)
    groups = [100 * np.asarray(tested, np.float64)]
    labels, colours = ["in question"], [ORANGE]
    if len(unseen):
        groups.append(100 * np.asarray(unseen, np.float64))
        labels.append("known to be unseen")
        colours.append(GREY)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        axes.hist(groups, bins=edges.tolist(), color=colours, label=labels)
        axes.set_xlabel("contamination rate, % of a book's snippets")
        axes.set_ylabel("books")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(0, 100)
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"Histogram of contamination rates of {len(tested)} books in question and "
            f"{len(unseen)} known to be unseen",
        )


def auc_plot(
    results: Sequence[Mapping[str, Any]], blind: Sequence[Mapping[str, Any]]
) -> str:
    """AUC of each score on the known books, with intervals, above blind baselines.

    Args:
        results: Rows with `method`, `auc`, `auc_low` and `auc_high`.
        blind: Rows with `name` in place of `method`.
    """
    rows = [(row["method"], row, BLUE) for row in results]
    rows += [(f"{row['name']} (blind)", row, GREY) for row in blind]
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((_SIZE[0], 0.8 + 0.3 * len(rows)))
        for place, (_, row, colour) in enumerate(rows):
            ends = [[row["auc"] - row["auc_low"]], [row["auc_high"] - row["auc"]]]
            axes.errorbar(
                row["auc"],
                place,
                # A bootstrap interval may leave out the estimate by a rounding error.
                xerr=np.maximum(ends, 0),
                fmt="o",
                color=colour,
                capsize=3,
            )
        axes.axvline(0.5, color="black", lw=0.6)
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("AUC on the known books")
        values = ", ".join(f"{name} {row['auc']:.2f}" for name, row, _ in rows)
        return svg_text(figure, f"AUC on the known books: {values}")
