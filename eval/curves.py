"""Curves over copies with intervals as SVG text, in the colours of reports."""

import dataclasses
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from eval.intervals import Share
from jaxcontam.reports.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text

# Told apart by marker too; the first ones also in grey print.
_COLOURS = (BLUE, ORANGE, GREY, "#2e7d5b", "#7a3e9d", "#b03a48", "#5b4b3a", "#111111")
MARKERS = "os^Dv*PX"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a figure: shares by copies, ascending; a reference is dashed."""

    label: str
    shares: Mapping[int, Share]
    dashed: bool = False


def copies_svg(curves: Sequence[Curve], *, y_label: str, level: float) -> str:
    """Shares against copies, logarithmic above 1; a thin line across is at `level`."""
    ticks = sorted({copies for curve in curves for copies in curve.shares})
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((7.2, 3.6))
        for number, curve in enumerate(curves):
            colour = _COLOURS[number % len(_COLOURS)]
            shares = curve.shares.values()
            axes.plot(
                list(curve.shares),
                [share.value for share in shares],
                color=colour,
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                lw=1.2,
                ls="--" if curve.dashed else "-",
                label=curve.label,
            )
            ends = np.array([(share.low, share.high) for share in shares], np.float64)
            axes.fill_between(
                list(curve.shares),
                *ends.T,
                color=colour,
                alpha=0.15,
                lw=0,
            )
        axes.axhline(level, color="black", lw=0.6)
        # Linear below 1, so that 0 copies have a place.
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
        # Else a third of the plot would be room for numbers that are not there.
        axes.set_xlim(left=0.85 * ticks[0] if ticks[0] else -0.3)
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("copies in the training data")
        axes.set_ylabel(y_label)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure)
