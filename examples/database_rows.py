"""Rows for the Data Contamination Database of the CONDA workshop, from a report.

    python examples/database_rows.py runs/audit/FOLDER --source org/name > rows.csv

Columns, delimiter and rules are those of the database's `contamination_report.csv` in
May 2024. A row is written for a benchmark with the verdict `contaminated` alone: the
database reads 0 % as evidence that a set was not used, which no report says. No test
shows how much of a set was seen: the share stays empty (unknown) unless you vouch for
one.
"""

import argparse
import csv
import json
import sys
from pathlib import Path

from jaxcontam.reports.table_csv import csv_cell

SPLITS = ("train", "development", "test")
COLUMNS = (
    "Evaluation Dataset;Subset;Contaminated Source;Version;Model or corpus;Train Split;"
    "Development Split;Test Split;Approach;Reference;PR"
)


def main(words: list[str] | None = None) -> None:
    """Print the rows of one report of audit or replicate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="folder of a finished run")
    parser.add_argument("--source", help="the model's name in the database")
    parser.add_argument("--dataset", help="the benchmark's name in the database")
    parser.add_argument("--reference", help="address of a page about the finding")
    parser.add_argument("--split-percent", nargs="*", default=[], help="test=100")
    wanted = parser.parse_args(words)

    report = json.loads((wanted.directory / "report.json").read_text())
    found = [row for row in report["results"] if row.get("primary")]
    names = [row["benchmark"] for row in found if row["verdict"] == "contaminated"]
    if report["command"][0] not in ("audit", "replicate") or not names:
        parser.error("no report of audit or replicate that calls a set contaminated")
    if (wanted.dataset or wanted.split_percent) and len(names) > 1:
        parser.error(f"--dataset and --split-percent are of one set, not of {names}")
    percents = dict(word.split("=") for word in wanted.split_percent)
    if not set(percents) <= set(SPLITS):
        parser.error(f"splits are {', '.join(SPLITS)}")
    if not all(0 < float(percent) <= 100 for percent in percents.values()):
        parser.error("a percentage is above 0 and at most 100")
    shares = [percents.get(split) for split in SPLITS]
    source = wanted.source or (report["model"] or {}).get("name")

    writer = csv.writer(sys.stdout, delimiter=";", lineterminator="\n")
    writer.writerow(COLUMNS.split(";"))
    for name in names:
        row = [wanted.dataset or name, "", source, "", "model", *shares]
        row += ["model-based", wanted.reference, None]
        writer.writerow([csv_cell(cell) for cell in row])


if __name__ == "__main__":
    main()
