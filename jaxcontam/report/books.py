"""Reports of `jaxcontam books`: sentences, rates of books, and the page."""

from collections.abc import Sequence

import numpy as np

from jaxcontam.report.figure import BLUE, GREY
from jaxcontam.report.numbers import interval_of
from jaxcontam.report.page import report_page
from jaxcontam.report.page_words import BOOKS
from jaxcontam.report.section import (
    Code,
    Figure,
    Items,
    Page,
    Paragraph,
    Section,
    Table,
)
from jaxcontam.results import Report
from jaxcontam.results.books import BookRate
from jaxcontam.results.membership import BlindBaseline, ScoreResult
from jaxcontam.results.terms import Words

COMMAND = "books"

_RATES = (
    "Books by their contamination rate. Grey: books that the model was not trained on, "
    "each judged by the other known books; this is what unseen books look like."
)
_AUCS = (
    "How often a snippet of a seen book scores above one of an unseen book, with 95 % "
    "intervals in which whole books count once. A blind baseline reads the text alone "
    "and no model: where it does as well, seen and unseen books differ by themselves."
)
_WILSON = (
    "Intervals (Wilson) take snippets for independent draws; those of one book "
    "resemble each other, so that the truth is wider."
)
_HELD_OUT = "Each is judged by the cut that all other known books give."
_CHECK = (
    Code("jaxcontam verify DIR"),
    " computes every rate and verdict again from ",
    Code("texts.jsonl"),
    " beside this file, which holds each snippet with its scores; no model is needed.",
)
# What the verdict on the known books says of the rates of others.
_VERDICTS = {
    "members rank higher": "The score tells the known books apart, and no blind "
    "baseline explains it: rates have a footing",
    "may rank higher": "The score seems to tell the known books apart, but chance, or "
    "a difference between the books themselves, is not ruled out: read rates with care",
    "confounded": "The known seen and unseen books can be told apart without any model "
    "as well: rates may measure that difference and not memory",
    "no difference": "The score does not tell the known books apart: rates mean "
    "nothing here",
    "members rank lower": "Known seen books rank below unseen ones: were the folders "
    "swapped? Rates mean nothing here",
    "inconclusive": "The known books are too few to see whether the score tells them "
    "apart: rates mean little here",
}
_N_BINS = 10


def books_page(report: Report, words: Words) -> Page:
    """The page of a run of `books`."""
    known = [
        [title, row.role, *numbers]
        for role in ("member", "nonmember")
        for row in ranked_books(report, role)
        for title, *numbers in [rate_cells(row)]
    ]
    header = ("book", "known as", "snippets", "rate", "95 % interval")
    table = Table(header, known, "known books", words=(1,))
    rates, scores = book_tables(report)
    sections = [
        Section([Items(book_sentences(report))]),
        Section([rates, Paragraph(_WILSON, "quiet")], "Books in question"),
        Section(_figures(report), "Beside known books"),
        Section([scores], "Scores on the known books"),
        Section([Paragraph(_HELD_OUT, "quiet"), table], "Known books", is_folded=True),
    ]
    return report_page(
        report,
        sections,
        words,
        title="Books" + ("" if report.model is None else f": {report.model.name}"),
        kind=BOOKS,
        check=_CHECK,
    )


def book_tables(report: Report) -> tuple[Table, Table]:
    """Rates of the books in question, and scores on the known ones."""
    rates = [rate_cells(row) for row in ranked_books(report, "text")]
    header = ("book", "snippets", "contamination rate", "95 % interval")
    cuts = {cut.method: cut for cut in report.book_thresholds}
    scores = []
    for name, row in book_aucs(report):
        cells = ["-", "-"]
        if (cut := cuts.get(name)) is not None:
            rates_of_right = cut.accuracy, cut.accuracy_held_out
            cells = ["-" if one is None else f"{one:.3f}" for one in rates_of_right]
        scores.append([name, interval_of(row, "auc", ".3f"), *cells])
    score_header = ("score on known books", "AUC (95 %)", "accuracy", "held out")
    return (
        Table(header, rates, "books in question"),
        Table(score_header, scores, "scores on the known books"),
    )


def _figures(report: Report) -> list[Figure]:
    """Rates of books beside those of unseen ones, and how well each score ranks."""
    from jaxcontam.report.plots import histogram, interval_row, intervals_plot

    intervals = [
        interval_row(row, "auc", name, GREY if isinstance(row, BlindBaseline) else BLUE)
        for name, row in book_aucs(report)
    ]
    svg = intervals_plot(intervals, "AUC on the known books", nothing=0.5)
    aucs = Figure(svg, _AUCS)
    unseen, asked = (
        _known_rates(ranked_books(report, role)) for role in ("nonmember", "text")
    )
    if not len(asked):
        return [aucs]
    groups = {"known to be unseen": unseen} if len(unseen) else {}
    svg = histogram(
        groups | {"in question": asked},
        "contamination rate, % of a book's snippets",
        "books",
        edges=np.linspace(0, 100, _N_BINS + 1),
        shares=False,
    )
    return [Figure(svg, _RATES), aucs]


def ranked_books(report: Report, role: str) -> list[BookRate]:
    """Books of a role by the primary score, highest rate first, then by title."""
    rows = [row for row in report.books if row.primary and row.role == role]
    return sorted(rows, key=lambda row: (row.rate is None, -(row.rate or 0), row.title))


def book_aucs(report: Report) -> list[tuple[str, ScoreResult | BlindBaseline]]:
    """Scores on the known books, then blind baselines, each with its name."""
    scores = [row for row in report.results if isinstance(row, ScoreResult)]
    return [
        *((row.method, row) for row in scores),
        *((f"{row.name} (blind)", row) for row in report.blind),
    ]


def book_sentences(report: Report) -> list[str]:
    """What was found, what it rests on, and what speaks against it."""
    (result,) = (
        row for row in report.results if isinstance(row, ScoreResult) and row.primary
    )
    (cut,) = (row for row in report.book_thresholds if row.primary)
    rates = _known_rates(ranked_books(report, "text"))
    what = "book in question has" if len(rates) == 1 else "books in question have"
    auc = interval_of(result, "auc", ".3f")
    sentences = [
        f"{np.count_nonzero(rates > 50)} of {len(rates)} {what} a contamination rate "
        f"above 50% by {cut.method}.",
        f"On {cut.n_member_books} books known to be seen and "
        f"{cut.n_nonmember_books} known to be unseen, {cut.method} has an AUC of "
        f"{auc}; the cut at {cut.threshold:.4g} gets {cut.accuracy:.1%} of their "
        "snippets right.",
    ]
    if cut.fpr_held_out is not None and cut.tpr_held_out is not None:
        sentences.append(
            "Judged by the other known books, a seen book shows a rate of "
            f"{cut.tpr_held_out:.0%} on average and an unseen one "
            f"{cut.fpr_held_out:.0%} (accuracy {cut.accuracy_held_out:.1%})."
        )
    if (meaning := _VERDICTS.get(result.verdict or "")) is not None:
        sentences.append(f"{meaning} (p = {result.p_value:.2g} by books).")
    warnings = (*result.warnings, *report.book_warnings)
    return [*sentences, *(f"Note: {warning.rstrip('.')}." for warning in warnings)]


def rate_cells(row: BookRate) -> list[str]:
    """Title, snippets with a score, rate and its interval."""
    cells = [row.title, str(row.n_scored)]
    if row.rate is None:
        return [*cells, "-", "-"]
    return [*cells, f"{row.rate:.0%}", f"{row.rate_low:.0%} - {row.rate_high:.0%}"]


def _known_rates(rows: Sequence[BookRate]) -> np.ndarray:
    """Rates in percent of the books that have one."""
    return 100 * np.array([row.rate for row in rows if row.rate is not None])
