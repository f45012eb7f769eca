"""`eval.accelerator`: its goals, its faults, and a pulse run on the CPU."""

import functools
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from eval.accelerator import __main__ as study
from eval.accelerator.__main__ import judge, print_measured
from eval.accelerator.subjects import _tried, in_fresh_process, random_decoder, subject
from eval.accelerator.training import compute_blocks_again
from eval.study import run_study
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint

ROOT = Path(__file__).resolve().parent.parent


def cell(utilisation, ratio=None):
    ways = ["jaxcontam"] if ratio is None else ["jaxcontam", "torch"]
    return {
        "tokens_per_second": {name: [1000.0, 1200.0, 1100.0] for name in ways},
        "utilisation": dict.fromkeys(ways, utilisation),
        "peak_tflops": dict.fromkeys(ways, 700.0),
        "ratio": ratio,
        "memory_gb": None,
    }


@pytest.mark.parametrize(("found", "met"), [(0.55, True), (0.549, False)])
def test_goal_is_met_at_its_bound_and_not_below(found, met):
    (row,) = judge({"score_1.4b": cell(found)})
    assert (row["met"], row["least"]) == (met, 0.55)


def test_each_goal_is_judged_where_its_number_was_measured():
    measured = {"score_1.4b": cell(0.6, 1.4), "train_124m": cell(0.2), "score_7b": {}}
    assert [row["met"] for row in judge(measured)] == [True, False, False]


def test_the_better_of_two_ways_to_train_counts():
    parts = {"train_1.4b": cell(0.4), "train_1.4b_kept": cell(0.5)}
    assert [row["found"] for row in judge(parts)] == [0.5]
    parts["train_1.4b_kept"] = {"failed": "out of memory: 90 GB"}
    assert [row["found"] for row in judge(parts)] == [0.4]


def test_table_says_what_did_not_fit_and_what_has_no_rival():
    measured = {
        "device": {"platform": "gpu", "kind": "NVIDIA H100", "n": 1},
        "versions": "jax 0",
        "score_124m": cell(0.5),
        "score_7b": {"failed": "out of memory: 27 GB"},
        "goals": judge({"train_1.4b": cell(0.4)}),
    }
    out = io.StringIO()
    print_measured(measured, Console(file=out, width=100))
    text = out.getvalue()
    assert "1,100" in text and "50%" in text
    assert "out of memory: 27 GB" in text
    assert "training 1.4 B: share of the peak: 0.40, goal 0.45, not met" in text
    assert max(map(len, text.splitlines())) <= 100


def exhaust(words):
    raise RuntimeError(words)


@pytest.mark.parametrize(
    "words", ["RESOURCE_EXHAUSTED: 30 GB\nmore", "CUDA out of memory. Tried 30 GB"]
)
def test_want_of_memory_is_told_by_its_first_line(words):
    assert _tried(exhaust, words) == (None, words.splitlines()[0])


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match="another fault"):
        _tried(exhaust, "another fault")


def test_want_of_memory_in_another_process_is_an_error_here():
    with pytest.raises(MemoryError, match="out of memory: 30 GB"):
        in_fresh_process(exhaust, "out of memory: 30 GB")


def no_accelerator():
    return {"platform": "cpu", "kind": "cpu", "n": 1}


def two_accelerators():
    return {"platform": "gpu", "kind": "H100", "n": 2}


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (no_accelerator, "JAX finds no accelerator here"),
        (two_accelerators, "one device is measured, JAX finds 2"),
    ],
)
def test_other_devices_than_one_accelerator_are_refused(
    device, message, monkeypatch, tmp_path
):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setattr(study, "in_fresh_process", lambda _: device())
    with pytest.raises(InputError, match=message):
        study.Accelerator(out=tmp_path).run()


def test_unknown_part_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["accelerator", "--only", "score_1.4"])
    assert run_study("accelerator", study.Accelerator) == 2
    error = capsys.readouterr().err
    assert "unknown part 'score_1.4'" in error
    assert "did you mean 'score_1.4b'?" in error


def test_shapes_have_the_sizes_that_they_are_named_by():
    sizes = {"124m": 0.124e9, "1.4b": 1.4e9, "7b": 6.7e9}
    for size, wanted in sizes.items():
        shapes = nnx.eval_shape(
            lambda size=size: random_decoder(subject(size, tiny=False).config)
        )
        found = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(shapes)))
        assert found == pytest.approx(wanted, rel=0.03), size


def test_a_random_decoder_has_the_dtypes_of_a_loaded_one(tmp_path):
    made = random_decoder(subject("7b", tiny=True).config)
    save_checkpoint(made, None, tmp_path, model_type="llama")
    read = load_decoder(tmp_path, dtype="bfloat16")
    for (path, one), other in zip(
        jax.tree.leaves_with_path(nnx.state(made)),
        jax.tree.leaves(nnx.state(read)),
        strict=True,
    ):
        assert one.dtype == other.dtype, path
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "names",
    [
        ["gradient_checkpointing_enable"],
        ["gradient_checkpointing_enable", "activation_checkpointing_enable"],
    ],
)
def test_the_rivals_blocks_are_computed_again_by_old_and_new_transformers(names):
    called = []
    methods = {name: functools.partial(called.append, name) for name in names}
    compute_blocks_again(types.SimpleNamespace(**methods))
    assert called == names[-1:]


@pytest.mark.slow
@pytest.mark.parity
def test_a_pulse_run_measures_every_part(tmp_path):
    pytest.importorskip("torch")
    words = ["--tiny", "--rounds", "1", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "eval.accelerator", *words],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads((tmp_path / "accelerator.json").read_text())
    assert set(study.PARTS) <= measured.keys()
    for part in study.PARTS:
        # The two sides were found to score, or to learn, alike.
        assert set(measured[part]["utilisation"]) == {"jaxcontam", "torch"}, part
        assert measured[part]["ratio"] > 0
    assert len(measured["goals"]) == 4
    assert measured["score_1.4b"]["attention"] == "blocks"
