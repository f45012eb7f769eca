"""What every family reads from a config.json, against transformers' own reading."""

import copy

import pytest
import transformers

from jaxcontam.errors import InputError
from jaxcontam.models.families import FAMILIES
from tests.support.family_files import RAW

# What no default serves. Every default number of key heads divides the heads, and they
# are as wide as GPT-J's 64 rotated dimensions.
NEEDED = {
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
    "attention_types",
    "num_experts_per_tok",
    "vocab_size_per_layer_input",
}
SIZES = {
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head"), 32),
    **dict.fromkeys(("hidden_size", "n_embd"), 32 * 64),
    **dict.fromkeys(("num_layers", "n_layer"), 2),
    "num_hidden_layers": 5,
    **dict.fromkeys(("intermediate_size", "ffn_dim"), 14),
}


def as_transformers_reads(model_type, raw):
    """The fields that this transformers writes for those that an older one wrote."""
    # It writes into nested fields that it is given.
    raw = copy.deepcopy(raw)
    return transformers.AutoConfig.for_model(model_type, **raw).to_dict()


@pytest.mark.parametrize("model_type", RAW)
def test_older_fields_give_the_shape_that_transformers_newer_ones_give(model_type):
    read = FAMILIES[model_type].read_config
    raw = RAW[model_type]
    assert read(raw) == read(as_transformers_reads(model_type, raw))


@pytest.mark.parametrize("model_type", RAW)
def test_fields_that_are_left_out_are_the_familys_defaults(model_type):
    read = FAMILIES[model_type].read_config
    given = RAW[model_type]
    raw = {k: SIZES.get(k, v) for k, v in given.items() if k in NEEDED | SIZES.keys()}
    assert read(raw) == read(as_transformers_reads(model_type, raw))


@pytest.mark.parametrize(
    ("model_type", "change", "message"),
    [
        ("gpt_neo", {"attention_types": [[["sparse"], 2]]}, "type 'sparse' is not"),
        ("gpt_neo", {"attention_types": ["global"]}, "attention_types must be groups"),
        ("gpt_neo", {"attention_types": None}, "must name 2 layers, got 24"),
        ("gptj", {"rotary_dim": None}, "no field 'rotary_dim'"),
        ("gptj", {"rotary_dim": 8}, "must be 1 to 6, got 8"),
        ("phi", {"rope_scaling": {"rope_type": "ntk"}}, "rope_type 'ntk'"),
        ("phi", {"qk_layernorm": 1}, "qk_layernorm must be true or false"),
        (
            "phi3",
            {"rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [1]}},
            "short_factor must be 3 numbers, got 1",
        ),
        (
            "llama",
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 3}},
            "long_factor must be a list of numbers, got None",
        ),
        (
            "llama",
            {"rope_theta": 1.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
            "rope_theta must be above 1 for yarn",
        ),
        ("phi3", {"rope_scaling": {"type": "dynamic"}}, "rope_type 'dynamic'"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_att"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_att"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is"),
        (
            "gemma3_text",
            {
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "linear", "factor": 2.0}
                }
            },
            "rope scaling in layers with a window",
        ),
        ("gemma3_text", {"sliding_window": None}, "must be a number of tokens"),
        (
            "gemma3_text",
            {"sliding_window": None, "layer_types": ["sliding_attention"] * 2},
            "layer_types names sliding layers, but not sliding_window",
        ),
        ("gemma4_text", {"enable_moe_block": True}, "enable_moe_block true is not"),
        ("gemma4_text", {"attention_bias": True}, "attention_bias true is not"),
        ("gemma4_text", {"use_bidirectional_attention": "all"}, "attention all is not"),
        ("gemma4_text", {"vocab_size_per_layer_input": 9}, "must be 300, got 9"),
        ("gemma4_text", {"num_kv_shared_layers": 3}, "must reuse keys of layers like"),
        (
            "gemma4_text",
            {"layer_types": ["full_attention", "sliding_attention"] * 2},
            "end with a full one",
        ),
        (
            "gemma4_text",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_type 'yarn' is not",
        ),
        (
            "gemma4_text",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "rope_type 'linear' in layers with a window",
        ),
        (
            "gemma4_text",
            {"per_layer_config": {"1": {"head_dim": 8}, "3": {"head_dim": 6}}},
            "must be the same in all layers",
        ),
        (
            "gemma4_text",
            {"per_layer_config": {"0": {"head_dim": 8}}},
            "must name the layers without a window",
        ),
        (
            "gemma4_text",
            {"per_layer_config": {i: {"sliding_window": 8} for i in "13"}},
            "per_layer_config 'sliding_window' is not",
        ),
        ("olmo2", {"rope_scaling": {"rope_type": "ntk"}}, "rope_type 'ntk'"),
        ("mixtral", {"num_experts_per_tok": 4}, "must be 1 to 3, got 4"),
        ("mixtral", {"hidden_act": "quick_gelu"}, "unknown activation"),
        ("qwen2_moe", {"decoder_sparse_step": 2}, "dense layers among expert layers"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, "dense layers among expert layers"),
        ("olmo", {"clip_qkv": -1}, "clip_qkv must be a positive number"),
        (
            "olmo3",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "no field 'factor'",
        ),
        ("smollm3", {"no_rope_layers": [0]}, "rotated_layers must name 2 layers"),
        ("smollm3", {"no_rope_layers": [2, 1]}, "must be a list of 0 and 1"),
        ("granite", {"logits_scaling": 0}, "logits_scaling must be a positive"),
        ("gpt_oss", {"swiglu_limit": "7"}, "swiglu_limit must be a positive number"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob true is not"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func 'sigmoid' is not"),
        ("deepseek_v2", {"attention_bias": True}, "attention_bias true is not"),
        ("deepseek_v2", {"moe_layer_freq": 2}, "dense layers among expert layers"),
        ("deepseek_v2", {"first_k_dense_replace": 2}, "got 2 of 2"),
        ("deepseek_v2", {"qk_rope_head_dim": 3}, "must be even, got 3"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method 'greedy' is not"),
        ("deepseek_v3", {"n_group": 3}, "groups must divide 4 experts"),
        ("deepseek_v3", {"num_experts_per_tok": 3}, "1 groups of 2 experts must hold"),
        ("qwen3_5_text", {"attn_output_gate": False}, "attn_output_gate false is not"),
        ("qwen3_5_text", {"hidden_act": "gelu"}, "hidden_act 'gelu' is not"),
        ("qwen3_5_text", {"layer_types": ["mamba"] * 2}, "type 'mamba' is not"),
        ("qwen3_5_text", {"layer_types": ["linear_attention"]}, "name 2 layers, got 1"),
        ("qwen3_5_text", {"linear_num_key_heads": 3}, "heads of keys must divide"),
        ("qwen3_moe", {"norm_topk_prob": "no"}, "norm_topk_prob must be true or"),
    ],
)
def test_switch_that_would_change_the_numbers_is_refused(model_type, change, message):
    # DecoderConfig's own refusals become an InputError where the file is named.
    with pytest.raises((InputError, ValueError), match=message) as caught:
        FAMILIES[model_type].read_config(RAW[model_type] | change)
    assert "\n" not in str(caught.value)


def test_layers_without_windows_may_be_counted_from_zero():
    read, raw = FAMILIES["qwen2_moe"].read_config, RAW["qwen2_moe"]
    off = raw | {"use_sliding_window": False}
    assert read(off | {"max_window_layers": 0}) == read(off)


@pytest.mark.parametrize("old", ["su", "yarn"])
def test_old_names_of_long_rotations_are_read_alike(old):
    read, raw = FAMILIES["phi3"].read_config, RAW["phi3"]
    renamed = raw["rope_scaling"] | {"type": old}
    assert read(raw | {"rope_scaling": renamed}) == read(raw)


def test_long_rotations_end_at_the_context_of_the_first_training():
    config = FAMILIES["phi3"].read_config(RAW["phi3"])
    assert RAW["phi3"]["max_position_embeddings"] == 32
    assert config.context == 8
    # sqrt(1 + ln(32 / 8) / ln 8): ln 4 / ln 8 = 2 / 3.
    assert config.rope_scaling.magnitude == pytest.approx((5 / 3) ** 0.5, rel=1e-12)
