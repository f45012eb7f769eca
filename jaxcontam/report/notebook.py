"""A report as a notebook shows it: a small table and a figure."""

import html
import io
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from jaxcontam.report.figure import GREY, ORANGE, STYLE
from jaxcontam.report.numbers import effect_words
from jaxcontam.report.outcome import print_outcome, print_unscored
from jaxcontam.report.plots import draw_split
from jaxcontam.results import OrderResult, Report
from jaxcontam.results.terms import Words
from jaxcontam.terminal import Terminal

# p-values below are drawn here.
_DEEPEST = 20.0
_LEVEL = 3.0
_CELL = "padding:2px 12px 2px 0;text-align:left"


def summary_html(report: Report) -> str:
    """Verdict, p-value and effect of every test as one table, all text escaped."""
    rows = [("benchmark", "test", "p-value", "effect", "verdict")]
    for row in report.results:
        if isinstance(row, OrderResult):
            numbers, verdict = row.numbers, row.verdict or "beside it"
            effect = effect_words(numbers.effect, numbers.effect_se, dash="")
            effect += f" {row.effect_unit}" * bool(effect)
            p = f"{numbers.p_value:.2g}"
            rows.append((row.benchmark, row.method, p, effect, verdict))
    rows += [
        (file.benchmark, file.method, "not scored", "", file.verdict)
        for file in report.unscored
    ]
    head, *body = (
        "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in row)
        for row in rows
    )
    model = "" if report.model is None else html.escape(report.model.name)
    return (
        f"<p>jaxcontam audit of <b>{model}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(f'<tr>{cells}</tr>' for cells in body)}</tbody></table>"
        "<p>A small p-value shows that this order was trained on; a large one does not "
        "show that the texts were not.</p>"
    )


def summary_text(report: Report, words: Words) -> str:
    """What `jaxcontam audit` prints, in 80 columns: table, notes, what to do."""
    page = io.StringIO()
    console = Terminal(file=page, width=80)
    if found := [row for row in report.results if isinstance(row, OrderResult)]:
        print_outcome(found, report.command, words, console)
    print_unscored(report.unscored, report.command, words, console)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def audit_figure(results: Sequence[OrderResult]) -> Figure:
    """Tests of one benchmark: depth of each p-value, and memory beside natural order.

    One panel of -log10 p, with the level of a verdict; where pairs were scored a
    second one, as `draw_split` has it.
    """
    numbers = [row.numbers for row in results]
    pairs = [one for one in numbers if one.neighbours is not None]
    # All pairs are better than some.
    pairs.sort(key=lambda one: one.lag_profile is None)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.6), layout="constrained")
        panels = figure.subplots(1, 1 + bool(pairs), squeeze=False)[0]
        depths = [min(_DEEPEST, -one.log10_p) for one in numbers]
        colours = [ORANGE if row.primary else GREY for row in results]
        panels[0].barh([row.method for row in results], depths, color=colours)
        panels[0].axvline(_LEVEL, color="black", lw=0.8, ls=":")
        panels[0].set_xlabel("-log10 p (dotted: p = 0.001)")
        panels[0].invert_yaxis()
        if pairs:
            draw_split(panels[1], pairs[0])
    return figure
