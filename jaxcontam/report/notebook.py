"""A report as a notebook shows it: a small table and a figure."""

import html
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE
from jaxcontam.results import OrderResult, Report

# Standard errors on each side of a 95 % interval.
_WIDTH = 1.96
# p-values below are drawn here.
_DEEPEST = 20.0
_LEVEL = 3.0
_CELL = "padding:2px 12px 2px 0;text-align:left"


def summary_html(report: Report) -> str:
    """Verdict, p-value and effect of every test as one table, all text escaped."""
    head = ("benchmark", "test", "p-value", "effect", "verdict")
    rows = [
        (row.benchmark, row.method, _p(row), _effect(row), row.verdict or "beside it")
        for row in report.results
        if isinstance(row, OrderResult)
    ]
    rows += [
        (file.benchmark, file.method, "not scored", "", file.verdict)
        for file in report.unscored
    ]
    cells = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{html.escape(c)}</td>' for c in row)
        for row in rows
    )
    names = "".join(f'<th style="{_CELL}">{name}</th>' for name in head)
    model = "" if report.model is None else html.escape(report.model.name)
    return (
        f"<p>jaxcontam audit of <b>{model}</b></p>"
        f"<table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>"
        "<p>A small p-value shows that this order was trained on; a large one does not "
        "show that the texts were not.</p>"
    )


def audit_figure(results: Sequence[OrderResult]) -> Figure:
    """Tests of one benchmark: depth of each p-value, and gains beside neighbours.

    Args:
        results: At least one.

    Returns:
        One panel of -log10 p, with the level of a verdict; where pairs were scored a
        second one of what an example gains after its neighbours, with 95 % intervals.
    """
    found = [row.numbers.neighbours for row in results]
    neighbours = next((one for one in found if one is not None), None)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.6), layout="constrained")
        panels = figure.subplots(1, 1 if neighbours is None else 2, squeeze=False)[0]
        depths = [min(_DEEPEST, -row.numbers.log10_p) for row in results]
        colours = [ORANGE if row.primary else GREY for row in results]
        panels[0].barh([row.method for row in results], depths, color=colours)
        panels[0].axvline(_LEVEL, color="black", lw=0.8, ls=":")
        panels[0].set_xlabel("-log10 p (dotted: p = 0.001)")
        panels[0].invert_yaxis()
        if neighbours is not None:
            means = (neighbours.forward, neighbours.backward)
            errors = (neighbours.forward_se, neighbours.backward_se)
            panels[1].barh(
                ["after the one\nbefore it", "after the one\nbehind it"],
                means,
                xerr=[_WIDTH * error for error in errors],
                color=[ORANGE, BLUE],
            )
            panels[1].axvline(0, color="black", lw=0.6)
            panels[1].set_xlabel("gain of an example, nats")
            panels[1].invert_yaxis()
    return figure


def _p(row: OrderResult) -> str:
    return f"{row.numbers.p_value:.2g}"


def _effect(row: OrderResult) -> str:
    numbers = row.numbers
    if numbers.effect is None:
        return ""
    error = "" if numbers.effect_se is None else f" ± {numbers.effect_se:.2g}"
    return f"{numbers.effect:.2g}{error} {row.effect_unit}"
