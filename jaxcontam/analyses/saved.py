"""A result written as files: report.json, orders.npz, results.csv, report.html."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.commands.report import write_page
from jaxcontam.report.document import write_report
from jaxcontam.results import Evidence, Report


def write_files(
    report: Report, evidence: Sequence[Evidence | None], out: Path
) -> tuple[dict[str, Any], Path]:
    """Write a report and its page.

    Args:
        report: What was found.
        evidence: One a result, None where a result has no orders.
        out: Folder, made if missing.

    Returns:
        The document of report.json, and the page's path.

    Raises:
        InputError: If the folder cannot be written.
    """
    document = write_report(report, evidence, out)
    return document, write_page(document, out)
