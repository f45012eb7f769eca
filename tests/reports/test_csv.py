"""`results.csv`: every number of a report, and nothing that a spreadsheet runs."""

import csv
import hashlib
import io
import json
import os
import socket
import subprocess
import sys

import pytest

from jaxcontam.cli.main import main
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.recompute import digest_faults
from jaxcontam.reports.report_files import (
    read_document,
    read_report,
    replace_bytes,
    to_document,
    write_files,
)
from jaxcontam.reports.table_csv import csv_cell, csv_text, results_csv
from jaxcontam.stats.result import Local, Neighbours
from jaxcontam.terminal_text import visible
from tests.support.forged import reseal
from tests.support.report_documents import (
    audit_report,
    order_result,
)

NOTHING = {ARCHIVE_NAME: archive_bytes([None])}

pytestmark = pytest.mark.unoptimised


def parsed(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_numbers_keep_all_digits_and_missing_ones_are_empty():
    report = audit_report(order_result(), order_result("piqa", effect=-1e-300))
    rows = to_document(report)["results"]
    for row, result in zip(parsed(results_csv(report)), rows, strict=1):
        for name, value in result.items():
            if isinstance(value, bool | list | dict):
                continue
            if value is None:
                assert row[name] == ""
            elif isinstance(value, str):
                assert row[name] == value
            else:
                assert float(row[name]) == value
        assert row["primary"] == "true"
        assert row["model"] == "pythia" and row["seed"] == "0"
    assert row["effect"] == "-1e-300"


def test_fields_within_fields_intervals_and_reasons_have_columns_and_lists_are_json():
    gains = {"forward": 1.9, "backward": 0.1, "excess": 1.8}
    found = Neighbours(**gains, **{f"{name}_se": 0.1 for name in gains})
    local = Local(first_example=3, last_example=5, statistic=2.0, p_value=0.1)
    report = audit_report(
        order_result(neighbours=found, local=local),
        order_result("piqa", primary=False),
    )
    first, second = parsed(results_csv(report))
    assert first["local.first_example"] == "3"
    assert first["pretests"].startswith('[{"name": "length_trend"')
    assert float(first["neighbours.excess"]) == 1.8
    assert float(first["neighbours.excess_low"]) == pytest.approx(1.604, abs=1e-3)
    assert float(first["neighbours.forward_high"]) == pytest.approx(2.096, abs=1e-3)
    assert first["why"].startswith("Deciding test: stratified")
    assert second["why"] == "" and second["neighbours.excess_low"] == ""
    assert csv_text([{"a": 1}]) == "a\r\n1\r\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\n", "'"])
def test_text_that_a_spreadsheet_would_run_is_marked_and_can_be_restored(start):
    hostile = f"{start}HYPERLINK(1)"
    report = audit_report(order_result(hostile), model=hostile)
    (row,) = parsed(results_csv(report))
    for name in ("benchmark", "model"):
        assert row[name] == f"'{hostile}"
    # Negative numbers are no formulas.
    cells = (-1.5, "-1.5", None, False)
    assert [*map(csv_cell, cells)] == ["-1.5", "'-1.5", "", "false"]


def test_cells_are_read_back_and_what_a_terminal_obeys_is_spelled_out():
    hostile = "a\x1b[2J\u202e\rb\udcff"
    text = results_csv(audit_report(order_result(hostile), model=hostile))
    assert parsed(text)[0]["benchmark"] == r"a\x1b[2J\u202e\rb\udcff"
    (cell,) = parsed(csv_text([{"list": [hostile]}]))
    assert json.loads(cell["list"]) == [hostile] and "\u202e" not in cell["list"]
    name = 'a "b", c\nd;é'
    text = results_csv(audit_report(order_result(name)))
    assert parsed(text)[0]["benchmark"] == name
    assert text.startswith("command,model,") and text.count("\r\n") == 2


def test_no_separator_begins_a_formula_in_any_cell_or_name():
    """Spreadsheets of half of Europe split cells at semicolons; others at tabs."""
    for text in ("x;=1+1;-2;+3", "x\t@SUM(1)", "x\n-1", "x\r\n+1", "a;'b"):
        marked = csv_text([{text: text, "list": [text], "number": -1}])
        for separator in (";", "\t", "\n", "\r"):
            for cell in marked.split(separator)[1:]:
                assert not cell.startswith(("=", "+", "-", "@"))
        (row,) = parsed(marked)
        (name, *_) = row
        assert name == row[name] != text
        assert name.replace("'", "") == visible(text).replace("'", "")
        assert json.loads(row["list"]) == [text] and row["number"] == "-1"


def test_an_edited_page_or_table_is_found(tmp_path):
    report = audit_report(order_result(verdict="contaminated"))
    _, page = write_files(report, NOTHING, tmp_path)

    def faults():
        document = read_document(tmp_path / "report.json")
        return digest_faults(tmp_path, document, "orders.npz")

    written = (tmp_path / "results.csv").read_bytes().decode()
    assert written == results_csv(read_report(tmp_path / "report.json"))
    names = ["report.json", "orders.npz", "results.csv", "report.html"]
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line[66:] for line in lines] == names
    for name, line in zip(names, lines, strict=True):
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == line[:64]
    assert faults() == []
    for path in (page, tmp_path / "results.csv"):
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"contaminated", b"no evidence"))
        assert [fault.split(":")[0] for fault in faults()] == [path.name]
        path.write_bytes(whole)
    reseal(tmp_path, lambda document: document.update(seed=9))
    assert [fault.split(":")[0] for fault in faults()] == ["report.json"]
    document = read_document(tmp_path / "report.json") | {"digest": "\ud800"}
    assert digest_faults(tmp_path, document, "orders.npz")
    (tmp_path / "SHA256SUMS").unlink()
    assert len(faults()) == 2
    assert main(["report", str(tmp_path)]) == 0
    assert faults() == []
    # A page that nothing runs in, whatever stands in it.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    assert policy in page.read_text().partition("<title>")[0]


def test_parts_that_a_killed_run_left_are_swept(tmp_path):
    """Of a process that has ended at once, where nobody knows after ten minutes."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    left, running, old, young = (
        tmp_path / f"report.json.{place}.partial"
        for place in (f"{host}.{ended.pid}", f"{host}.1", "there.7", "there.8")
    )
    other = tmp_path / "mine.partial"
    for path in (left, running, old, young, other):
        path.write_text("half")
    os.utime(old, (0, 0))
    replace_bytes(tmp_path / "report.json", b"{}")
    assert set(tmp_path.iterdir()) == {other, tmp_path / "report.json", running, young}
