"""Report of `jaxcontam books`: report.json, texts.jsonl with every score, and a page.

`texts.jsonl` is the evidence: thresholds and rates follow from it alone.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.report.document import (
    is_report_of,
    make_folder,
    replace_bytes,
    save_document,
    to_document,
)
from jaxcontam.report.membership import TEXTS_NAME
from jaxcontam.report.page_words import BOOKS
from jaxcontam.report.template import PAGE_NAME, MethodNote, render
from jaxcontam.results import Report
from jaxcontam.results.books import BookRate, BookThreshold

COMMAND = "books"
MEANING = (
    "A contamination rate is the share of a book's snippets that score as snippets of "
    "the known seen books do, and not as those of the known unseen ones. It ranks "
    "books and proves nothing: an unseen book shows a rate above zero as well, and "
    "where seen and unseen books differ in more than having been seen, such as in "
    "their years, a rate measures that, too. A low rate does not say that a book was "
    "never seen."
)

# What the verdict on the known books says of the rates of others.
_VERDICTS = {
    "contaminated": "The score tells the known books apart, and no blind baseline "
    "explains it: rates have a footing",
    "suspected": "The score seems to tell the known books apart, but chance, or a "
    "difference between the books themselves, is not ruled out: read rates with care",
    "confounded": "The known seen and unseen books can be told apart without any model "
    "as well: rates may measure that difference and not memory",
    "no evidence": "The score does not tell the known books apart: rates mean nothing "
    "here",
    "inconclusive": "The known books are too few to see whether the score tells them "
    "apart: rates mean little here",
}


def is_books(document: Mapping[str, Any]) -> bool:
    """Whether a report is one of `jaxcontam books`."""
    return is_report_of(document, COMMAND)


def write_books(
    report: Report,
    thresholds: Sequence[BookThreshold],
    rates: Sequence[BookRate],
    rows: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Write `texts.jsonl` and then `report.json`, each whole or not at all.

    Args:
        report: Its results are the scores on the snippets of known books.
        thresholds: One a score.
        rates: One a book and score.
        rows: One a snippet; see `text_rows`.
        out: Folder, created if missing.
        warnings: What the reader should know of the books, one sentence each.

    Returns:
        The document as written.
    """
    make_folder(out)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    data = "".join(line + "\n" for line in lines).encode()
    document = to_document(report)
    document["book_thresholds"] = [dataclasses.asdict(row) for row in thresholds]
    document["books"] = [dataclasses.asdict(row) for row in rates]
    document["book_warnings"] = list(warnings)
    save_document(document, TEXTS_NAME, data, out)
    return document


def write_books_page(
    document: Mapping[str, Any], directory: Path, methods: Sequence[MethodNote]
) -> Path:
    """Write report.html of a run of `books`; returns its path."""
    from jaxcontam.report.book_plots import auc_plot, rate_histogram

    results, blind = document["results"], document.get("blind", [])
    rates = ranked(document, "text")
    unseen = [r["rate"] for r in ranked(document, "nonmember") if r["rate"] is not None]
    tested = [row["rate"] for row in rates if row["rate"] is not None]
    fields = {
        "title": f"Books: {document['model']['name']}",
        "subtitle": f"Made {document['started']} in {document['wall_seconds']:.0f} s.",
        "sentences": book_sentences(document),
        "meaning": MEANING,
        "rates": [rate_cells(row) for row in rates],
        "known": [
            [title, row["role"], *numbers]
            for role in ("member", "nonmember")
            for row in ranked(document, role)
            for title, *numbers in [rate_cells(row)]
        ],
        "rate_svg": rate_histogram(tested, unseen) if tested else None,
        "auc_svg": auc_plot(results, blind),
        "aucs": [
            [
                row["method"],
                interval_words(row["auc"], row["auc_low"], row["auc_high"]),
                *_accuracies(document, row["method"]),
            ]
            for row in results
        ],
        "blind": [
            [
                f"{row['name']} (blind)",
                interval_words(row["auc"], row["auc_low"], row["auc_high"]),
                "-",
                "-",
            ]
            for row in blind
        ],
    }
    page = render("books.html.j2", document, fields, methods=methods, words=BOOKS)
    replace_bytes(directory / PAGE_NAME, page.encode())
    return directory / PAGE_NAME


def ranked(document: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    """Books of a role by the primary score, highest rate first, then by title."""
    rows = [r for r in document["books"] if r["primary"] and r["role"] == role]
    return sorted(
        rows, key=lambda r: (r["rate"] is None, -(r["rate"] or 0), r["title"])
    )


def book_sentences(document: Mapping[str, Any]) -> list[str]:
    """What was found, what it rests on, and what speaks against it."""
    (result,) = (row for row in document["results"] if row["primary"])
    (cut,) = (row for row in document["book_thresholds"] if row["primary"])
    rates = [r["rate"] for r in ranked(document, "text") if r["rate"] is not None]
    above = sum(rate > 0.5 for rate in rates)
    auc = interval_words(result["auc"], result["auc_low"], result["auc_high"])
    sentences = [
        f"{above} of {len(rates)} "
        + ("book in question has" if len(rates) == 1 else "books in question have")
        + f" a contamination rate above 50% by {cut['method']}.",
        f"On {cut['n_member_books']} books known to be seen and "
        f"{cut['n_nonmember_books']} known to be unseen, {cut['method']} has an AUC of "
        f"{auc}; the cut at {cut['threshold']:.4g} gets {cut['accuracy']:.1%} of their "
        "snippets right.",
    ]
    if cut["fpr_held_out"] is not None and cut["tpr_held_out"] is not None:
        sentences.append(
            "Judged by the other known books, a seen book shows a rate of "
            f"{cut['tpr_held_out']:.0%} on average and an unseen one "
            f"{cut['fpr_held_out']:.0%} (accuracy {cut['accuracy_held_out']:.1%})."
        )
    if (meaning := _VERDICTS.get(result["verdict"])) is not None:
        sentences.append(f"{meaning} (p = {result['p_value']:.2g} by books).")
    warnings = [*result["warnings"], *document["book_warnings"]]
    notes = [f"Note: {warning.rstrip('.')}." for warning in warnings]
    return sentences + notes


def rate_cells(row: Mapping[str, Any]) -> list[str]:
    """Title, snippets with a score, rate and its interval."""
    if row["rate"] is None:
        return [row["title"], str(row["n_scored"]), "-", "-"]
    return [
        row["title"],
        str(row["n_scored"]),
        f"{row['rate']:.0%}",
        f"{row['rate_low']:.0%} - {row['rate_high']:.0%}",
    ]


def interval_words(value: float, low: float, high: float) -> str:
    """A number with its 95 % interval."""
    return f"{value:.3f} ({low:.3f} - {high:.3f})"


def _accuracies(document: Mapping[str, Any], method: str) -> list[str]:
    (cut,) = (row for row in document["book_thresholds"] if row["method"] == method)
    held_out = cut["accuracy_held_out"]
    return [f"{cut['accuracy']:.3f}", "-" if held_out is None else f"{held_out:.3f}"]
