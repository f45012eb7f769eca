"""Reports of `audit` and of `calibrate`: their rows, pages and checks."""

from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.orders.ask_again import ask_again
from jaxcontam.orders.calibration_page import calibration_page
from jaxcontam.orders.calibration_result import CalibrationReport, DrawnPValues
from jaxcontam.orders.methods import TESTS, WORDS
from jaxcontam.proof.kind import kind_of_tests
from jaxcontam.reports.archive import P_VALUES_NAME, read_arrays
from jaxcontam.reports.kinds import Asked, Checked, Kind
from jaxcontam.reports.page import Page
from jaxcontam.reports.report import Report

AUDIT = kind_of_tests(TESTS, ask_again=ask_again)


def _calibration_page(report: Report, directory: Path) -> Page:
    path = directory / P_VALUES_NAME
    found = read_arrays(path, len(report.results), DrawnPValues)
    drawn = [one for one in found if one is not None]
    if len(drawn) < len(report.results):
        raise InputError(f"{path}: not the p-values of this report")
    return calibration_page(report, drawn, WORDS)


def _check_calibration(
    directory: Path, document: dict[str, Any], asked: Asked
) -> Checked:
    raise InputError(
        f"{directory}: a calibration, whose orders were not kept",
        hint="run it again: the same seed gives the same p-values",
    )


CALIBRATION = Kind(
    report=CalibrationReport,
    words=lambda report: WORDS,
    page=_calibration_page,
    check=_check_calibration,
)
