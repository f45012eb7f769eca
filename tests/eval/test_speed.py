"""`eval.speed`: its arithmetic in closed form, and a pulse run of every part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from eval.speed import __main__ as command
from eval.speed.__main__ import PARTS, Speed
from eval.speed.compiled import Cost, absent_devices, costs
from eval.speed.measure import _tried, interleaved, median_ratio, real_lengths
from eval.speed.scoring import batches_of
from eval.speed.subjects import random_decoder, subject
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint
from tests.train.test_progress import Clock

ROOT = Path(__file__).resolve().parents[2]


_HLO = """
%body (x: f32[8]) -> f32[8] {
  %f = bf16[4,8]{1,0} fusion(%x), calls=%inner, "estimated_cycles":"30"
  %g = (f32[8]{0}, f32[16]{0}) all-gather-start(%x), channel_id=1
  %h = f32[16]{0} all-gather-done(%g)
}

%condition (x: f32[8]) -> pred[] {
  %n = s32[] constant(5)
}

%inner (x: f32[8]) -> bf16[4,8] {
  %d = f32[4,8]{1,0} convolution(%x, %x)
}

%near (x: f32[8]) -> f32[8] {
  %y = f32[8]{0} copy(%x), "estimated_cycles":"9"
}

%far (x: f32[8]) -> f32[8] {
  %z = f32[8]{0} custom-call(%x), custom_call_target="tpu_custom_call"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %w = f32[8]{0} while(%x), condition=%condition, body=%body
  %c = f32[8]{0} copy(%w), "estimated_cycles":"7"
  %p = f32[8]{0} custom-call(%c), custom_call_target="tpu_custom_call"
  %s = f32[8]{0} conditional(%i, %p, %p), branch_computations={%far, %near}
}
"""


def test_cycles_of_a_loop_are_those_of_all_its_trips():
    assert [*costs(_HLO)] == [
        Cost("product", 5, 150, 64),
        Cost("collective", 5, 0, 64),
        Cost("copy", 1, 7, 32),
        Cost("Pallas call", 1, 0, 32),
        # Of the branches the costliest.
        Cost("copy", 1, 9, 32),
    ]


def test_a_slice_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="unknown slice 'v5e-3'"):
        Speed(compile_for="v5e-3")
    with pytest.raises(InputError, match="--compile-for times nothing"):
        Speed(compile_for="v5e-4", rounds=3)


def test_without_the_compiler_of_tpus_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(InputError, match="TPU, is not installed"):
        absent_devices("v5e-1")


def test_ways_take_turns_and_only_their_own_time_counts():
    clock, calls = Clock(), []

    def way(name, seconds):
        def run():
            calls.append(name)
            clock.spend(seconds)
            return len(calls)

        return run

    timed = interleaved({"a": way("a", 6), "b": way("b", 2)}, 3, clock=clock)
    assert calls == ["a", "b"] * 4
    assert timed.seconds == {"a": [6, 6, 6], "b": [2, 2, 2]}
    assert timed.first_seconds == {"a": 6, "b": 2}
    assert timed.last == {"a": 7, "b": 8}
    assert timed.ratio("a", "b") == 3


def test_real_lengths_have_the_stated_law():
    lengths = np.array(real_lengths(4000, tiny=False))
    assert lengths.min() >= 8
    assert lengths.max() <= 512
    # Standard error of the median of 4,000: 60 * 1.25 * 0.8 / sqrt(4000) = 0.95.
    assert abs(np.median(lengths) - 60) < 4
    assert real_lengths(64, tiny=False) == real_lengths(64, tiny=False)


def exhaust(words):
    raise RuntimeError(words)


@pytest.mark.parametrize(
    "words", ["RESOURCE_EXHAUSTED: 30 GB\nmore", "CUDA out of memory. Tried 30 GB"]
)
def test_want_of_memory_is_told_by_its_first_line(words, monkeypatch):
    monkeypatch.setattr("eval.speed.train.exhaust", exhaust, raising=False)
    found = _tried("accelerator", "train", "exhaust", (words,), {})
    assert found == (None, words.splitlines()[0])


@pytest.mark.parametrize(
    ("platform", "n", "message"),
    [
        ("cpu", 1, "JAX finds no accelerator here"),
        ("gpu", 2, "one device, JAX finds 2"),
    ],
)
def test_other_devices_than_one_accelerator_are_refused(
    platform, n, message, monkeypatch, tmp_path
):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = {"platform": platform, "kind": platform, "n": n}
    monkeypatch.setattr(command, "device_found", lambda: found)
    with pytest.raises(InputError, match=message):
        Speed(device="accelerator", out=tmp_path).run()


def test_shapes_have_the_sizes_that_they_are_named_by():
    sizes = {"30m": 0.03e9, "124m": 0.124e9, "135m": 0.135e9, "1.4b": 1.4e9}
    sizes["7b"] = 6.7e9
    for size, wanted in sizes.items():
        config = subject(size, tiny=False).config
        shapes = nnx.eval_shape(lambda config=config: random_decoder(config))
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


def test_torch_batches_hold_each_sequence_once_sorted_by_length():
    lengths = [5, 900, 40, 45, 4096, 7]
    batches = batches_of([np.zeros(n) for n in lengths], 100)
    assert batches == [[0, 5], [2, 3], [1], [4]]


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_medians():
    assert median_ratio([1, 10, 3], [1, 5, 1]) == 2


@pytest.mark.slow
@pytest.mark.parity
def test_every_way_gives_the_same_scores(study):
    parts = study("speed").document["parts"]
    for part in ("score_30m", "score_124m", "pairs_135m"):
        for way, cells in parts[part].items():
            # Float32 sums in another order; operands of 8 bits are no parity.
            assert cells["difference"] < (0.5 if "bfloat16" in way else 1e-4)
    grown = parts["growth"]
    assert len(grown) == 10 and sum("power" in cells for cells in grown.values()) == 5
    # Each is measured in a process that begins with nothing.
    peaks = [cells["peak GB"] for cells in grown.values()]
    assert min(peaks) < 0.15 and max(peaks) < 1.2


@pytest.mark.slow
@pytest.mark.parity
def test_both_sides_score_and_learn_in_every_part_of_an_accelerator(tmp_path):
    pytest.importorskip("torch")
    words = ["--device", "accelerator", "--tiny", "--rounds", "1", "--out", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "eval.speed", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parts = json.loads((tmp_path / "accelerator.json").read_text())["parts"]
    for part in PARTS["accelerator"]:
        assert set(parts[part]) == {"jaxcontam", "torch"}, part
        assert parts[part]["torch"]["/ ours"] > 0
    assert parts["score_1.4b"]["jaxcontam"]["attention"] == "blocks"
