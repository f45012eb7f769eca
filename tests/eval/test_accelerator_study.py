"""`eval.accelerator`: its goals, its faults, and a pulse run on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from eval.accelerator import __main__ as study
from eval.accelerator.__main__ import judge
from eval.accelerator.subjects import _tried, random_decoder, subject
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint

ROOT = Path(__file__).resolve().parents[2]


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


def exhaust(words):
    raise RuntimeError(words)


@pytest.mark.parametrize(
    "words", ["RESOURCE_EXHAUSTED: 30 GB\nmore", "CUDA out of memory. Tried 30 GB"]
)
def test_want_of_memory_is_told_by_its_first_line(words):
    assert _tried(exhaust, words) == (None, words.splitlines()[0])


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
