"""Report of `jaxcontam calibrate`: rates in report.json, every p-value beside it."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.report.archive import DAMAGED_ARRAY
from jaxcontam.report.document import (
    is_report_of,
    make_folder,
    replace_bytes,
    save_document,
    to_document,
)
from jaxcontam.report.page_words import CALIBRATION
from jaxcontam.report.template import PAGE_NAME, MethodNote, render
from jaxcontam.results import Report
from jaxcontam.results.calibration import RELABELLED, DrawnPValues

P_VALUES_NAME = "p_values.npz"
COMMAND = "calibrate"

MEANING = (
    "This checks the path from the file to p on this model: tokens, batches, padding, "
    "the place of each order, the law of the test. It does not validate that the "
    "published order of the file is exchangeable: random orders are, whatever the file."
)
_RELABELLED_MEANING = (
    "Columns of one scored order, relabelled at random: the law that an exact test "
    "refers to, and so a check of approximate tests alone."
)


def is_calibration(document: Mapping[str, Any]) -> bool:
    """Whether a report is one of `jaxcontam calibrate`."""
    return is_report_of(document, COMMAND)


def write_calibration(
    report: Report, drawn: Sequence[DrawnPValues], out: Path
) -> dict[str, Any]:
    """Write `p_values.npz` and then `report.json`, each whole or not at all.

    Args:
        report: Rows are `CalibrationResult`.
        drawn: One a row.
        out: Folder, created if missing.

    Returns:
        The document as written.
    """
    make_folder(out)
    arrays = {
        f"{r}/{field.name}": value
        for r, row in enumerate(drawn)
        for field in dataclasses.fields(row)
        if (value := getattr(row, field.name)) is not None
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    archive = buffer.getvalue()
    document = to_document(report)
    save_document(document, P_VALUES_NAME, archive, out)
    return document


def read_p_values(path: Path, n_results: int) -> list[DrawnPValues]:
    """Read the p-values of each row.

    Raises:
        InputError: If the file is missing, damaged or of another report.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return [
                DrawnPValues(
                    archive[f"{r}/p_value"],
                    archive.get(f"{r}/p_randomised"),
                )
                for r in range(n_results)
            ]
    except (OSError, KeyError, *DAMAGED_ARRAY) as e:
        raise InputError(f"{path}: not readable ({e})") from e


def write_calibration_page(
    document: Mapping[str, Any], directory: Path, methods: Sequence[MethodNote]
) -> Path:
    """Write report.html of a calibration; returns its path."""
    from jaxcontam.report.plots import qq_plot

    rows = document["results"]
    drawn = read_p_values(directory / P_VALUES_NAME, len(rows))
    fields = {
        "title": f"Calibration: {document['model']['name']}, {rows[0]['benchmark']}",
        "meaning": MEANING,
        "subtitle": f"Made {document['started']} in {document['wall_seconds']:.0f} s.",
        "blocks": [
            {
                "method": row["method"],
                "drawn": row["drawn"],
                "sentence": calibration_sentence(row),
                "note": _RELABELLED_MEANING * (row["drawn"] == RELABELLED),
                "rates": [
                    [f"{cell['level']:g}", f"{cell['n_rejected']:,}", rate_text(cell)]
                    for cell in row["rejections"]
                ],
                "svg": qq_plot(
                    values.p_value
                    if values.p_randomised is None
                    else values.p_randomised
                ),
            }
            for row, values in zip(rows, drawn, strict=True)
        ],
    }
    page = render(
        "calibration.html.j2", document, fields, methods=methods, words=CALIBRATION
    )
    replace_bytes(directory / PAGE_NAME, page.encode())
    return directory / PAGE_NAME


def calibration_sentence(row: Mapping[str, Any]) -> str:
    """What was drawn, and how far from uniform it is."""
    orders = f"{row['n_draws']:,} {row['drawn']}"
    words = (
        f"{row['method']} on {row['n_examples']:,} examples of {row['benchmark']}: "
        f"{orders}, {row['tokens_scored']:,} tokens scored."
    )
    if row["ks_p_value"] is None:
        return words
    return (
        f"{words} Distance of the p-values from uniform "
        f"{row['ks_statistic']:.3f} (Kolmogorov-Smirnov p {row['ks_p_value']:.2g})."
    )


def rate_text(cell: Mapping[str, Any]) -> str:
    """A rate of rejection with its interval."""
    low, high = (f"{cell[end]:.3f}".removeprefix("0") for end in ("low", "high"))
    return f"{cell['rate']:.3f} ({low}-{high})"
