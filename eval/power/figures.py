"""The figures of the power study: power against what was varied, cost against p."""

from collections.abc import Callable, Mapping, Sequence

from eval.curves import Curve, curves_svg
from eval.power.table import PowerRow

# The level of the figures; tables have the others.
_LEVEL = 0.001
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
    families: Mapping[str, tuple[str, str, Callable[[PowerRow], float]]] = {
        "examples": ("examples", "examples tested", lambda row: row.n_examples),
        "share-": (
            "share",
            "planted share of the stream",
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
    curves = []
    for test in dict.fromkeys(row.test for row in rows):
        own = sorted(
            (row for row in rows if row.test == test), key=lambda row: row.copies
        )
        curves.append(
            Curve(
                label=f"{test} ({own[0].passes:.0f} passes)",
                x=[row.copies for row in own],
                y=[row.power for row in own],
                low=[row.low for row in own],
                high=[row.high for row in own],
            )
        )
    ticks = sorted({row.copies for row in rows})
    return curves_svg(
        curves,
        x_label="copies in the training data",
        y_label=_POWER,
        log_x=True,
        x_ticks=ticks,
        level=_LEVEL,
    )


def _over(
    rows: Sequence[PowerRow], label: str, x_of: Callable[[PowerRow], float]
) -> str:
    """A curve a test and duplication count against a number."""
    curves = []
    for test, copies in dict.fromkeys((row.test, row.copies) for row in rows):
        own = sorted(
            (row for row in rows if (row.test, row.copies) == (test, copies)), key=x_of
        )
        curves.append(
            Curve(
                label=f"{test}, {copies} copies",
                x=[x_of(row) for row in own],
                y=[row.power for row in own],
                low=[row.low for row in own],
                high=[row.high for row in own],
                dashed=copies == 0,
            )
        )
    return curves_svg(curves, x_label=label, y_label=_POWER, level=_LEVEL)


def _cost(rows: Sequence[PowerRow]) -> str:
    """Median p against passes: a curve a duplication count, a point a test."""
    curves = []
    for copies in sorted({row.copies for row in rows}, reverse=True):
        own = sorted(
            (row for row in rows if row.copies == copies), key=lambda row: row.passes
        )
        curves.append(
            Curve(
                label=f"{copies} copies",
                x=[row.passes for row in own],
                y=[10**row.median_log10_p for row in own],
            )
        )
    return curves_svg(
        curves,
        x_label="passes over the file",
        y_label="median p",
        log_y=True,
        level=_LEVEL,
    )
