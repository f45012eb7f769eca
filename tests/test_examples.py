"""The examples, executed: what they print is what their docstrings promise."""

import csv
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.models.checkpoint import save_checkpoint
from tests.support.membership_model import fast_tokenizer, fresh_decoder
from tests.support.report_documents import audit_document, order_result, save_document

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *args):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(*args)


def test_any_engine_is_found_where_it_read_the_order():
    results = run("any_engine")
    assert results["read the file"].verdict == "contaminated"
    assert results["read it shuffled"].verdict != "contaminated"


def test_torch_model_in_memory_is_audited_as_it_is(tmp_path, capsys):
    pytest.importorskip("torch")
    rng, file = np.random.default_rng(0), tmp_path / "file.txt"
    rows = (" ".join(f"w{i}" for i in rng.integers(99, size=8)) for _ in range(64))
    file.write_text("".join(f"{row}\n" for row in rows))
    save_checkpoint(fresh_decoder(), fast_tokenizer(), tmp_path / "model")
    result = run("torch_model", str(tmp_path / "model"), str(file))
    assert result.verdict == "no evidence"  # its weights are random
    assert result.verdict in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["watch_torch_training", "watch_flax_training"])
def test_training_loop_sees_contamination_arrive(name):
    if "torch" in name:
        pytest.importorskip("torch")
    audits = run(name)
    assert audits[-1].verdict == "contaminated"
    assert audits[-1]["direction"].effect > audits[0]["direction"].effect


def test_rows_for_the_database_are_of_what_is_proven_alone(tmp_path, capsys):
    document = audit_document(
        order_result("=a;b"),
        order_result("=a;b", primary=False, verdict=None, p_adjusted=None),
        order_result("piqa", verdict="no evidence"),
    )
    folder = str(save_document(document, tmp_path / "run"))
    run("database_rows", [folder, "--split-percent", "test=100"])
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("Evaluation Dataset;Subset;Contaminated Source;Version;")
    (cells,) = csv.reader([row], delimiter=";")
    # No formula of a spreadsheet, and the share that was vouched for.
    assert cells[:8] == ["'=a;b", "", "pythia", "", "model", "", "", "100"]
    assert cells[8:] == ["model-based", "", ""]


@pytest.mark.parametrize(
    ("document", "words", "message"),
    [
        (audit_document(order_result(verdict="suspected")), [], "calls a set contam"),
        (audit_document(order_result(), command=("membership",)), [], "no report of"),
        (audit_document(order_result()), ["--split-percent", "test=0"], "above 0"),
        (audit_document(order_result()), ["--split-percent", "dev=9"], "splits are"),
    ],
)
def test_no_row_says_more_than_a_report(document, words, message, tmp_path, capsys):
    folder = str(save_document(document, tmp_path / "run"))
    with pytest.raises(SystemExit):
        run("database_rows", [folder, *words])
    said = capsys.readouterr()
    assert message in said.err and said.out == ""


def test_recipe_puts_two_reports_side_by_side(tmp_path, monkeypatch, capsys):
    page = Path(__file__).parents[1] / "docs/how_to/hand_on.md"
    (recipe,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for i, p in enumerate((0.0004, 0.5)):
        row = order_result(p_value=p, verdict="suspected")
        document = audit_document(row, order_result(primary=False))
        save_document(document, tmp_path / f"runs/audit/step-{i + 1}000")
    monkeypatch.chdir(tmp_path)
    exec(recipe, {})
    first, second = capsys.readouterr().out.splitlines()
    assert "step-1000" in first and first.endswith("suspected       p over all 0.0008")
    assert "step-2000" in second and second.endswith("p over all 0.5")
