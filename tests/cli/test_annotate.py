"""Verdicts beside scores: each kind of file, names that must be equal, mistakes.

Shapes of the files: `lm_eval.result_schema` of lm_eval 0.4.13; `inspect_ai.log.EvalLog`
and the members of its .eval files; eval.schema.json 0.2.1 of Every Eval Ever.
"""

import copy
import csv
import dataclasses
import io
import json
import zipfile
from pathlib import Path

import pytest

from jaxcontam.cli.main import main
from jaxcontam.data.records import MAX_RECORD
from jaxcontam.reports.report_files import write_report
from tests.support.report_documents import audit_report, order_result

MODEL = "EleutherAI/pythia-160m"
SCORES = json.loads(Path(__file__).with_name("scores.json").read_text())
"""What each tool writes of that model."""


@pytest.fixture
def runs(tmp_path):
    """An audit with a planted file, boolq, and a clean one, arc_easy-test."""
    clean = order_result("arc_easy-test", verdict="no evidence", p_adjusted=0.4)
    report = audit_report(order_result("boolq"), clean, model="pythia-160m")
    report = dataclasses.replace(report, command=("audit", MODEL, "boolq.jsonl"))
    write_report(report, {}, tmp_path / "runs" / "one")
    return tmp_path / "runs"


@pytest.fixture
def annotate(tmp_path, runs, capsys):
    """Run the command on a file; returns what it wrote and said, or an error."""

    def run(name, content, *flags, audit=runs, code=0):
        path = tmp_path / name
        if isinstance(content, dict):
            content = json.dumps(content)
        if content is not None:
            path.write_text(content)
        assert main(["annotate", str(path), "--audit", str(audit), *flags]) == code
        said = capsys.readouterr()
        made = list(tmp_path.glob("*.annotated.*"))
        if code:
            assert not made
            return said.err
        return made[0].read_text(), said.out

    return run


def test_results_of_lm_eval_get_a_block_with_planted_clean_and_unaudited_tasks(
    annotate, runs
):
    text, said = annotate("results_2026.json", SCORES["lm_eval"])
    found = json.loads(text)
    block = found.pop("contamination")
    assert repr(found) == repr(SCORES["lm_eval"]), "all else is as it was"
    document = json.loads((runs / "one" / "report.json").read_text())
    stated = {
        "verdict": "contaminated",
        "p_adjusted": 1e-6,
        "report": (runs / "one").as_posix(),
        "report_digest": document["digest"],
    }
    assert {name: block["boolq"][name] for name in stated} == stated
    assert block["arc_easy"]["verdict"] == "no evidence"
    assert block["piqa"] == {"verdict": "not audited"}
    assert f"{MODEL} on boolq: contaminated, stratified," in said
    assert f"not audited, 1: {MODEL} on piqa" in said


@pytest.mark.parametrize(
    "arguments",
    [
        {"pretrained": "other/pythia-160m"},
        {"revision": "step1000"},
        {"peft": "someone/adapter"},
        {"pretrained": "/models/pythia-160m"},
    ],
)
def test_another_owner_revision_adapter_or_folder_is_another_model(annotate, arguments):
    scores = copy.deepcopy(SCORES["lm_eval"])
    scores["config"]["model_args"].update(arguments)
    error = annotate("results.json", scores, code=2)
    assert "no score of an audited model and benchmark" in error
    assert "--same A=B" in error


@pytest.mark.parametrize("is_zipped", [False, True])
def test_log_of_inspect_gets_metadata(annotate, tmp_path, is_zipped):
    log = SCORES["inspect"]
    if is_zipped:
        with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("header.json", json.dumps(log))
            file.writestr("samples/1_epoch_1.json", "{}")
        text, _ = annotate("log.eval", None)
    else:
        text, _ = annotate("log.json", {**log, "samples": [{"id": 1}]})
    found = json.loads(text)["results"]
    fields = found["metadata"]["contamination"]
    assert (fields["verdict"], fields["benchmark"]) == ("contaminated", "boolq")
    assert found["total_samples"] == 100


@pytest.mark.parametrize(
    ("packing", "size", "flags", "message"),
    [
        (zipfile.ZIP_DEFLATED, MAX_RECORD, 0, "longer than 64 MiB"),
        (zipfile.ZIP_LZMA, 9, 0, "header.json is not deflated"),
        (zipfile.ZIP_DEFLATED, 9, 1, "encrypted"),
    ],
)
def test_hostile_logs_are_one_line(annotate, tmp_path, packing, size, flags, message):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", packing) as file:
        file.writestr("header.json", '{"eval": "' + "x" * size + '"}')
    data = bytearray(path.read_bytes())
    data[6] |= flags
    data[data.index(b"PK\1\2") + 8] |= flags
    path.write_bytes(data)
    assert message in annotate("log.eval", None, code=2)


def test_record_of_every_eval_ever_gets_strings_in_details(annotate):
    record = SCORES["every_eval_ever"]
    found = json.loads(annotate("record.json", record)[0])
    assert found.keys() == record.keys(), "its schema allows no other field"
    details = [row["score_details"]["details"] for row in found["evaluation_results"]]
    assert details[0]["contamination_p_value"] == "1e-06"
    assert {type(value) for value in details[0].values()} == {str}
    assert details[1] == {"contamination_verdict": "not audited"}


def test_leaderboard_of_a_row_a_score_keeps_its_cells(annotate):
    rows = f"{MODEL},boolq,0.610\nother/x,boolq,-1\n{MODEL},piqa,\n"
    text, _ = annotate("board.csv", f"Model,Benchmark,Score\n{rows}")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["Score"] for row in rows] == ["0.610", "-1", ""]
    verdicts = [row["contamination_verdict"] for row in rows]
    assert verdicts == ["contaminated", "not audited", "not audited"]
    assert rows[0]["contamination_test"] == "stratified"
    assert rows[1]["contamination_p_value"] == ""


def test_quotes_in_a_tsv_take_no_row_from_a_leaderboard(annotate):
    board = f'model\ttask\tnote\n{MODEL}\tboolq\t"x\n{MODEL}\tpiqa\ty"\n'
    text, _ = annotate("board.tsv", board)
    rows = csv.DictReader(io.StringIO(text), delimiter="\t")
    notes = [(row["task"], row["note"]) for row in rows]
    assert notes == [("boolq", '"x'), ("piqa", 'y"')]


def test_leaderboard_of_a_row_a_model_gets_columns_of_audited_benchmarks_alone(
    annotate,
):
    note = "\u2028 ends no line, and \\ud800 is half a letter"
    rows = [
        {"model": "Pythia", "boolq": 0.6, "size": 1, "note": note},
        {"model": "x", "boolq": 0.5},
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    board = "".join(lines).replace("\\\\", "\\")
    text, _ = annotate("board.jsonl", board, "--same", f"Pythia={MODEL}")
    first, second = map(json.loads, text.split("\n")[:2])
    assert "\u2028" in first["note"] and "\ud800" in first["note"]
    assert first["boolq_contamination_verdict"] == "contaminated"
    assert second["boolq_contamination_verdict"] == "not audited"
    assert not any(name.startswith("size_") for name in first)


def test_of_two_audits_of_one_file_the_newest_beside_a_reference_counts(annotate, runs):
    plain = audit_report(order_result("boolq"), model="pythia-160m", seed=1)
    suspected = audit_report(
        order_result("boolq", verdict="suspected"), model="pythia-160m"
    )
    beside = dataclasses.replace(suspected, reference=plain.model)
    for day, (name, report) in enumerate(
        {"older": beside, "chosen": beside, "plain": plain}.items(), 1
    ):
        report = dataclasses.replace(report, started=f"2026-01-0{day}T00:00:00Z")
        write_report(report, {}, runs / name)
    _, said = annotate("board.csv", "model,benchmark\npythia-160m,boolq\n")
    said = said.replace("\n", " ")
    assert f"pythia-160m on boolq: suspected, stratified, {runs}/chosen" in said
    assert "the newest with a reference of 4 audits; not counted:" in said
    assert f"in {runs}/plain" in said


def test_two_files_of_one_report_that_fit_one_task_are_refused(annotate, tmp_path):
    rows = order_result("arc_easy"), order_result("arc_easy-test")
    write_report(audit_report(*rows, model=MODEL), {}, tmp_path / "two")
    audit = tmp_path / "two"
    error = annotate("results.json", SCORES["lm_eval"], audit=audit, code=2)
    assert f"{MODEL} on arc_easy: two audits fit (arc_easy in " in error
