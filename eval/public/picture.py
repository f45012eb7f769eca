"""The table as a picture: models as rows, darker where the adjusted p is smaller."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.patches import Patch, Rectangle

from jaxcontam.report.figure import STYLE, figure_axes, svg_text
from jaxcontam.verdict import INVALID_DESIGN

# Adjusted p above each, and its colour; the darkest two carry white words.
_STEPS = (
    (0.05, "#f4f7fb", "p > 0.05"),
    (0.001, "#c9dcf0", "p <= 0.05"),
    (1e-6, "#7fb0dc", "p <= 0.001"),
    (1e-12, "#1f5fa8", "p <= 1e-6"),
    (-1.0, "#0b2f5b", "p <= 1e-12"),
)
_WHITE_FROM = 1e-6
_INVALID, _FAILED = ("#e3d4e6", "invalid design"), ("#dddddd", "failed")
_CELL_INCHES = (0.95, 0.34)
# Around the cells: names of models, names of benchmarks, legend.
_MARGIN_INCHES = (3.0, 1.7)


def heat_map(
    rows: Sequence[Mapping[str, Any]],
    words: Mapping[tuple[str, str], str],
    models: Sequence[str],
    benchmarks: Sequence[str],
) -> str:
    """SVG of the table; each cell shows p before correction, its colour p after it.

    Args:
        rows: Cells of public.json.
        words: (model, benchmark) -> what stands in the cell.
        models: From top to bottom.
        benchmarks: From left to right.
    """
    by_cell = {(row["model"], row["benchmark"]): row for row in rows}
    size = tuple(
        n * cell + margin
        for n, cell, margin in zip(
            (len(benchmarks), len(models)), _CELL_INCHES, _MARGIN_INCHES, strict=True
        )
    )
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((size[0], size[1]))
        shown: dict[str, str] = {}
        for y, model in enumerate(models):
            for x, benchmark in enumerate(benchmarks):
                row = by_cell.get((model, benchmark))
                colour, meaning = _look(row)
                shown[meaning] = colour
                axes.add_patch(Rectangle((x, y), 1, 1, fc=colour, ec="white", lw=1.5))
                is_dark = row is not None and _is_dark(row)
                axes.text(
                    x + 0.5,
                    y + 0.5,
                    words.get((model, benchmark), _FAILED[1]),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if is_dark else "black",
                )
        axes.set_xlim(0, len(benchmarks))
        axes.set_ylim(len(models), 0)
        axes.set_xticks(
            [x + 0.5 for x in range(len(benchmarks))],
            list(benchmarks),
            rotation=40,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_yticks([y + 0.5 for y in range(len(models))], list(models))
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        order = [step[2] for step in _STEPS] + [_INVALID[1], _FAILED[1]]
        handles = [
            Patch(fc=shown[meaning], ec="grey", lw=0.4, label=meaning)
            for meaning in order
            if meaning in shown
        ]
        figure.legend(
            handles=handles,
            title="adjusted",
            loc="outside right upper",
            frameon=False,
            fontsize=8,
        )
        return svg_text(figure)


def _look(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Colour of a cell and what it means."""
    if row is None:
        return _FAILED
    if row["verdict"] == INVALID_DESIGN:
        return _INVALID
    return next(
        (colour, meaning)
        for above, colour, meaning in _STEPS
        if row["p_adjusted"] > above
    )


def _is_dark(row: Mapping[str, Any]) -> bool:
    return row["verdict"] != INVALID_DESIGN and row["p_adjusted"] <= _WHITE_FROM
