"""`jaxcontam report`: page and tables again, from a report and what is beside it."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.analyses.membership_judging import judged_again
from jaxcontam.analyses.saved import write_page
from jaxcontam.errors import InputError
from jaxcontam.report.archive import read_text_rows, typed_rows
from jaxcontam.report.membership import COMMAND as MEMBERSHIP
from jaxcontam.report.membership import study_of
from jaxcontam.report.report_files import DAMAGE, REPORT_NAME, read_report
from jaxcontam.results.membership import TextScores
from jaxcontam.terminal import visible


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
            pictures = ()
            if report.command[0] == MEMBERSHIP:
                if report.study is None:
                    raise KeyError("study")
                texts = typed_rows(read_text_rows(self.directory), TextScores)
                _, again = judged_again(study_of(report), texts, seed=report.seed)
                pictures = again.pictures
            print(visible(str(write_page(report, self.directory, pictures))))
        except (*DAMAGE, jinja2.TemplateError) as e:
            raise InputError(
                f"{self.directory}: the report cannot be rendered ({e!r})",
                hint="it is damaged, or not of this version; jaxcontam verify says "
                "what differs",
            ) from e
