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
from eval.speed.growth import exponents
from eval.speed.measure import _tried, interleaved, median_ratio, real_lengths
from eval.speed.served import ServedSpeed
from eval.speed.subjects import random_decoder, subject
from eval.speed.tables import judge
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint
from tests.train.test_progress import Clock

ROOT = Path(__file__).resolve().parents[2]


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
    assert timed.warm_seconds == {"a": 6, "b": 2}
    assert timed.last == {"a": 7, "b": 8}
    assert timed.ratio("a", "b") == 3


def test_real_lengths_have_the_stated_law():
    lengths = np.array(real_lengths(4000, tiny=False))
    assert lengths.min() >= 8
    assert lengths.max() <= 512
    # Standard error of the median of 4,000: 60 * 1.25 * 0.8 / sqrt(4000) = 0.95.
    assert abs(np.median(lengths) - 60) < 4
    assert real_lengths(64, tiny=False) == real_lengths(64, tiny=False)


@pytest.mark.parametrize(("share", "met"), [(0.15, True), (0.1501, False)])
def test_target_is_met_at_its_bound_and_not_beyond(share, met):
    (row,) = judge({"moments": {"30m": {"added_share": share}}})
    assert row["met"] is met
    assert row["wanted"] == "at most 15 %"


def test_the_best_of_the_places_of_a_number_counts():
    parts = {
        "train_1.4b": {"utilisation": {"jaxcontam": 0.4}},
        "train_1.4b_kept": {"utilisation": {"jaxcontam": 0.5}},
    }
    (row,) = judge(parts)
    assert (row["value"], row["met"]) == (0.5, True)
    parts["train_1.4b_kept"] = {"failed": "out of memory: 90 GB"}
    (row,) = judge(parts)
    assert (row["value"], row["met"]) == (0.4, False)


def _exhaust(words):
    raise RuntimeError(words)


@pytest.mark.parametrize(
    "words", ["RESOURCE_EXHAUSTED: 30 GB\nmore", "CUDA out of memory. Tried 30 GB"]
)
def test_want_of_memory_is_told_by_its_first_line(words):
    assert _tried(_exhaust, words) == (None, words.splitlines()[0])


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
    monkeypatch.setattr(command, "in_fresh_process", lambda _: found)
    with pytest.raises(InputError, match=message):
        Speed(device="accelerator", out=tmp_path).run()


def test_shapes_have_the_sizes_that_they_are_named_by():
    sizes = {"30m": 0.03e9, "124m": 0.124e9, "1.4b": 1.4e9, "7b": 6.7e9}
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
    torch_ways = pytest.importorskip("eval.speed.torch_ways")
    lengths = [5, 900, 40, 45, 4096, 7]
    batches = torch_ways.batches_of([np.zeros(n) for n in lengths], 100)
    assert batches == [[0, 5], [2, 3], [1], [4]]


def test_arithmetic_in_closed_form():
    seconds = [3e-6 * n**2 for n in (1_000, 10_000, 100_000)]
    np.testing.assert_allclose(exponents((1_000, 10_000, 100_000), seconds), 2.0)
    # The median of the rounds' ratios, not the ratio of medians.
    assert median_ratio([1, 10, 3], [1, 5, 1]) == 2


@pytest.mark.slow
@pytest.mark.parity
def test_every_way_gives_the_same_scores(study):
    found = study("speed").document
    for part in (name for name in PARTS["cpu"] if name.startswith(("kernel", "real"))):
        for length, cell in found[part]["cells"].items():
            ways = set(cell["tokens_per_second"])
            assert ("jaxcontam_alone" in ways) == (length == "real")
            # Float32 sums in another order; operands of 8 bits are no parity.
            assert cell["largest_difference"] < 1e-4
            assert cell["largest_difference_bf16"] < 0.5
    # The study holds torch, which a process that it started would begin with.
    audit = found["audit_memory"]
    assert audit["exit_code"] == 0 and audit["rows"] == 1_000
    # JAX and what it compiles; with torch 0.1 GB more.
    assert 0.3e9 < audit["peak_bytes"] < 1.2e9


@pytest.mark.slow
@pytest.mark.parity
def test_both_sides_score_and_learn_alike_in_every_part_of_an_accelerator(tmp_path):
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
    measured = json.loads((tmp_path / "accelerator.json").read_text())
    for part in PARTS["accelerator"]:
        assert set(measured[part]["utilisation"]) == {"jaxcontam", "torch"}, part
        assert measured[part]["ratio"] > 0
    assert len(measured["targets"]) == 4
    assert measured["score_1.4b"]["attention"] == "blocks"


@pytest.mark.slow
def test_a_tree_beside_itself_is_asked_in_turn():
    trees = (ROOT, ROOT / "tests" / "..")
    found = ServedSpeed(trees=trees, requests=4, in_flight=2, rounds=2).run()
    assert len(found) == 4
    for rates in found.values():
        assert set(rates) == {str(tree) for tree in trees}
        assert all(len(own) == 2 and min(own) > 0 for own in rates.values())
