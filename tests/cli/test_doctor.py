"""`jaxcontam doctor`: one line a check, and a way to mend what is missing."""

import importlib.metadata
import re

import pytest

from jaxcontam.cli import doctor
from jaxcontam.cli.main import main


@pytest.fixture
def said(capsys):
    """Run the command; returns its exit code and what it printed."""

    def run(*words):
        code = main(["doctor", *map(str, words)])
        found = capsys.readouterr()
        assert found.err == ""
        return code, found.out

    return run


def test_a_whole_installation_has_no_fault_and_a_token_is_never_shown(
    said, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    code, text = said()
    assert code == 0
    assert "fault" not in text and "hf_secret" not in text
    assert "packages in the versions that are asked for" in text
    assert "computes on" in text
    assert "a token for the Hugging Face hub is set" in text


def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_missing_and_an_old_package_are_named_with_a_way_to_get_them(
    said, monkeypatch
):
    right = importlib.metadata.version
    ways = {"optax": missing, "flax": lambda name: "0.1"}
    monkeypatch.setattr(
        doctor.importlib.metadata,
        "version",
        lambda name: ways.get(name, right)(name),
    )
    code, text = said()
    assert code == 2
    assert re.search(r"^fault  optax.*missing.*\n *-> pip install \"optax", text, re.M)
    assert re.search(r"^fault  flax.*0\.1 is", text, re.M)
    assert text.endswith("\n2 faults to mend\n")


def test_a_checkout_that_is_not_installed_is_a_fault_and_no_traceback(
    said, monkeypatch
):
    monkeypatch.setattr(doctor.importlib.metadata, "requires", missing)
    code, text = said()
    assert code == 2
    assert "fault  jaxcontam is not installed" in text


def test_a_model_and_a_benchmark_are_looked_at(said, tmp_path, pulse):
    files = [pulse / f"sets/pydocs-{n}.txt" for n in (10, 50)]
    code, text = said(pulse / "model", *files)
    assert code == 0
    model, *examined = re.findall(
        "^ok     (.*): .*(?:, context|; the first)", text, re.M
    )
    assert model == str(pulse / "model") and examined == [*map(str, files)]
    assert said(*files)[1] == text.split("\n", 1)[1]
    # One line on the machine, behind them.
    assert text.splitlines()[-1].startswith("ok     this machine: jaxcontam")
    assert "computes on" not in text and "[torch]" not in text
    (tmp_path / "config.json").write_text((pulse / "model/config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    code, text = said(tmp_path, tmp_path / "none.jsonl")
    assert code == 2
    assert "only pickled weights" in text and "none.jsonl" in text
    assert text.endswith("2 faults to mend\n")
    (tmp_path / "config.json").write_text('{"model_type": "rwkv"}')
    code, text = said(tmp_path)
    assert code == 2 and "rwkv" in text


def test_a_server_is_not_asked_and_no_fault(said, tmp_path):
    code, text = said("api:http://127.0.0.1:9/v1#m")
    assert code == 0 and "api:http://127.0.0.1:9/v1#m: is not here" in text


def test_a_file_is_read_as_an_audit_reads_it(said, tmp_path):
    alike, rows = tmp_path / "alike.txt", tmp_path / "rows.jsonl"
    alike.write_text(50 * "one\n")
    rows.write_text("".join(f'{{"q": "{c}"}}\n' for c in "hbkdagljcife"))
    code, text = said(alike, rows)
    assert code == 2 and "passes all 0 checks" not in text
    assert "fault  alike: 1 different example, direction needs 4" in text
    whole = "rows: each whole row is a text (it has: q); choose with --text"
    assert f"note   {whole}\n" in text


def test_what_is_wrong_with_the_machine_is_said_beside_a_file_too(
    said, tmp_path, monkeypatch
):
    monkeypatch.setattr(doctor.importlib.metadata, "requires", missing)
    (tmp_path / "b.txt").write_text("one\ntwo\nthree\nfour\n")
    code, text = said(tmp_path / "b.txt", tmp_path / "gone.jsonl")
    assert code == 2 and text.endswith("\n2 faults to mend\n")
    assert text.index("gone.jsonl") < text.index("jaxcontam is not installed")
