"""What `jaxcontam replicate` shows on a terminal."""

from rich.console import Console

from jaxcontam.analyses.method_notes import report_words
from jaxcontam.report.replication import replication_sentences, replication_tables
from jaxcontam.report.table import print_table
from jaxcontam.results import Report


def print_replication(report: Report, console: Console) -> None:
    """Tables of judges, overlaps and comparisons, then sentences."""
    words = report_words(report)
    for table in replication_tables(report.results, words):
        if table.rows:
            print_table(table, console)
            console.print()
    for sentence in replication_sentences(report.results, words):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
