"""`results.csv`: the rows of report.json for a spreadsheet.

One row a result, in the order of report.json. The first columns say which report it is
of; the others are the fields of its results under their names, `local.p_value` for a
field within a field, lists as JSON. Two kinds are derived: ends of 95 % intervals, such
as `neighbours.excess_low`, and `why`, what a verdict rests on in words. Numbers have
all their digits, a missing one is an empty cell. Commas, CRLF and quotes as in RFC
4180, in UTF-8.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxcontam.report.attraction import interval_columns
from jaxcontam.report.why import why
from jaxcontam.terminal import cell_text

RESULTS_NAME = "results.csv"


def results_csv(document: Mapping[str, Any]) -> str:
    """The text of `results.csv`.

    Args:
        document: As in `report.json`.
    """
    model = document["model"] or {}
    report = {
        "command": document["command"][0],
        "model": model.get("name"),
        "model_fingerprint": model.get("fingerprint"),
        "jaxcontam": document["jaxcontam"],
        "seed": document["seed"],
        "started": document["started"],
    }
    rows = document["results"]
    return csv_text([report | dict(_flat(_derived(row, rows))) for row in rows])


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows under a header of all their names, in the order of their first use."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(names)
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    return buffer.getvalue()


def csv_cell(value: object) -> str:
    """A value as it stands in report.json, made harmless for spreadsheets.

    Text that would be taken for a formula has an apostrophe before it. Numbers are
    written as JSON writes them, a negative one with nothing before its sign.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return cell_text(value)
    return json.dumps(value, ensure_ascii=False)


def _derived(
    row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A row with what report.json leaves to be computed."""
    found = dict(row)
    if row.get("neighbours") is not None:
        found["neighbours"] = {**row["neighbours"], **interval_columns(row)}
    if words := why(row, rows):
        found["why"] = words
    return found


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
