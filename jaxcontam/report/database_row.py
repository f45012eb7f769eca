"""Rows for the Data Contamination Database, a public list of evidence.

Columns, delimiter and rules are those of `contamination_report.csv` and of the
contribution guidelines of the space CONDA-Workshop/Data-Contamination-Database on the
Hugging Face hub, read as of its pull requests 14 to 27 (April and May 2024); `Version`
came with number 17. Split columns hold percentages, from 0 (not contaminated) to 100.
"""

import csv
import io
from collections.abc import Mapping, Sequence

from jaxcontam.report.table_csv import csv_cell
from jaxcontam.results import Report

DATABASE_NAME = "database_rows.csv"
SPLITS = ("train", "development", "test")
COLUMNS = (
    "Evaluation Dataset",
    "Subset",
    "Contaminated Source",
    "Version",
    "Model or corpus",
    "Train Split",
    "Development Split",
    "Test Split",
    "Approach",
    "Reference",
    "PR",
)


def proven_benchmarks(report: Report) -> list[str]:
    """Benchmarks that the database has a row for: those that are contaminated.

    Nothing else is handed on. The database takes 0 % as evidence that a set was not
    used, which no report here ever says.
    """
    return [
        row.benchmark
        for row in report.results
        if getattr(row, "primary", False)
        and getattr(row, "verdict", None) == "contaminated"
    ]


def database_csv(
    benchmarks: Sequence[str],
    *,
    source: str,
    datasets: Mapping[str, tuple[str, str]],
    percents: Mapping[str, float],
    reference: str,
) -> str:
    """Lines for `contamination_report.csv`, below its header.

    A test proves that a set was seen and not how much of it, so that a split column is
    empty, which the database shows as unknown, unless the user names a share.

    Args:
        benchmarks: See `proven_benchmarks`.
        source: The model, as the database should name it.
        datasets: Benchmark -> dataset and subset, where they are known.
        percents: Split -> share of it that the user vouches for, in percent.
        reference: Address of a paper or page that describes the finding, or "".
    """
    buffer = io.StringIO()
    # Line ends as in the file that the lines are for.
    writer = csv.writer(buffer, delimiter=";", lineterminator="\n")
    writer.writerow(COLUMNS)
    for benchmark in benchmarks:
        dataset, subset = datasets.get(benchmark, (benchmark, ""))
        splits = [percents.get(split) for split in SPLITS]
        cells = [dataset, subset, source, "", "model", *splits, "model-based"]
        # The number of the pull request is not known before it is made.
        writer.writerow([csv_cell(cell) for cell in [*cells, reference, None]])
    return buffer.getvalue()
