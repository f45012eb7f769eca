"""`jaxcontam report`: page and tables again, from a report and what is beside it."""

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam import results
from jaxcontam.analyses.membership_judging import judged_again
from jaxcontam.analyses.saved import write_page
from jaxcontam.data.hub_splits import is_hub_split, parse_hub_split
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.archive import read_text_rows, typed_rows
from jaxcontam.report.membership import COMMAND as MEMBERSHIP
from jaxcontam.report.membership import study_of
from jaxcontam.report.report_files import (
    DAMAGE,
    REPORT_NAME,
    read_report,
    replace_bytes,
)
from jaxcontam.report.table_csv import csv_cell
from jaxcontam.results.membership import TextScores
from jaxcontam.terminal import printable

# Columns, delimiter and rules are those of `contamination_report.csv` and of the
# contribution guidelines of the space CONDA-Workshop/Data-Contamination-Database on the
# Hugging Face hub, read as of its pull requests 14 to 27 (April and May 2024);
# `Version` came with number 17. Split columns hold percentages, from 0 to 100.
DATABASE_NAME = "database_rows.csv"
SPLITS = ("train", "development", "test")
COLUMNS = (
    *("Evaluation Dataset", "Subset", "Contaminated Source", "Version"),
    *("Model or corpus", "Train Split", "Development Split", "Test Split"),
    *("Approach", "Reference", "PR"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Write report.html and results.csv again, from report.json and what it names.

    Examples:
        # report.html and results.csv, from report.json
        jaxcontam report runs/audit/FOLDER
        # rows for the public database
        jaxcontam report runs/audit/FOLDER --database-row --source org/name
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of a finished run."""
    database_row: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also write database_rows.csv: contaminated benchmarks for the public Data
    Contamination Database."""
    dataset: str | None = None
    """For --database-row: the benchmark's name there, such as google/boolq (default:
    as on the hub, or the file's)."""
    source: str | None = None
    """For --database-row: the model's name there, such as org/name (default: the
    report's)."""
    split_percent: tuple[str, ...] = ()
    """For --database-row: SPLIT=PERCENT that you vouch for, such as test=100; splits
    are train, development, test (default: unknown)."""
    reference: str | None = None
    """For --database-row: address of a page that describes the finding."""

    def __post_init__(self) -> None:
        given = (self.dataset, self.source, self.split_percent, self.reference)
        if any(given) and not self.database_row:
            raise InputError(
                "--dataset, --source, --split-percent and --reference are for "
                "--database-row",
                hint="add --database-row",
            )
        percents_of(self.split_percent)

    def run(self) -> None:
        """Write page and table beside the report, and rows where asked for."""
        import jinja2

        report = read_report(self.directory / REPORT_NAME)
        try:
            # First: what cannot become a row is said before anything is drawn.
            if self.database_row:
                print(printable(write_database_rows(report, self)))
            pictures = ()
            if report.command[0] == MEMBERSHIP:
                if report.study is None:
                    raise KeyError("study")
                texts = typed_rows(read_text_rows(self.directory), TextScores)
                _, again = judged_again(study_of(report), texts, seed=report.seed)
                pictures = again.pictures
            print(printable(write_page(report, self.directory, pictures)))
        except (*DAMAGE, jinja2.TemplateError) as e:
            raise InputError(
                f"{self.directory}: the report cannot be rendered ({e!r})",
                hint="it is damaged, or not of this version; jaxcontam verify says "
                "what differs",
            ) from e


def write_database_rows(report: results.Report, wanted: Report) -> Path:
    """Write database_rows.csv beside a report of audit or replicate; returns its path.

    Nothing but what is contaminated is handed on: the database takes 0 % as evidence
    that a set was not used, which no report here ever says. A test proves that a set
    was seen and not how much of it, so that a split column is empty, which the database
    shows as unknown, unless the user names a share.

    Raises:
        InputError: If the report proves nothing about a benchmark and a model that
            others know, or a word does not fit.
    """
    directory, dataset = wanted.directory, wanted.dataset
    if report.command[0] not in ("audit", "replicate"):
        raise InputError(
            f"{directory}: no report of audit or replicate",
            hint="only these prove something about a benchmark and a public model",
        )
    source = wanted.source or (report.model and report.model.name)
    if source is None:
        raise InputError(
            f"{directory}: the report names no model",
            hint="name it as in the database: --source NAME",
        )
    benchmarks = [
        row.benchmark
        for row in report.results
        if getattr(row, "primary", False)
        and getattr(row, "verdict", None) == "contaminated"
    ]
    if not benchmarks:
        raise InputError(
            f"{directory}: no benchmark has the verdict 'contaminated'",
            hint="the database is for evidence; silence is no evidence of absence",
        )
    if (dataset or wanted.split_percent) and len(benchmarks) > 1:
        raise InputError(
            "--dataset and --split-percent are of one benchmark, and "
            f"{len(benchmarks)} are contaminated ({', '.join(benchmarks)})",
            hint="leave them out, and complete the rows by hand",
        )
    of_hub = [parse_hub_split(word) for word in report.command if is_hub_split(word)]
    datasets = {split.name: (split.dataset, split.config or "") for split in of_hub}
    if dataset is not None:
        datasets[benchmarks[0]] = (dataset, "")
    percents = percents_of(wanted.split_percent)
    shares = [percents.get(split) for split in SPLITS]
    buffer = io.StringIO()
    # Line ends as in the file that the lines are for.
    writer = csv.writer(buffer, delimiter=";", lineterminator="\n")
    writer.writerow(COLUMNS)
    for benchmark in benchmarks:
        name, subset = datasets.get(benchmark, (benchmark, ""))
        cells = [name, subset, source, "", "model", *shares, "model-based"]
        # The number of the pull request is not known before it is made.
        writer.writerow(
            [csv_cell(cell) for cell in [*cells, wanted.reference or "", None]]
        )
    replace_bytes(directory / DATABASE_NAME, buffer.getvalue().encode())
    return directory / DATABASE_NAME


def percents_of(words: Sequence[str]) -> dict[str, float]:
    """Split -> percent, from words such as `test=100`."""
    percents: dict[str, float] = {}
    for word in words:
        split, _, text = word.partition("=")
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        try:
            percent = float(text)
        except ValueError:
            percent = math.nan
        # 0 would say that a split was not used, which no test here can show.
        if not 0 < percent <= 100:
            raise InputError(
                f"--split-percent {word}: not a share above 0 and at most 100",
                hint="such as test=100; leave it out where the share is not known",
            )
        percents[split] = percent
    return percents
