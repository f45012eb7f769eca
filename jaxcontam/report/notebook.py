"""A report as a notebook shows it: a small table and a figure."""

import html
import io
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from jaxcontam.report.figure import GREY, ORANGE, STYLE
from jaxcontam.report.membership import (
    auc_words,
    blind_name,
    decisive_row,
    membership_sentence,
)
from jaxcontam.report.numbers import effect_words
from jaxcontam.report.outcome import print_outcome, print_unscored
from jaxcontam.report.plots import Interval, draw_split
from jaxcontam.report.replication import (
    replication_rows,
    replication_sentences,
    replication_tables,
)
from jaxcontam.results import OrderResult, Report
from jaxcontam.results.membership import ScoreResult, SetResult
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
    return _html(
        report,
        rows,
        "A small p-value shows that this order was trained on; a large one does not "
        "show that the texts were not.",
    )


def membership_html(report: Report) -> str:
    """AUC and verdict of every score, and what the deciding one says, escaped."""
    scores, decisive = _rankings(report), decisive_row(report)
    rows = [("score", "AUC (95 %)", "verdict")]
    rows += [(row.method, auc_words(row), row.verdict or "beside it") for row in scores]
    rows += [(blind_name(one.name), auc_words(one), "") for one in report.blind]
    said = "A score alone says nothing: give texts of which it is known."
    if decisive is not None:
        said = membership_sentence(decisive, report.blind)
    return _html(report, rows, said)


def replication_html(report: Report, words: Words) -> str:
    """Copies, overlaps and other findings of a replication, all text escaped."""
    tables = [
        table for table in replication_tables(report.results, words) if table.rows
    ]
    said = " ".join(replication_sentences(report.results, words))
    return _html(report, *([table.header, *table.rows] for table in tables), said)


def _html(report: Report, *parts: Sequence[Sequence[object]] | str) -> str:
    """What was run, then tables, whose first row is the header, and sentences."""
    model = "" if report.model is None else html.escape(report.model.name)
    command = html.escape(report.command[0])
    found = f"<p>jaxcontam {command} of <b>{model}</b></p>"
    for part in parts:
        if isinstance(part, str):
            found += f"<p>{html.escape(part)}</p>"
            continue
        head, *body = (
            "".join(f'<td style="{_CELL}">{html.escape(str(one))}</td>' for one in row)
            for row in part
        )
        rows = "".join(f"<tr>{cells}</tr>" for cells in body)
        found += f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return found


def _rankings(report: Report) -> list[ScoreResult | SetResult]:
    return [row for row in report.results if isinstance(row, ScoreResult | SetResult)]


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


def membership_figure(report: Report) -> Figure:
    """AUC of every score and of every blind baseline, with 95 % intervals.

    Raises:
        ValueError: If no side is known, so that nothing is ranked.
    """
    rows = _rankings(report)
    if not rows:
        raise ValueError("no members and non-members are known, so there is no AUC")
    shares = [_share(row.method, row, "auc", primary=row.primary) for row in rows]
    shares += [_share(blind_name(one.name), one, "auc") for one in report.blind]
    return _shares_figure(shares, "AUC (dotted: chance)", nothing=0.5)


def replication_figure(report: Report, words: Words) -> Figure:
    """Share of copies by every judge, then what other methods found, with intervals.

    Raises:
        ValueError: If nothing was judged.
    """
    judges, _, others = replication_rows(report.results)
    shares = [
        _share(words[row.method].label, row, "rate", primary=row.primary)
        for row in (*judges, *others)
        if row.rate is not None
    ]
    if not shares:
        raise ValueError("nothing was judged, so there is no share")
    return _shares_figure(shares, "share of instances that are found", nothing=0.0)


def _share(name: str, row: object, field: str, *, primary: bool = False) -> Interval:
    """A field of a row, with its interval if it has one; in colour if it decides."""
    return Interval(
        name=name,
        value=getattr(row, field),
        low=getattr(row, f"{field}_low", None),
        high=getattr(row, f"{field}_high", None),
        look=(ORANGE if primary else GREY, "o", "full"),
    )


def _shares_figure(
    shares: Sequence[Interval], xlabel: str, *, nothing: float
) -> Figure:
    """One line each; `nothing`, where there is no effect, is dotted."""
    with matplotlib.rc_context(STYLE):
        size = (7.6, 1.0 + 0.3 * len(shares))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        for place, one in enumerate(shares):
            colour, marker, _ = one.look
            axes.plot(one.value, place, marker, color=colour)
            if one.low is not None and one.high is not None:
                axes.hlines(place, one.low, one.high, color=colour)
        axes.axvline(nothing, color="black", lw=0.8, ls=":")
        axes.set_yticks(range(len(shares)), [one.name for one in shares])
        axes.set_xlim(0, 1)
        axes.set_xlabel(xlabel)
        axes.invert_yaxis()
    return figure
