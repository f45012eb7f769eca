"""`jaxcontam doctor`: one line a check, and a way to mend what is missing."""

import importlib.metadata
import json

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


def test_a_whole_installation_has_no_fault(said):
    code, text = said()
    assert code == 0
    assert "fault" not in text
    assert "packages in the versions that are asked for" in text
    assert "computes on" in text


def test_a_missing_and_an_old_package_are_named_with_a_way_to_get_them(
    said, monkeypatch
):
    right = importlib.metadata.version

    def version(name):
        if name == "optax":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.1" if name == "flax" else right(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    code, text = said()
    assert code == 2
    lines = text.splitlines()
    (at,) = (i for i, line in enumerate(lines) if line.startswith("fault  optax"))
    assert "missing" in lines[at]
    assert lines[at + 1].strip().startswith('-> pip install "optax')
    assert any(line.startswith("fault  flax") and "0.1 is" in line for line in lines)
    assert lines[-1] == "2 to mend"


def test_a_checkout_that_is_not_installed_is_a_fault_and_no_traceback(
    said, monkeypatch
):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "requires", requires)
    code, text = said()
    assert code == 2
    assert "fault  jaxcontam is not installed" in text


def test_a_token_is_told_of_and_never_shown(said, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    _, text = said()
    assert "a token for the Hugging Face hub is set" in text
    assert "hf_secret" not in text


def test_a_model_and_a_benchmark_are_looked_at(said, pulse):
    code, text = said(pulse / "model", pulse / "sets/pydocs-10.txt")
    assert code == 0
    assert "of safetensors, context" in text
    assert "examples; the first begins" in text


def test_what_a_model_lacks_is_a_fault_with_its_remedy(said, tmp_path, pulse):
    (tmp_path / "config.json").write_text((pulse / "model/config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    code, text = said(tmp_path, tmp_path / "none.jsonl")
    assert code == 2
    assert "only pickled weights" in text
    assert "none.jsonl" in text
    assert text.endswith("2 to mend\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "rwkv"}))
    code, text = said(tmp_path)
    assert code == 2
    assert "rwkv" in text
