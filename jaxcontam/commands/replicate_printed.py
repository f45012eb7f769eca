"""What `jaxcontam replicate` shows on a terminal."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxcontam.report.replication import (
    comparison_cells,
    is_comparison,
    is_judge,
    judge_cells,
    overlap_cells,
    replication_sentences,
)


def print_replication(document: dict[str, Any], page: Path, console: Console) -> None:
    """Tables of judges, overlaps and comparisons, then sentences."""
    rows = document["results"]
    tables = (
        (is_judge, judge_cells, "judge judged exact near copies control verdict"),
        (
            lambda row: not is_judge(row) and not is_comparison(row),
            overlap_cells,
            "overlap test pairs guided general p below-0.05",
        ),
        (is_comparison, comparison_cells, "asked-for n found share chance finding"),
    )
    for chosen, cells, names in tables:
        columns = [name.replace("-", " ") for name in names.split()]
        table = Table(*columns, box=None, padding=(0, 1, 0, 0), header_style="bold")
        for row in rows:
            if chosen(row):
                table.add_row(*cells(row))
        if table.row_count:
            console.print(table)
            console.print()
    for sentence in replication_sentences(rows):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False, markup=False)
