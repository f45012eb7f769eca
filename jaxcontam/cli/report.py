"""`jaxcontam report`: page and tables again, from a report and what is beside it."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.errors import InputError
from jaxcontam.reports.report_files import DAMAGE, REPORT_NAME, read_report
from jaxcontam.reports.saved import write_page
from jaxcontam.terminal import printable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Write report.html and results.csv again, from report.json and what it names.

    Examples:
        jaxcontam report runs/audit/FOLDER
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of a finished run."""

    def run(self) -> None:
        """Write page and table beside the report."""
        import jinja2

        report = read_report(self.directory / REPORT_NAME)
        try:
            print(printable(write_page(report, self.directory)))
        except (*DAMAGE, jinja2.TemplateError) as e:
            raise InputError(
                f"{self.directory}: the report cannot be rendered ({e!r})",
                hint="it is damaged, or not of this version; jaxcontam verify says "
                "what differs",
            ) from e
