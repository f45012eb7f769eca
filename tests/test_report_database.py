"""`report --database-row`: lines for the public database, for what is proven alone."""

import csv
import io

import pytest

from jaxcontam.cli import main
from jaxcontam.commands.report import Report, write_database_rows
from jaxcontam.errors import InputError
from tests.report_documents import (
    audit_document,
    order_result,
    report_of,
    save_document,
)

pytestmark = pytest.mark.unoptimised

HEADER = (
    "Evaluation Dataset;Subset;Contaminated Source;Version;Model or corpus;Train Split;"
    "Development Split;Test Split;Approach;Reference;PR"
)


def rows_of(document, folder, **given):
    folder.mkdir(exist_ok=True)
    wanted = Report(directory=folder, database_row=True, **given)
    text = write_database_rows(report_of(document), wanted).read_text()
    header, *lines = text.splitlines()
    assert header == HEADER
    return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=";"))


def test_only_what_is_proven_has_a_row_and_its_share_is_unknown(tmp_path):
    document = audit_document(
        order_result("boolq"),
        order_result("boolq", primary=False, verdict=None, p_adjusted=None),
        order_result("piqa", verdict="no evidence"),
        order_result("squad", verdict="suspected"),
    )
    (row,) = rows_of(document, tmp_path)
    assert ";".join(row) == "boolq;;pythia;;model;;;;model-based;;"


def test_what_a_report_does_not_know_comes_from_flags(tmp_path):
    (row,) = rows_of(
        audit_document(order_result()),
        tmp_path,
        dataset="google/boolq",
        source="EleutherAI/pythia-1b",
        split_percent=("test=100", "development=2.5"),
        reference="https://example.org/audit",
    )
    assert row[:3] == ["google/boolq", "", "EleutherAI/pythia-1b"]
    assert row[5:] == [
        "",
        "2.5",
        "100.0",
        "model-based",
        "https://example.org/audit",
        "",
    ]


def test_benchmarks_from_the_hub_keep_their_names(tmp_path):
    document = audit_document(order_result("glue-mnli-test"))
    document["command"] = ["audit", "pythia", "hf:nyu-mll/glue:mnli:test"]
    (row,) = rows_of(document, tmp_path)
    assert row[:2] == ["nyu-mll/glue", "mnli"]


def test_semicolons_and_formulas_do_no_harm(tmp_path):
    (row,) = rows_of(audit_document(order_result("=a;b")), tmp_path)
    assert row[0] == "'=a;b" and len(row) == 11


@pytest.mark.parametrize(
    ("document", "given", "message"),
    [
        (
            audit_document(order_result(verdict="no evidence")),
            {},
            "no benchmark has the",
        ),
        (audit_document(order_result(), command=("membership",)), {}, "no report of"),
        (
            audit_document(order_result(), command=("eval.quickstart",)),
            {},
            "no report of audit",
        ),
        (
            audit_document(order_result(), order_result("b")),
            {"split_percent": ("test=100",)},
            r"2 are contaminated \(boolq, b\)",
        ),
        (audit_document(order_result()), {"split_percent": ("test=0",)}, "not a share"),
        (
            audit_document(order_result()),
            {"split_percent": ("dev=9",)},
            "unknown split",
        ),
    ],
)
def test_what_cannot_be_a_row_is_refused(document, given, message, tmp_path):
    with pytest.raises(InputError, match=message):
        wanted = Report(directory=tmp_path, database_row=True, **given)
        write_database_rows(report_of(document), wanted)
    assert not list(tmp_path.iterdir())


def test_refusals_are_one_line_and_a_hint(tmp_path, capsys):
    folder = save_document(
        audit_document(order_result(verdict="no evidence")), tmp_path / "run"
    )
    assert main(["report", str(folder), "--database-row"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2 and "hint: the database is for evidence" in error
    assert main(["report", str(folder), "--source", "a/b"]) == 2
    assert "hint: add --database-row" in capsys.readouterr().err
