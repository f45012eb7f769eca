"""Every switch of a family against torch, and files that torch reads back."""

import jax
import numpy as np
import pytest
import transformers
from flax import nnx
from safetensors.numpy import load_file

from jaxcontam.models.checkpoint import (
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from tests.models.test_family_parity import PARITY_CASES
from tests.support.family_cases import (
    CASES,
    EAGER,
    FAMILY_CASES,
    LLAMA3_ROPE,
    OPTIMISED_CASES,
    edit_config,
    reopened,
    torch_model,
    with_slow_ones,
)
from tests.support.torch_reference import assert_scores_agree, draw, logits, torch

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]

# Beside those that test_family_parity.py and test_family_optimised.py hold.
SWITCHES = [case for case in CASES if case not in {*PARITY_CASES, *OPTIMISED_CASES}]


@pytest.mark.parametrize("case", SWITCHES)
def test_scores_agree_with_every_switch(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


OLD_FORMS = {
    "pythia": {"rotary_pct": 0.5, "rotary_emb_base": 700},
    "llama 3": {"rope_theta": 1e4, "rope_scaling": {**LLAMA3_ROPE, "type": "llama3"}},
    "llama, linear": {
        "rope_theta": 1e4,
        "rope_scaling": {"type": "linear", "factor": 2.0},
    },
    "mistral": {"rope_theta": 5e5},
    "qwen2, windows": {"rope_theta": 1e6},
    "qwen3": {"rope_theta": 1e6, "rope_scaling": None},
    "gemma2": {"rope_theta": 3e4},
}


# Sixteen seconds.
@pytest.mark.slow
@pytest.mark.parametrize("case", OLD_FORMS)
def test_config_of_an_older_transformers_scores_alike(case, tmp_path):
    torch_model(case).save_pretrained(tmp_path)
    drop = ("rope_parameters", "layer_types", "dtype")
    edit_config(tmp_path, drop=drop, torch_dtype="float32", **OLD_FORMS[case])
    assert_scores_agree(load_decoder(tmp_path), reopened(tmp_path))


def assert_same_tensors(folder, expected):
    """Names, shapes and bits of the one file of a folder."""
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def written_again(first, second):
    """What is read from the first folder, written to the second."""
    fields = read_config_fields(first)
    save_checkpoint(
        load_decoder(first),
        None,
        second,
        model_type=fields["model_type"],
        raw_config=fields,
    )
    return second


def without_unread_rows(tensors):
    """Tensors as float32, OPT's two position rows of padding zero."""
    exact = {name: value.astype(np.float32) for name, value in tensors.items()}
    if (positions := exact.get("model.decoder.embed_positions.weight")) is not None:
        assert (positions[:2] != 0).all()
        positions[:2] = 0
    return exact


@pytest.mark.parametrize("case", CASES)
def test_model_that_is_read_and_written_is_the_same_to_the_bit(case, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    model = torch_model(case, seed=3)
    model.save_pretrained(first)
    written_again(first, second)
    tensors = load_file(first / "model.safetensors")
    assert_same_tensors(second, without_unread_rows(tensors))
    assert ("lm_head.weight" in tensors or "embed_out.weight" in tensors) == (
        not model.config.tie_word_embeddings
    )
    assert read_config_fields(second) == read_config_fields(first)
    again, loading = transformers.AutoModelForCausalLM.from_pretrained(
        second, output_loading_info=True, **EAGER
    )
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys"))
    assert again.dtype == torch.float32
    for ids in draw(model.config.vocab_size):
        # Equal weights; torch's sums differ with where they lie: measured 4e-7.
        np.testing.assert_allclose(logits(again, ids), logits(model, ids), atol=1e-5)


@pytest.mark.parametrize("case", FAMILY_CASES)
def test_bfloat16_files_are_written_as_their_float32_values(case, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    torch_model(case).to(torch.bfloat16).save_pretrained(first)
    tensors = load_file(first / "model.safetensors")
    assert {value.dtype.name for value in tensors.values()} == {"bfloat16"}
    written_again(first, second)
    assert_same_tensors(second, without_unread_rows(tensors))
    assert read_config_fields(second)["dtype"] == "float32"


# Ten seconds.
@pytest.mark.slow
@pytest.mark.parametrize("case", with_slow_ones(FAMILY_CASES))
def test_weights_that_training_moved_score_alike_in_torch(case, tmp_path):
    model = torch_model(case)
    model.save_pretrained(tmp_path)
    fields, decoder = read_config_fields(tmp_path), load_decoder(tmp_path)
    rng = np.random.default_rng(5)

    def moved(leaf):
        # In NumPy: JAX would compile a sum for each shape.
        noise = 0.1 * rng.normal(size=leaf.shape)
        return jax.device_put(np.asarray(leaf) + noise.astype(np.float32))

    nnx.update(decoder, jax.tree.map(moved, nnx.state(decoder)))
    save_checkpoint(
        decoder, None, tmp_path, model_type=fields["model_type"], raw_config=fields
    )
    assert_scores_agree(decoder, reopened(tmp_path))
