"""`jaxcontam report`: page and tables again, from a report and what is beside it."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.analyses.membership_judging import judged_again
from jaxcontam.analyses.saved import write_page
from jaxcontam.commands.database_row import percents_of, write_database_rows
from jaxcontam.errors import InputError
from jaxcontam.report.membership import COMMAND as MEMBERSHIP
from jaxcontam.report.report_files import (
    DAMAGE,
    REPORT_NAME,
    read_document,
    read_report,
    replace_bytes,
)
from jaxcontam.report.table_csv import RESULTS_NAME, results_csv
from jaxcontam.report.texts import read_text_rows
from jaxcontam.terminal import visible


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
                rows = write_database_rows(
                    report,
                    self.directory,
                    dataset=self.dataset,
                    source=self.source,
                    split_percent=self.split_percent,
                    reference=self.reference,
                )
                print(visible(str(rows)))
            table = results_csv(report)
            pictures = ()
            if report.command[0] == MEMBERSHIP:
                document = read_document(self.directory / REPORT_NAME)
                _, again = judged_again(document, read_text_rows(self.directory))
                pictures = again.pictures
            replace_bytes(self.directory / RESULTS_NAME, table.encode())
            print(visible(str(write_page(report, self.directory, pictures))))
        except (*DAMAGE, jinja2.TemplateError) as e:
            raise InputError(
                f"{self.directory}: the report cannot be rendered ({e!r})",
                hint="it is damaged, or not of this version; jaxcontam verify says "
                "what differs",
            ) from e
