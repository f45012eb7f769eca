"""Every model family's token scores against transformers' torch models."""

import jax
import numpy as np
import pytest
import transformers
from flax import nnx
from safetensors.numpy import load_file, save_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    load_decoder,
    read_config_fields,
    save_checkpoint,
)
from jaxcontam.models.families import FAMILIES
from tests.family_cases import (
    CASES,
    EAGER,
    FAMILY_CASES,
    LLAMA3_ROPE,
    OPTIMISED_CASES,
    PLAIN_CASES,
    edit_config,
    reopened,
    torch_model,
    with_slow_ones,
)
from tests.torch_reference import (
    assert_scores_agree,
    draw,
    logits,
    randomised,
    torch,
)

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]


# The case with long rotations tries all that Phi-3's plain one does but the window, and
# Gemma's switches are among those of Gemma 2 and 3.
QUICK_CASES = {*PLAIN_CASES, "phi3, long"} - {"phi3", "gemma"}


# The others are in test_family_optimised.py.
PLAINLY_COMPILED = [case for case in CASES if case not in OPTIMISED_CASES]


@pytest.mark.parametrize("case", with_slow_ones(PLAINLY_COMPILED, keep=QUICK_CASES))
def test_scores_agree(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


# Twenty seconds; the test above has weights of its own for each case.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", with_slow_ones(PLAIN_CASES))
def test_scores_agree_for_any_weights(case, seed, tmp_path):
    model = torch_model(case, seed)
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("case", with_slow_ones(PLAIN_CASES))
def test_sharded_bfloat16_files_score_as_torch_does_in_float32(case, tmp_path):
    torch_model(case).to(torch.bfloat16).save_pretrained(
        tmp_path, max_shard_size="20KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_scores_agree(load_decoder(tmp_path), reopened(tmp_path))


OLD_FORMS = {
    "pythia": {"rotary_pct": 0.5, "rotary_emb_base": 700},
    "llama 3": {
        "rope_theta": 1e4,
        "rope_scaling": {**LLAMA3_ROPE, "type": "llama3"},
    },
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


DEFAULTS = {
    "mistral": ("sliding_window",),
    "gemma2": (
        "head_dim",
        "tie_word_embeddings",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "query_pre_attn_scalar",
        "hidden_activation",
        "layer_types",
    ),
    "opt": ("word_embed_proj_dim", "tie_word_embeddings", "enable_bias"),
    "pythia": ("use_parallel_residual", "attention_bias", "tie_word_embeddings"),
    "qwen3": ("attention_bias", "use_sliding_window", "layer_types"),
}


@pytest.mark.parametrize("case", DEFAULTS)
def test_field_that_a_config_leaves_out_is_the_familys_default(case, tmp_path):
    model_type, fields = CASES[case]
    fields = {k: v for k, v in fields.items() if k not in DEFAULTS[case]}
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = randomised(
        transformers.AutoModelForCausalLM.from_config(config, **EAGER),
        seed=1,
    )
    model.save_pretrained(tmp_path)
    edit_config(tmp_path, drop=DEFAULTS[case])
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize("case", PLAIN_CASES)
def test_unknown_and_missing_tensors_are_named(case, tmp_path):
    torch_model(case).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    family = FAMILIES[CASES[case][0]]
    stranger = f"{family.prefix}layers.0.adapter.weight"
    save_file(tensors | {stranger: np.zeros(3, np.float32)}, path)
    with pytest.raises(InputError, match=f"unknown tensors: {stranger}"):
        load_decoder(tmp_path)
    lost = next(name for name in tensors if "norm" in name or "ln_" in name)
    save_file({k: v for k, v in tensors.items() if k != lost}, path)
    with pytest.raises(InputError, match=f"missing tensors: {lost}"):
        load_decoder(tmp_path)


def test_buffers_of_old_pythia_files_are_ignored(tmp_path):
    model = torch_model("pythia")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    buffers = {
        f"gpt_neox.layers.{i}.attention.{name}": np.zeros(2, np.float32)
        for i in range(3)
        for name in ("bias", "masked_bias", "rotary_emb.inv_freq")
    }
    save_file(load_file(path) | buffers, path)
    assert_scores_agree(load_decoder(tmp_path), model)


def test_opt_files_without_the_first_prefix_score_alike(tmp_path):
    model = torch_model("opt")
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {k.removeprefix("model."): v for k, v in load_file(path).items()}
    save_file(tensors, path)
    assert_scores_agree(load_decoder(tmp_path), model)


@pytest.mark.parametrize(
    ("case", "change", "error"),
    [
        ("qwen2", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before false"),
        ("opt", {"word_embed_proj_dim": 20}, "word_embed_proj_dim"),
        ("gemma2", {"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
        ("gemma2", {"layer_types": ["sliding_attention"]}, "must name 3 layers"),
        ("pythia", {"hidden_act": "quick_gelu"}, "unknown activation"),
        ("pythia", {"hidden_size": 51}, "has shape"),
        ("mistral", {"sliding_window": 0}, "at least 1"),
    ],
)
def test_what_no_switch_covers_is_refused_in_one_line(case, change, error, tmp_path):
    torch_model(case).save_pretrained(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(InputError, match=error) as caught:
        load_decoder(tmp_path)
    assert "\n" not in str(caught.value)


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


def test_every_family_has_a_case():
    assert {model_type for model_type, _ in CASES.values()} == set(FAMILIES)


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
