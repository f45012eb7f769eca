"""The figures of the power study: power against what was varied, cost against p."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib
from matplotlib.lines import Line2D

from eval.curves import Curve, curves_svg
from eval.intervals import Share
from eval.power.estimates import PowerRow
from eval.study import grouped
from jaxcontam.report.figure import STYLE, figure_axes, svg_text

# The level of the figures; tables have the others.
_LEVEL = 0.001
_MARKERS = "os^Dv*PX"
_POWER = f"share of sets with p at most {_LEVEL:g}"


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
    if position := [row for row in at_level if row.setting]:
        figures["by-position"] = _by_setting(position)
    families: Mapping[str, tuple[str, str, Callable[[PowerRow], float]]] = {
        "examples": ("examples", "examples tested", lambda row: row.n_examples),
        "size-": (
            "size",
            "million weights",
            lambda row: float(row.design.removeprefix("size-").removesuffix("m")),
        ),
        "share-": (
            "share",
            "planted share: 8 copies in ever more text, trained on for longer",
            lambda row: float(row.design.removeprefix("share-")),
        ),
    }
    for start, (name, label, x_of) in families.items():
        own = [row for row in at_level if row.design.startswith(start)]
        if len({x_of(row) for row in own}) > 1:
            figures[f"by-{name}"] = _over(own, label, x_of)
    return figures


def _over_copies(rows: Sequence[PowerRow]) -> str:
    """A curve a test."""
    return curves_svg(
        [
            _curve(f"{test} ({own[0].passes:.0f} passes)", own, lambda row: row.copies)
            for test, own in grouped(rows, lambda row: row.test).items()
        ],
        x_label="copies in the training data",
        y_label=_POWER,
        log_x=True,
        x_ticks=sorted({row.copies for row in rows}),
        level=_LEVEL,
    )


def _over(
    rows: Sequence[PowerRow], label: str, x_of: Callable[[PowerRow], float]
) -> str:
    """A curve a test and duplication count against a number."""
    curves = [
        _curve(f"{test}, {copies} copies", own, x_of, dashed=copies == 0)
        for (test, copies), own in grouped(
            rows, lambda row: (row.test, row.copies)
        ).items()
    ]
    return curves_svg(curves, x_label=label, y_label=_POWER, level=_LEVEL)


def _curve(
    label: str,
    rows: Sequence[PowerRow],
    x_of: Callable[[PowerRow], float],
    *,
    dashed: bool = False,
) -> Curve:
    shares = {
        x_of(row): Share(value=row.power, low=row.low, high=row.high)
        for row in sorted(rows, key=x_of)
    }
    return Curve.of_shares(label, shares, dashed=dashed)


def _by_setting(rows: Sequence[PowerRow]) -> str:
    """A point and interval for each test and word, tests side by side."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    tests = list(dict.fromkeys(row.test for row in rows))
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((7.2, 3.4))
        for number, test in enumerate(tests):
            own = {row.setting: row for row in rows if row.test == test}
            found = [own[setting] for setting in settings]
            axes.errorbar(
                [i + 0.12 * (number - (len(tests) - 1) / 2) for i in range(len(found))],
                [row.power for row in found],
                yerr=[
                    [row.power - row.low for row in found],
                    [row.high - row.power for row in found],
                ],
                fmt=_MARKERS[number % len(_MARKERS)],
                label=test,
                markersize=5,
                lw=0.8,
            )
        axes.set_xticks(range(len(settings)), settings)
        axes.set_xlabel("when the copies are trained on, as a share of training")
        axes.set_ylabel(_POWER)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure)


def _cost(rows: Sequence[PowerRow]) -> str:
    """Median p and its quartiles against passes: a marker a test, a colour a count."""
    tests = list(dict.fromkeys(row.test for row in rows))
    counts = sorted({row.copies for row in rows})
    shades = matplotlib.colormaps["viridis_r"]
    beside = _side_by_side({row.test: row.passes for row in rows})
    # A logarithmic axis writes powers of ten as formulas.
    with matplotlib.rc_context({**STYLE, "text.parse_math": True}):
        figure, axes = figure_axes((7.2, 4.2))
        for number, test in enumerate(tests):
            for row in (row for row in rows if row.test == test):
                middle = 10**row.median_log10_p
                low, high = (10**value for value in row.quartiles_log10_p)
                axes.errorbar(
                    row.passes + beside[test],
                    middle,
                    yerr=[[middle - low], [high - middle]],
                    fmt=_MARKERS[number % len(_MARKERS)],
                    color=shades(counts.index(row.copies) / max(1, len(counts) - 1)),
                    markersize=5,
                    lw=0.8,
                )
        axes.set_yscale("log")
        axes.axhline(_LEVEL, color="black", lw=0.6)
        axes.set_xlabel("passes over the file")
        axes.set_ylabel("p: median and quartiles")
        handles = [
            Line2D([], [], ls="", marker=_MARKERS[i % len(_MARKERS)], color="black")
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
