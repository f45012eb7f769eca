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
    assert text.endswith("\n2 to mend\n")


def test_a_checkout_that_is_not_installed_is_a_fault_and_no_traceback(
    said, monkeypatch
):
    monkeypatch.setattr(doctor.importlib.metadata, "requires", missing)
    code, text = said()
    assert code == 2
    assert "fault  jaxcontam is not installed" in text


def test_a_model_and_a_benchmark_are_looked_at(said, tmp_path, pulse):
    code, text = said(pulse / "model", pulse / "sets/pydocs-10.txt")
    assert code == 0
    assert "of safetensors, context" in text
    assert "examples; the first begins" in text
    (tmp_path / "config.json").write_text((pulse / "model/config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    code, text = said(tmp_path, tmp_path / "none.jsonl")
    assert code == 2
    assert "only pickled weights" in text and "none.jsonl" in text
    assert text.endswith("2 to mend\n")
    (tmp_path / "config.json").write_text('{"model_type": "rwkv"}')
    code, text = said(tmp_path)
    assert code == 2 and "rwkv" in text
