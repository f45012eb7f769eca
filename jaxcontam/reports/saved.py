"""A result written as files: report.json, its evidence, results.csv, report.html."""

import html
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.page import Page, render
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import (
    PAGE_NAME,
    replace_files,
    to_document,
    write_report,
    write_sums,
)
from jaxcontam.reports.table_csv import RESULTS_NAME, results_csv


class Writable:
    """Save and show any analysis that says how it is `written`."""

    __slots__ = ()

    def save(self, out: str | Path) -> Path:
        """Write report.json, its evidence, table and page; returns the page's path."""
        return self.written(Path(out))[1]

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The page that `save` writes, in a frame of a notebook."""
        with tempfile.TemporaryDirectory() as folder:
            page = self.save(folder).read_text(encoding="utf-8")
        return (
            f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600"></iframe>'
        )


def write_files(
    report: Report,
    data: Mapping[str, bytes],
    out: Path,
    page: Callable[[Report], Page] | None = None,
) -> tuple[dict[str, Any], Path]:
    """Write a report, what its numbers follow from, and its page.

    `data` is the name of a file -> its bytes, from which `page` is made if none is
    given. Returns report.json as a document, and the page's path.
    """
    written = write_report(report, data, out)
    made = None if page is None else page(written)
    return to_document(written), write_page(written, out, made)


def write_page(report: Report, directory: Path, page: Page | None = None) -> Path:
    """Write report.html and results.csv beside a report, then the digests of all."""
    if page is None:
        page = kind_of(report.command).page(report, directory)
    texts = {RESULTS_NAME: results_csv(report), PAGE_NAME: render(page)}
    replace_files({directory / name: text.encode() for name, text in texts.items()})
    write_sums(report, directory)
    return directory / PAGE_NAME
