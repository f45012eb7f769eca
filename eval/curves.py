"""Curves with intervals as SVG text, in the colours of reports."""

import dataclasses
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes

from eval.intervals import Share
from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text

# Told apart by marker too; the first ones also in grey print.
_COLOURS = (BLUE, ORANGE, GREY, "#2e7d5b", "#7a3e9d", "#b03a48", "#5b4b3a", "#111111")
_MARKERS = "os^Dv*PX"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: In the legend.
        x: Ascending.
        y: A value each.
        low: Lower ends of intervals; none draws none.
        high: Upper ends.
        dashed: For what is a reference and not a finding.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False

    @classmethod
    def of_shares(
        cls,
        label: str,
        shares: Mapping[int, Share] | Mapping[float, Share],
        *,
        dashed: bool = False,
    ) -> "Curve":
        """A curve through shares with their intervals, by x."""
        return cls(
            label=label,
            x=list(shares),
            y=[share.value for share in shares.values()],
            low=[share.low for share in shares.values()],
            high=[share.high for share in shares.values()],
            dashed=dashed,
        )


def curves_svg(
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] = (),
    level: float | None = None,
    size: tuple[float, float] = (7.2, 3.6),
) -> str:
    """A figure of one plot with a legend at its right.

    Args:
        curves: From eight on, colours repeat.
        x_label: Below.
        y_label: At the left.
        log_x: Logarithmic; where 0 is among the numbers, or all are at least 1, linear
            below 1, so that 0 copies have a place.
        log_y: Logarithmic.
        x_ticks: Where ticks stand; none leaves them to the scale.
        level: A thin line across, such as a test's level.
        size: Inches.
    """
    # A logarithmic axis writes powers of ten as formulas.
    with matplotlib.rc_context({**STYLE, "text.parse_math": True}):
        figure, axes = figure_axes(size)
        for number, curve in enumerate(curves):
            _draw(axes, curve, number)
        if level is not None:
            axes.axhline(level, color="black", lw=0.6)
        if log_x:
            first = min((x for curve in curves for x in curve.x), default=0)
            if 0 < first < 1:
                axes.set_xscale("log")
            else:
                axes.set_xscale("symlog", linthresh=1, linscale=0.6)
                # Else a third of the plot would be room for numbers that are not there.
                axes.set_xlim(left=0.85 * first if first >= 1 else -0.3)
        if log_y:
            axes.set_yscale("log")
        if len(x_ticks):
            axes.set_xticks(list(x_ticks), [f"{tick:,g}" for tick in x_ticks])
            axes.minorticks_off()
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure)


def _draw(axes: Axes, curve: Curve, number: int) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    axes.plot(
        curve.x,
        curve.y,
        color=colour,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4,
        lw=1.2,
        ls="--" if curve.dashed else "-",
        label=curve.label,
    )
    if len(curve.low):
        axes.fill_between(
            curve.x, curve.low, curve.high, color=colour, alpha=0.15, lw=0
        )
