"""Models by benchmarks: cells are audits, the correction is over the whole table."""

import copy
import json
import shlex
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import served_model

from eval.public import __main__ as study
from eval.public import cells
from eval.public.__main__ import Public
from eval.public.cells import Outcome, plan_cell
from eval.public.entries import read_entries
from eval.public.table import LETTERS, decided_cells, heat_map, reading
from jaxcontam.cli import main as jaxcontam
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.stats.multiple import holm

pytestmark = pytest.mark.unoptimised

CODE = "a commit"
MODELS = ("one", "fresh")
NAMES = ("arc", "boolq", "piqa")
WORDS = ("the", "then", "inn", "on", "xenon", "tin", "oath")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Two models, three sets of drawn words, and room for a name that is no file."""
    folder = tmp_path_factory.mktemp("public")
    for seed, model in enumerate(MODELS):
        tokenizer = served_model.byte_tokenizer()
        save_checkpoint(served_model.decoder(seed), tokenizer, folder / model)
    rng = np.random.default_rng(0)
    for name in NAMES:
        lines = (" ".join(rng.choice(WORDS, 3)) for _ in range(24))
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def table(inputs, out, **changes):
    benchmarks = [str(inputs / f"{name}.txt") for name in NAMES]
    fields = {
        "models": (f"{inputs / 'one'},{inputs / 'fresh'}",),
        "benchmarks": (",".join(benchmarks), str(inputs / "missing.txt")),
        "out": out,
        "tiny": True,
    }
    return Public(**fields | changes)


@pytest.fixture(autouse=True)
def known_code(monkeypatch):
    """As in a checkout; tests may run where git knows nothing."""
    monkeypatch.setattr(study, "code_version", lambda: CODE)


@pytest.fixture(scope="module")
def finished(inputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "code_version", lambda: CODE)
        return table(inputs, out).run(), out


def by_cell(document, field):
    return {(row["model"], row["benchmark"]): row[field] for row in document["cells"]}


def test_every_cell_is_there_or_named_as_failed(finished, inputs):
    document, out = finished
    assert list(by_cell(document, "p_value")) == [
        (model, name) for model in MODELS for name in NAMES
    ]
    assert [(row["model"], row["benchmark"]) for row in document["failed"]] == [
        ("one", "missing"),
        ("fresh", "missing"),
    ]
    assert "missing.txt: no such file" in document["failed"][0]["error"]
    assert json.loads((out / "public.json").read_text()) == document
    assert (out / "public.md").read_text().count("| failed |") == 2


def test_cell_is_the_audit_that_it_names_and_verifies(finished, tmp_path):
    document, _ = finished
    row = document["cells"][4]
    program, *words = shlex.split(row["command"])
    assert program == "jaxcontam"
    assert jaxcontam([*words, "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    (deciding,) = (r for r in report["results"] if r["primary"])
    for field in ("p_value", "log10_p", "effect", "effect_se", "mde", "method"):
        assert deciding[field] == row[field]
    assert verify_report(Path(row["out"])) == ([], len(report["results"]))


def test_correction_is_holm_over_all_cells(finished):
    document, _ = finished
    p_values = np.array(list(by_cell(document, "p_value").values()))
    adjusted = list(by_cell(document, "p_adjusted").values())
    np.testing.assert_array_equal(adjusted, holm(p_values))


def test_finished_cells_are_kept_and_no_model_is_opened(finished, inputs, monkeypatch):
    document, out = finished
    monkeypatch.setattr(cells, "open_for", lambda *_: 1 / 0)
    again = table(inputs, out).run()
    assert all(by_cell(again, "kept").values())
    assert by_cell(again, "p_value") == by_cell(document, "p_value")
    assert again["earlier_cpu_seconds"] > 0


def test_only_what_changed_is_audited_again(inputs, tmp_path):
    for name in NAMES:
        shutil.copy(inputs / f"{name}.txt", tmp_path)
    out = tmp_path / "out"
    here = {"models": (str(inputs / "fresh"),)}
    files = tuple(str(tmp_path / f"{name}.txt") for name in NAMES)
    # Two strata of eight: backwards they are the same strata.
    path = tmp_path / f"{NAMES[1]}.txt"
    lines = path.read_text().splitlines()[:16]
    path.write_text("".join(f"{line}\n" for line in lines))
    before = table(inputs, out, benchmarks=files, **here).run()
    path.write_text("".join(f"{line}\n" for line in reversed(lines)))
    again = table(inputs, out, benchmarks=files, **here).run()
    assert list(by_cell(again, "kept").values()) == [True, False, True]
    # Of two orders, the one read backwards: its sign is the other.
    now, then = (by_cell(d, "effect")["fresh", NAMES[1]] for d in (again, before))
    assert now == pytest.approx(-then, abs=1e-5)


@pytest.mark.parametrize("code", ["another commit", None])
def test_other_code_audits_again_and_scores_nothing(
    finished, inputs, tmp_path, monkeypatch, code
):
    document, out = finished
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(study, "code_version", lambda: code)
    words: dict = {"models": (str(inputs / "fresh"),)}
    words["benchmarks"] = (str(inputs / f"{NAMES[0]}.txt"),)
    again = table(inputs, tmp_path, **words).run()
    assert not any(by_cell(again, "kept").values())
    assert set(by_cell(again, "tokens_scored").values()) == {0}
    p_values = by_cell(document, "p_value")
    assert all(p == p_values[cell] for cell, p in by_cell(again, "p_value").items())


def test_bug_in_a_cell_is_named_and_costs_no_other(
    inputs, tmp_path, monkeypatch, capsys
):
    real = cells.open_for

    def open_one(audit, word):
        if word.endswith("one"):
            raise MemoryError("too large\nfor this device")
        return real(audit, word)

    monkeypatch.setattr(cells, "open_for", open_one)
    first = (str(inputs / f"{NAMES[0]}.txt"),)
    document = table(inputs, tmp_path, benchmarks=first).run()
    assert list(by_cell(document, "p_value")) == [("fresh", NAMES[0])]
    assert document["failed"][0]["error"] == "MemoryError: too large"
    assert "Traceback" in capsys.readouterr().err


def test_interrupted_table_keeps_what_it_finished(inputs, tmp_path, monkeypatch):
    real, asked = cells.open_for, []

    def open_once_and_stop(audit, word):
        asked.append(word)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(audit, word)

    monkeypatch.setattr(cells, "open_for", open_once_and_stop)
    words: dict = {"models": (str(inputs / "fresh"), str(inputs / "one"))}
    words["benchmarks"] = (str(inputs / f"{NAMES[0]}.txt"),)
    with pytest.raises(KeyboardInterrupt):
        table(inputs, tmp_path, **words).run()
    document = table(inputs, tmp_path, **words).run()
    assert list(by_cell(document, "kept").values()) == [True, False]


def run_main(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["public", *map(str, words)])
    return study.main()


def test_exit_code_says_that_some_cells_failed(finished, inputs, monkeypatch, capsys):
    _, out = finished
    words = ["--models", inputs / "one", "--out", out, "--tiny", "--benchmarks"]
    files = [inputs / f"{name}.txt" for name in NAMES]
    assert run_main(monkeypatch, *words, *files) == 0
    assert run_main(monkeypatch, *words, *files, inputs / "missing.txt") == 3
    assert "4 of 4: one x missing: failed: " in capsys.readouterr().err


def test_table_without_any_result_is_one_line_and_exit_2(
    inputs, tmp_path, monkeypatch, capsys
):
    words = ["--models", tmp_path / "none", "--benchmarks", inputs / f"{NAMES[0]}.txt"]
    assert run_main(monkeypatch, *words, "--out", tmp_path / "out") == 2
    *_, error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("eval.public: error: none of 1 cells could be tested")
    assert hint.startswith("  hint: give a folder with config.json")


def test_table_of_failures_alone_replaces_an_older_one(
    finished, inputs, tmp_path, monkeypatch, capsys
):
    _, out = finished
    for name in ("public.md", "public.json", "heatmap.svg"):
        shutil.copy(out / name, tmp_path)
    words = ["--models", inputs / "one", "--benchmarks", inputs / "missing.txt"]
    assert run_main(monkeypatch, *words, "--out", tmp_path, "--tiny") == 2
    assert "none of 1 cells could be tested" in capsys.readouterr().err
    document = json.loads((tmp_path / "public.json").read_text())
    assert document["cells"] == []
    assert [row["benchmark"] for row in document["failed"]] == ["missing"]
    text = (tmp_path / "public.md").read_text()
    assert "missing.txt: no such file" in text and "arc" not in text
    assert "arc" not in (tmp_path / "heatmap.svg").read_text()


def test_error_with_brackets_is_told_as_it_is(inputs, tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise RuntimeError("bad [/job:0] x")

    monkeypatch.setattr(cells, "open_for", fails)
    words = ["--models", inputs / "one", "--benchmarks", inputs / f"{NAMES[0]}.txt"]
    assert run_main(monkeypatch, *words, "--out", tmp_path, "--tiny") == 2
    said = capsys.readouterr()
    assert "RuntimeError: bad [/job:0] x" in said.out and "bad [/job:0] x" in said.err


def outcomes_with(report, p_values):
    """One outcome a p-value, otherwise alike; columns are called b0, b1, ..."""
    found = []
    for i, p in enumerate(p_values):
        changed = copy.deepcopy(report)
        (row,) = (r for r in changed["results"] if r["primary"])
        row.update(p_value=p, log10_p=float(np.log10(p)), pretests=[], mde=0.1)
        (model,) = read_entries(["m"], "model")
        (benchmark,) = read_entries([f"b{i}.txt"], "benchmark")
        cell = plan_cell(model, benchmark, {}, Path("runs"))
        found.append(Outcome(cell, changed))
    return found


def test_more_cells_weaken_a_verdict_and_never_strengthen_one(finished):
    document, _ = finished
    report = json.loads((Path(document["cells"][0]["out"]) / "report.json").read_text())
    outcomes = outcomes_with(report, [5e-4])
    (row,) = (r for r in outcomes[0].report["results"] if r["primary"])
    # Of an order that is known to be random; of others a reference is asked for.
    row["order_provenance"] = "declared"
    alone, _ = decided_cells(outcomes, min_effect=0.5)
    assert alone[0]["verdict"] == "contaminated"
    p_values = [5e-4] + [0.04] * 9
    rows, _ = decided_cells(outcomes_with(report, p_values), min_effect=0.5)
    # 10 x 5e-4 = 0.005 and 9 x 0.04 = 0.36, by hand.
    assert rows[0]["p_adjusted"] == pytest.approx(0.005, rel=1e-12)
    assert [row["verdict"] for row in rows] == ["suspected"] + ["no evidence"] * 9
    assert reading(rows).startswith("10 of 10 cells with a valid design")
    assert "0.5 are expected" in reading(rows)


def test_verdict_of_a_cell_knows_the_tests_beside_it(finished):
    document, _ = finished
    report = json.loads((Path(document["cells"][0]["out"]) / "report.json").read_text())
    outcomes = outcomes_with(report, [0.5, 0.5])
    rows = outcomes[0].report["results"]
    beside = {"method": "adjacency", "null": "exchangeability", "primary": False}
    rows.append(rows[0] | beside | {"p_value": 1e-9, "log10_p": -9.0})
    found, _ = decided_cells(outcomes, min_effect=0.5)
    assert [row["verdict"] for row in found] == ["suspected", "no evidence"]


def test_file_that_is_not_scored_is_named_and_costs_no_other(inputs, tmp_path):
    path = tmp_path / "rising.txt"
    words = (inputs / f"{NAMES[0]}.txt").read_text().split()
    path.write_text("".join(f"{i} {word}\n" for i, word in enumerate(words[:20])))
    files = [str(path), str(inputs / f"{NAMES[0]}.txt")]
    run = table(
        inputs, tmp_path / "o", models=(str(inputs / "one"),), benchmarks=tuple(files)
    )
    for _ in range(2):
        document = run.run()
        assert list(by_cell(document, "p_value")) == [("one", NAMES[0])]
        (refused,) = document["refused"]
        assert (refused["benchmark"], refused["verdict"]) == (
            "rising",
            "invalid design",
        )
        assert any("number" in name for name in refused["failed_pretests"])
        assert document["failed"] == []
    text = (tmp_path / "o" / "public.md").read_text()
    assert "| one | X |" in text and "numbers" in text
    heat_map = (tmp_path / "o" / "heatmap.svg").read_text()
    assert "invalid design" in " ".join(ElementTree.fromstring(heat_map).itertext())


def test_file_whose_order_is_not_random_is_no_evidence_of_anything(finished):
    document, _ = finished
    report = json.loads((Path(document["cells"][0]["out"]) / "report.json").read_text())
    (one,) = outcomes_with(report, [1e-9])
    (row,) = (r for r in one.report["results"] if r["primary"])
    row["pretests"] = [
        {
            "name": "length_trend",
            "statistic": 1.0,
            "p_value": 1e-4,
            "passed": False,
            "directional": True,
        }
    ]
    rows, _ = decided_cells([one], min_effect=0.5)
    assert (rows[0]["verdict"], rows[0]["failed_pretests"]) == (
        "invalid design",
        ["length_trend"],
    )
    assert reading(rows).startswith("0 of 0 cells")


def test_picture_shows_every_cell_and_repeats_to_the_byte():
    rows = [
        {"model": "a", "benchmark": "x", "verdict": verdict, "p_adjusted": p}
        for verdict, p in (("contaminated", 1e-20), ("invalid design", 1e-20))
    ]
    rows[1]["benchmark"] = "y < z"
    words = {("a", "x"): "1.0e-20 C", ("a", "y < z"): "1.0e-20 X"}
    picture = heat_map(rows, words, ["a", "b"], ["x", "y < z"])
    text = " ".join(ElementTree.fromstring(picture).itertext())
    for word in (*words.values(), "y < z", "p <= 1e-12", "invalid design"):
        assert word in text
    assert text.count("failed") == 3  # both cells of b, and the legend
    assert picture == heat_map(rows, words, ["a", "b"], ["x", "y < z"])


def test_verdicts_have_letters_of_their_own():
    assert len(set(LETTERS.values())) == len(LETTERS) == 5
