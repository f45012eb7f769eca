"""A result in a notebook or an interpreter: its text and its figure."""

import io
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from jaxcontam.report.figure import GREY, ORANGE, STYLE
from jaxcontam.report.membership import blind_name
from jaxcontam.report.outcome import print_outcome, print_unscored
from jaxcontam.report.plots import draw_split, interval_row, intervals_figure
from jaxcontam.report.replication import replication_rows
from jaxcontam.results import OrderResult, Report
from jaxcontam.results.membership import BlindBaseline, ScoreResult, SetResult
from jaxcontam.results.terms import Words
from jaxcontam.terminal import Terminal

# p-values below are drawn here.
_DEEPEST = 20.0
_LEVEL = 3.0
# A row that decides stands out.
_COLOURS = {True: ORANGE, False: GREY}


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
    # All pairs are better than some.
    by_pairs = sorted(numbers, key=lambda one: one.lag_profile is None)
    pairs = [one for one in by_pairs if one.neighbours is not None]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.6), layout="constrained")
        panels = figure.subplots(1, 1 + bool(pairs), squeeze=False)[0]
        depths = [min(_DEEPEST, -one.log10_p) for one in numbers]
        colours = [_COLOURS[row.primary] for row in results]
        panels[0].barh([row.method for row in results], depths, color=colours)
        panels[0].axvline(_LEVEL, color="black", lw=0.8, ls=":")
        panels[0].set_xlabel("-log10 p (dotted: p = 0.001)")
        panels[0].invert_yaxis()
        if pairs:
            draw_split(panels[1], pairs[0])
    return figure


def membership_figure(
    scores: Sequence[ScoreResult | SetResult], blind: Sequence[BlindBaseline]
) -> Figure:
    """AUC of every score and of every blind baseline, with 95 % intervals."""
    if not scores:
        raise ValueError("no members and non-members are known, so there is no AUC")
    rows = [
        interval_row(row, "auc", row.method, _COLOURS[row.primary]) for row in scores
    ]
    rows += [interval_row(one, "auc", blind_name(one.name)) for one in blind]
    return intervals_figure(rows, "AUC", nothing=0.5)


def replication_figure(report: Report, words: Words) -> Figure:
    """Share of copies by every judge, then what other methods found, with intervals."""
    judges, _, others = replication_rows(report.results)
    rows = [
        interval_row(row, "rate", words[row.method].label, _COLOURS[row.primary])
        for row in (*judges, *others)
        if row.rate is not None
    ]
    if not rows:
        raise ValueError("nothing was judged, so there is no share")
    return intervals_figure(rows, "share of instances that are found", nothing=0.0)
