"""What an audit prints: the table, notes of each benchmark, remedies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxcontam.methods import options
from jaxcontam.report.attraction import attraction_sentence, pair_row
from jaxcontam.report.document import result_row
from jaxcontam.report.own_order import all_pretests, own_order_sentence
from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.reference_model import reference_row, reference_sentence
from jaxcontam.report.remedies import ways_out
from jaxcontam.report.table import print_results
from jaxcontam.report.why import failed_checks, why
from jaxcontam.results import OrderResult
from jaxcontam.verdict import INCONCLUSIVE, INVALID_DESIGN, NO_EVIDENCE


def print_outcome(
    results: list[OrderResult], command: tuple[str, ...], page: Path, console: Console
) -> None:
    """Print decided results, notes of primary ones, and what to do about them.

    Args:
        results: Of one run.
        command: The words that made them; remedies repeat it.
        page: Where report.html stands.
        console: Where to print.
    """
    print_results(results, console)
    rows = [result_row(result) for result in results]
    for row in rows:
        if not row["primary"]:
            continue
        name = row["benchmark"]
        for words in (*row["warnings"], *_notes(row, rows)):
            console.print(f"{name}: {words}", highlight=False, markup=False)
        for i, way in enumerate(ways_out(row, command, rows)):
            line = f"  {'or' if i else 'remedy'}: {way.words}"
            if way.line is not None:
                line += f": {way.line}"
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)


def _notes(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of a primary test: why, what was remembered, and how much."""
    if row["verdict"] == INVALID_DESIGN and row["method"] == options.METHOD.name:
        failed = "; ".join(plain_name(test["name"]) for test in failed_checks(row))
        return [
            f"its options' order is not random before any model sees it ({failed})."
        ]
    found = []
    if row["verdict"] not in (NO_EVIDENCE, INCONCLUSIVE):
        found.append(why(row, rows))
        if (pairs := pair_row(row, rows)) is not None:
            found.append(attraction_sentence(pairs, row["verdict"]) or "")
    found.append(reference_sentence(reference_row(row, rows)) or "")
    pretests = all_pretests(row, rows)
    if not all(test["passed"] for test in pretests):
        found.append(own_order_sentence(pretests) or "")
    if row["verdict"] == NO_EVIDENCE:
        found.append(scale_sentence(row) or "")
    return [words for words in found if words]
