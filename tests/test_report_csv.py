"""`results.csv`: every number of a report, and nothing that a spreadsheet runs."""

import csv
import io

import pytest

from jaxcontam.cli import main
from jaxcontam.report.archive import archive_bytes
from jaxcontam.report.document import to_document, write_report
from jaxcontam.report.table_csv import csv_cell, csv_text, results_csv
from jaxcontam.results import Local, Neighbours
from tests.report_documents import (
    audit_document,
    audit_report,
    order_result,
    report_of,
    save_document,
)

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


def test_fields_within_fields_have_columns_and_lists_are_json():
    text = csv_text([{"a": 1}])
    assert text == "a\r\n1\r\n"
    local = Local(first_example=3, last_example=5, statistic=2.0, p_value=0.1)
    (row,) = parsed(results_csv(audit_report(order_result(local=local))))
    assert row["local.first_example"] == "3"
    assert row["pretests"].startswith('[{"name": "length_trend"')


def test_intervals_and_reasons_are_derived():
    gains = {"forward": 1.9, "backward": 0.1, "excess": 1.8}
    errors = {f"{name}_se": 0.1 for name in gains}
    found = Neighbours(**gains, **errors)
    report = audit_report(
        order_result(neighbours=found), order_result("piqa", primary=False)
    )
    first, second = parsed(results_csv(report))
    assert float(first["neighbours.excess"]) == 1.8
    assert float(first["neighbours.excess_low"]) == pytest.approx(1.604, abs=1e-3)
    assert float(first["neighbours.forward_high"]) == pytest.approx(2.096, abs=1e-3)
    assert first["why"].startswith("Who decides: stratified")
    assert second["why"] == "" and second["neighbours.excess_low"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "'"])
def test_text_that_a_spreadsheet_would_run_is_marked_and_can_be_restored(start):
    hostile = f"{start}HYPERLINK(1)"
    report = audit_report(order_result(hostile), model=hostile)
    (row,) = parsed(results_csv(report))
    for name in ("benchmark", "model"):
        assert row[name] == f"'{hostile}"


def test_commas_quotes_and_line_ends_within_a_cell_are_read_back():
    name = 'a "b", c\nd;é'
    text = results_csv(audit_report(order_result(name)))
    assert parsed(text)[0]["benchmark"] == name
    assert text.startswith("command,model,") and text.count("\r\n") == 2


def test_negative_numbers_are_no_formulas():
    assert csv_cell(-1.5) == "-1.5"
    assert csv_cell("-1.5") == "'-1.5"
    assert csv_cell(None) == "" and csv_cell(False) == "false"


def test_every_report_has_its_table_beside_it(tmp_path):
    report = write_report(audit_report(order_result()), {}, tmp_path)
    written = (tmp_path / "results.csv").read_bytes().decode()
    assert written == results_csv(report)


def test_report_command_writes_the_table_again(tmp_path, capsys):
    document = audit_document(order_result())
    folder = save_document(document, tmp_path / "run")
    (folder / "orders.npz").write_bytes(archive_bytes([None]))
    assert main(["report", str(folder)]) == 0, capsys.readouterr().err
    written = (folder / "results.csv").read_bytes().decode()
    assert written == results_csv(report_of(document))
