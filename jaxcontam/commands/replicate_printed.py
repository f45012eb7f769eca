"""What `jaxcontam replicate` shows on a terminal."""

from rich.console import Console
from rich.table import Table

from jaxcontam.analyses.method_notes import report_words
from jaxcontam.report.replication import (
    comparison_cells,
    judge_cells,
    overlap_cells,
    replication_rows,
    replication_sentences,
)
from jaxcontam.results import Report


def print_replication(report: Report, console: Console) -> None:
    """Tables of judges, overlaps and comparisons, then sentences."""
    words = report_words(report)
    judges, overlaps, comparisons = replication_rows(report.results)
    for names, rows in (
        (
            "judge judged exact near copies control verdict",
            [judge_cells(row, words) for row in judges],
        ),
        (
            "overlap test pairs guided general p below-0.05",
            [overlap_cells(row) for row in overlaps],
        ),
        (
            "asked-for n found share chance finding",
            [comparison_cells(row, words) for row in comparisons],
        ),
    ):
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for name in names.split():
            table.add_column(name.replace("-", " "))
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            console.print(table)
            console.print()
    for sentence in replication_sentences(report.results, words):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
