"""Every model family's token scores against transformers' torch models."""

import json

import pytest
import transformers
from safetensors.numpy import load_file

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_decoder, read_decoder_config
from jaxcontam.models.families import FAMILIES
from tests.support.family_cases import (
    CASES,
    EAGER,
    FAMILY_CASES,
    edit_config,
    reopened,
    torch_model,
)
from tests.support.torch_reference import assert_scores_agree, randomised, torch

pytestmark = [pytest.mark.parity, pytest.mark.unoptimised]


# Phi-3's case with long rotations tries all that its plain one does but the window.
PARITY_CASES = [case if case != "phi3" else "phi3, long" for case in FAMILY_CASES]


@pytest.mark.parametrize("case", PARITY_CASES)
def test_scores_agree(case, tmp_path):
    model = torch_model(case, seed=len(case))
    model.save_pretrained(tmp_path)
    assert_scores_agree(load_decoder(tmp_path), model)


# One tensor of queries, keys and values, and scales that files hold less one.
@pytest.mark.parametrize("case", ["pythia", "gemma2"])
def test_sharded_bfloat16_files_score_as_torch_does_in_float32(case, tmp_path):
    torch_model(case).to(torch.bfloat16).save_pretrained(
        tmp_path, max_shard_size="20KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_scores_agree(load_decoder(tmp_path), reopened(tmp_path))


def test_text_model_within_an_image_model_scores_as_torch_does(tmp_path):
    _, fields = CASES["qwen3_5"]
    vision = {"depth": 1, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8}
    config = transformers.AutoConfig.for_model(
        "qwen3_5", text_config=fields, vision_config=vision | {"out_hidden_size": 42}
    )
    whole = transformers.AutoModelForImageTextToText.from_config(config, **EAGER)
    randomised(whole, seed=1).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    assert any(name.startswith("model.visual.") for name in names)
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
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    stated = read_decoder_config(tmp_path)
    assert set(DEFAULTS[case]) <= config.to_dict().keys()
    edit_config(tmp_path, drop=DEFAULTS[case])
    assert read_decoder_config(tmp_path) == stated


@pytest.mark.parametrize(
    ("case", "change", "error"),
    [
        ("qwen2", {"rope_parameters": {"rope_type": "ntk"}}, "rope_type 'ntk'"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before false"),
        ("opt", {"word_embed_proj_dim": 20}, "word_embed_proj_dim"),
        ("qwen2", {"quantization_config": {"quant_method": "mxfp4"}}, "'mxfp4' is not"),
        ("gemma2", {"layer_types": ["chunked_attention"] * 3}, "chunked_attention"),
        ("gemma2", {"layer_types": ["sliding_attention"]}, "must name 3 layers"),
        ("pythia", {"hidden_act": "quick_gelu"}, "unknown activation"),
        ("pythia", {"hidden_size": 51}, "has shape"),
        ("mistral", {"sliding_window": 0}, "sliding_window must be a positive integer"),
    ],
)
def test_what_no_switch_covers_is_refused_in_one_line(case, change, error, tmp_path):
    torch_model(case).save_pretrained(tmp_path)
    edit_config(tmp_path, **change)
    with pytest.raises(InputError, match=error) as caught:
        load_decoder(tmp_path)
    assert "\n" not in str(caught.value)


def test_every_family_has_a_case():
    assert {model_type for model_type, _ in CASES.values()} == set(FAMILIES)
