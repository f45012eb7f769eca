"""`eval.accelerator`: its goals, its faults, and a pulse run on the CPU."""

import jax
import numpy as np
import pytest
from flax import nnx

from eval.accelerator import __main__ as accelerator
from eval.accelerator.__main__ import judge
from eval.accelerator.subjects import _tried, random_decoder, subject
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, save_checkpoint


def cell(utilisation, ratio=None):
    ways = ["jaxcontam"] if ratio is None else ["jaxcontam", "torch"]
    return {
        "tokens_per_second": {name: [1000.0, 1200.0, 1100.0] for name in ways},
        "utilisation": dict.fromkeys(ways, utilisation),
        "peak_tflops": dict.fromkeys(ways, 700.0),
        "ratio": ratio,
        "memory_gb": None,
    }


@pytest.mark.parametrize(
    ("parts", "met"),
    [
        ({"score_1.4b": cell(0.55)}, [True]),
        ({"score_1.4b": cell(0.549)}, [False]),
        # Each goal is judged where its number was measured.
        ({"score_1.4b": cell(0.6, 1.4), "train_124m": cell(0.2)}, [True, False, False]),
        # The better of two ways to train counts.
        ({"train_1.4b": cell(0.4), "train_1.4b_kept": cell(0.5)}, [True]),
        ({"train_1.4b": cell(0.5), "train_1.4b_kept": {"failed": "90 GB"}}, [True]),
    ],
)
def test_goal_is_met_at_its_bound_and_not_below(parts, met):
    assert [row["met"] for row in judge(parts | {"score_7b": {}})] == met


def exhaust(words):
    raise RuntimeError(words)


@pytest.mark.parametrize(
    "words", ["RESOURCE_EXHAUSTED: 30 GB\nmore", "CUDA out of memory. Tried 30 GB"]
)
def test_want_of_memory_is_told_by_its_first_line(words):
    assert _tried(exhaust, words) == (None, words.splitlines()[0])


@pytest.mark.parametrize(
    ("platform", "n", "message"),
    [
        ("cpu", 1, "JAX finds no accelerator here"),
        ("gpu", 2, "one device is measured, JAX finds 2"),
    ],
)
def test_other_devices_than_one_accelerator_are_refused(
    platform, n, message, monkeypatch, tmp_path
):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = {"platform": platform, "kind": "H100", "n": n}
    monkeypatch.setattr(accelerator, "in_fresh_process", lambda _: found)
    with pytest.raises(InputError, match=message):
        accelerator.Accelerator(out=tmp_path).run()


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
def test_a_pulse_run_measures_every_part(study):
    measured = study("accelerator").document
    for part in accelerator.PARTS:
        # The two sides were found to score, or to learn, alike.
        assert set(measured[part]["utilisation"]) == {"jaxcontam", "torch"}, part
        assert measured[part]["ratio"] > 0
    assert len(measured["goals"]) == 4
    assert measured["score_1.4b"]["attention"] == "blocks"
