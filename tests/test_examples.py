"""The examples, executed: what they print is what their docstrings promise."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from jaxcontam.models.checkpoint import save_checkpoint
from tests.membership_model import fast_tokenizer, fresh_decoder

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
    rng = np.random.default_rng(0)
    file = tmp_path / "file.txt"
    words = [f"w{i}" for i in range(99)]
    file.write_text("".join(" ".join(rng.choice(words, 8)) + "\n" for _ in range(64)))
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
