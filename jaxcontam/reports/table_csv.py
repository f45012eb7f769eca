"""`results.csv`: the rows of report.json for a spreadsheet.

One row a result, in the order of report.json. The first columns say which report it is
of; the others are the fields of its results under their names, `local.p_value` for a
field within a field, lists as JSON. Two kinds are derived: ends of 95 % intervals, such
as `neighbours.excess_low`, and `why`, what a verdict rests on in words. Numbers have
all their digits, a missing one is an empty cell. Commas, CRLF and quotes as in RFC
4180, in UTF-8.
"""

import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxcontam.reports.kinds import kind_of
from jaxcontam.reports.report import Report
from jaxcontam.terminal_text import cell_text, json_text, visible

RESULTS_NAME = "results.csv"


def result_row(result: Any) -> dict[str, Any]:
    """One row of `results` as JSON values: the numbers of a test beside its fields."""
    fields = dataclasses.asdict(result)
    return json.loads(json.dumps(fields | fields.pop("numbers", {})))


def results_csv(report: Report) -> str:
    """The text of `results.csv`."""
    model = report.model
    about = {
        "command": report.command[0],
        "model": None if model is None else model.name,
        "model_fingerprint": None if model is None else model.fingerprint,
        "jaxcontam": report.jaxcontam,
        "seed": report.seed,
        "started": report.started,
    }
    rows = kind_of(report.command).rows
    found = (
        [result_row(one) for one in report.results] if rows is None else rows(report)
    )
    return csv_text([about | dict(_flat(row)) for row in found])


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows under a header of all their names, in the order of their first use."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(map(csv_cell, names))
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    return buffer.getvalue()


def csv_cell(value: object) -> str:
    """A value as it stands in report.json, made harmless for spreadsheets.

    Text that would be taken for a formula has an apostrophe before it, and characters
    that a terminal obeys are spelled out. Numbers are written as JSON writes them, a
    negative one with nothing before its sign.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return cell_text(visible(value))
    # Within JSON an escape does what a mark does in text.
    words = json_text(value, indent=None)
    return re.sub("(?<=;)[=+@-]", lambda sign: f"\\u{ord(sign[0]):04x}", words)


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
