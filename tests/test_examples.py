"""The examples, executed: what they print is what their docstrings promise."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


def test_any_engine_is_found_where_it_read_the_order():
    results = run("any_engine")
    assert results["read the file"].verdict == "contaminated"
    assert results["read it shuffled"].verdict != "contaminated"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["watch_torch_training", "watch_flax_training"])
def test_training_loop_sees_contamination_arrive(name):
    if "torch" in name:
        pytest.importorskip("torch")
    audits = run(name)
    assert audits[-1].verdict == "contaminated"
    assert audits[-1]["direction"].effect > audits[0]["direction"].effect
