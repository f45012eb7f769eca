# ruff: noqa: F811  (a fixture of another file is an argument here)
"""What is said of a file's own order before any model is asked."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import jaxcontam
from jaxcontam import Audit
from jaxcontam.cli.main import main
from jaxcontam.orders import benchmarks as order_files
from jaxcontam.orders.benchmarks import check_files, read_files
from jaxcontam.orders.command import audit
from jaxcontam.orders.design import AuditDesign
from tests.orders.test_order_path import random_bigrams, tokenizer  # noqa: F401
from tests.support.stub_models import opened_stub


def words(rng, n):
    """Lines of six random words each."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    return [
        " ".join("".join(rng.choice(letters, rng.integers(2, 5))) for _ in range(6))
        for _ in range(n)
    ]


@pytest.fixture
def file(tmp_path):
    """Write lines in random order, sorted ones, or runs that read alike backwards."""

    def write(name):
        rng = np.random.default_rng(1)
        lines = words(rng, 120 if name == "in_runs" else 80)
        if name == "by_length":
            lines.sort(key=len)
        if name == "in_runs":
            kinds = np.repeat(rng.choice(["Question:", "Q:"], 30), 4)
            lines = [f"{kind} {line}" for kind, line in zip(kinds, lines, strict=True)]
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(lines))
        return path

    return write


def test_file_in_another_order_costs_no_model(file, tmp_path, capsys):
    # There is no such model, and nobody notices.
    path, out = file("by_length"), tmp_path / "out"
    command = ["audit", "nowhere", str(path), "--out", str(out), "--json"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "length that rises or falls along the file" in told.err
    assert "by_length: invalid design, not scored" in told.err
    assert "-> --" in told.err
    assert "by_length" in (out / "report.html").read_text()
    assert main(["verify", str(out)]) == 0
    document = json.loads(told.out)
    assert (document["model"], document["results"]) == (None, [])
    (one,) = document["unscored"]
    assert (one["benchmark"], one["verdict"]) == ("by_length", "invalid design")
    assert one["method"] == "direction"
    failed = [test for test in one["pretests"] if not test["passed"]]
    assert any(test["directional"] for test in failed)
    # From Python a model that cannot be asked is not.
    result = jaxcontam.audit(lambda pairs: 1 / 0, path)
    assert (result.verdict, result.p_value) == ("invalid design", None)


@pytest.mark.parametrize(
    ("name", "order", "is_opened"),
    [
        ("shuffled", None, True),
        ("by_length", "anyway", True),
        # Runs are no fault of direction, which is asked first.
        ("in_runs", None, True),
        ("in_runs", "random", False),
    ],
)
def test_model_is_opened_for_files_that_pass_or_are_scored_anyway(
    file, name, order, is_opened, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    flags = [] if order is None else ["--order", order]
    assert main(["audit", "nowhere", str(file(name)), *flags]) == (2 * is_opened)
    said = capsys.readouterr().err
    assert ("nowhere: no such model directory" in said) == is_opened
    assert is_opened == ("invalid design, not scored" not in said)
    assert is_opened or "--tests direction" in said


def test_one_file_of_two_is_scored(file, tokenizer, tmp_path, capsys):
    files = file("by_length"), file("shuffled")
    command = Audit(model="m", benchmark=files, out=tmp_path / "out")
    document = audit(command, lambda: opened_stub("m", random_bigrams(0), tokenizer))
    assert {row["benchmark"] for row in document["results"]} == {"shuffled"}
    assert [one["benchmark"] for one in document["unscored"]] == ["by_length"]
    assert main(["verify", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shuffled", "its order passes all"),
        ("by_length", "it points forwards: no order test of this file alone is sound"),
        ("in_runs", "direction, which audit asks first, does not mind"),
    ],
)
def test_doctor_says_which_tests_a_file_allows(name, found, file, capsys):
    assert main(["doctor", str(file(name))]) == 0
    assert found in capsys.readouterr().out


def test_doctor_advises_what_an_audit_would(tmp_path, capsys):
    path = tmp_path / "sorted.csv"
    items = sorted(words(np.random.default_rng(5), 80))
    topics = np.repeat(["algebra", "biology", "law", "trade"], 20)
    rows = [
        f"{topic} {text},{topic}" for topic, text in zip(topics, items, strict=True)
    ]
    path.write_text("\n".join(["question,subject", *rows]) + "\n")
    assert main(["doctor", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "(--group-field subject) ok this machine" in said


def test_repeats_of_an_example_are_left_out_and_counted(tokenizer, tmp_path, capsys):
    path = tmp_path / "x.txt"
    items = words(np.random.default_rng(4), 24)
    path.write_text("\n".join(4 * items))
    command = Audit(model="m", benchmark=(path,), out=tmp_path / "out")
    document = audit(command, lambda: opened_stub("m", random_bigrams(0), tokenizer))
    for row in document["results"]:
        assert (row["n_examples"], row["n_repeats"]) == (24, 72)
        assert row["verdict"] in (None, "inconclusive", "no evidence")
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_other_inputs_get_another_folder_that_tells_of_the_first(
    file, tokenizer, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    def folders_after(tests, seed=0):
        model = opened_stub("m", random_bigrams(seed), tokenizer)
        info = dataclasses.replace(model.info, fingerprint=f"sha256:{seed}")
        model = dataclasses.replace(model, info=info)
        command = Audit(model="m", benchmark=(file("shuffled"),), tests=tests)
        document = audit(command, lambda: model)
        folders = {path.name for path in Path("runs/audit").glob("m-shuffled-*")}
        return folders, document.get("earlier", [])

    first, earlier = folders_after("direction")
    assert len(first) == 1 and earlier == []
    both, earlier = folders_after(None)
    assert len(both) == 2 and set(earlier) == first
    assert "was not the only test" in " ".join(capsys.readouterr().out.split())
    # The same again replaces itself; a second model of this name replaces nothing.
    assert folders_after("direction") == (both, [*(both - first)])
    third, earlier = folders_after("direction", seed=1)
    assert len(third) == 3 and earlier == []


def test_another_text_of_the_same_file_is_another_look_at_it(
    tokenizer, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = opened_stub("m", random_bigrams(0), tokenizer)

    def earlier(file, text):
        command = Audit(model="m", benchmark=(Path(file),), text=text)
        return len(audit(command, lambda: model).get("earlier", []))

    for name in ("x.jsonl", "y.jsonl"):
        items = words(np.random.default_rng(len(name) + ord(name[0])), 24)
        rows = [json.dumps({"q": one, "a": one[::-1]}) for one in items]
        Path(name).write_text("\n".join(rows))
    assert [earlier("x.jsonl", text) for text in ("q", "a", "{q} {a}")] == [0, 1, 2]
    assert earlier("y.jsonl", "q") == 0
    # Names that no file has, in reports that somebody edited.
    for path in Path("runs/audit").glob("*/report.json"):
        path.write_text(path.read_text().replace('"x.jsonl"', '"\\u0000"'))
    assert earlier("x.jsonl", "{a} {q}") == 0


def test_a_first_look_reads_the_head_of_a_file(tmp_path, monkeypatch, capsys):
    rng, path = np.random.default_rng(3), tmp_path / "tail.txt"
    path.write_text("\n".join([*words(rng, 60), *sorted(words(rng, 90), key=len)]))
    design = AuditDesign()
    files = read_files(path, design)
    head = read_files(path, AuditDesign(limit=60))
    looked = check_files(files, design, most=60)
    assert looked.pretests == check_files(head, design).pretests
    assert looked.benchmarks == files.benchmarks
    told = "tail: checks read the first 60 of 150 examples here; audit checks all"
    assert looked.notes == (told,)
    assert check_files(files, design).notes == ()
    monkeypatch.setattr(order_files, "HEAD", 60)
    main(["doctor", str(path)])
    printed = capsys.readouterr().out
    assert f"note   {told}" in printed and "its order passes all" in printed
