"""The figures of the power study: power against copies, cost against p."""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.lines import Line2D

from eval.curves import MARKERS, Curve, copies_svg
from eval.intervals import Share
from eval.power.estimates import PowerRow
from eval.study import grouped
from jaxcontam.reports.figure import STYLE, figure_axes, svg_text

# The level of the figures; tables have the others.
_LEVEL = 0.001


def power_figures(table: Sequence[PowerRow]) -> Mapping[str, str]:
    """Name -> SVG, for the populations that are there."""
    at_level = [row for row in table if row.level == _LEVEL]
    figures = {}
    for design in dict.fromkeys(row.design for row in at_level):
        own = [row for row in at_level if row.design == design]
        if len({row.copies for row in own}) >= 4:
            figures[f"copies-{design}"] = _over_copies(own)
    if main := [row for row in at_level if row.design == "main"]:
        figures["cost-main"] = _cost(main)
    return figures


def _over_copies(rows: Sequence[PowerRow]) -> str:
    """A curve a test."""
    curves = [
        Curve(
            label=f"{test} ({own[0].passes:.0f} passes)",
            shares={
                row.copies: Share(value=row.power, low=row.low, high=row.high)
                for row in sorted(own, key=lambda row: row.copies)
            },
        )
        for test, own in grouped(rows, lambda row: row.test).items()
    ]
    y_label = f"share of sets with p at most {_LEVEL:g}"
    return copies_svg(curves, y_label=y_label, level=_LEVEL)


def _cost(rows: Sequence[PowerRow]) -> str:
    """Median p and its quartiles against passes: a marker a test, a colour a count."""
    tests = list(dict.fromkeys(row.test for row in rows))
    counts = sorted({row.copies for row in rows})
    shades = matplotlib.colormaps["viridis_r"]
    beside = _side_by_side({row.test: row.passes for row in rows})
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((7.2, 4.2))
        for number, test in enumerate(tests):
            for row in (row for row in rows if row.test == test):
                middle = 10**row.median_log10_p
                low, high = (10**value for value in row.quartiles_log10_p)
                axes.errorbar(
                    row.passes + beside[test],
                    middle,
                    yerr=[[middle - low], [high - middle]],
                    fmt=MARKERS[number % len(MARKERS)],
                    color=shades(counts.index(row.copies) / max(1, len(counts) - 1)),
                    markersize=5,
                    lw=0.8,
                )
        axes.set_yscale("log")
        # By default a formula, which the style shows as it is typed.
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.axhline(_LEVEL, color="black", lw=0.6)
        axes.set_xlabel("passes over the file")
        axes.set_ylabel("p: median and quartiles")
        handles = [
            Line2D([], [], ls="", marker=MARKERS[i % len(MARKERS)], color="black")
            for i in range(len(tests))
        ]
        handles += [
            Line2D([], [], ls="", marker="s", color=shades(i / max(1, len(counts) - 1)))
            for i in range(len(counts))
        ]
        figure.legend(
            handles,
            [*tests, *(f"{n} copies" for n in counts)],
            loc="outside right upper",
            frameon=False,
            fontsize=8,
        )
        return svg_text(figure)


def _side_by_side(passes: Mapping[str, float]) -> dict[str, float]:
    """Test -> how far beside its cost it stands: others of that cost would hide it."""
    beside = {}
    for whole in {round(cost) for cost in passes.values()}:
        tests = [test for test, cost in passes.items() if round(cost) == whole]
        for number, test in enumerate(tests):
            beside[test] = 0.09 * (number - (len(tests) - 1) / 2)
    return beside
