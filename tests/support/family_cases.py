"""Small models of every family, whose torch forms are the tests' witnesses."""

import json

import pytest
import transformers

from tests.support.stacked_cases import STACKED_CASES
from tests.support.torch_reference import CONTEXT, randomised, torch

# Other implementations than eager leave out Gemma's caps, and want experts of sizes
# that are multiples of four.
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}

# Odd sizes, and three layers, so that no axis can be taken for another.
LLAMA_SIZES = {
    "vocab_size": 97,
    "hidden_size": 42,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 14,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
}
# Heads of hidden_size / num_attention_heads.
QWEN2_SIZES = {k: v for k, v in LLAMA_SIZES.items() if k != "head_dim"} | {
    "hidden_size": 60
}
NEOX_SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
}
GPT2_SIZES = {
    "vocab_size": 97,
    "n_embd": 42,
    "n_layer": 3,
    "n_head": 6,
    "n_inner": 53,
    "n_positions": CONTEXT,
}
OPT_SIZES = {
    "vocab_size": 97,
    "hidden_size": 42,
    "word_embed_proj_dim": 42,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "ffn_dim": 53,
    "max_position_embeddings": CONTEXT,
}
GPT_NEO_SIZES = {
    "vocab_size": 97,
    "hidden_size": 42,
    "num_layers": 3,
    "num_heads": 6,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
    "attention_types": [[["global", "local"], 1], [["local"], 1]],
    "window_size": 5,
}
GPTJ_SIZES = GPT2_SIZES | {"n_embd": 48, "n_head": 3, "rotary_dim": 6}
PHI_SIZES = NEOX_SIZES | {"num_attention_heads": 6, "num_key_value_heads": 2}
# Windows, caps and scaled positions must bite within 16 tokens.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
GEMMA2_CHANGES = {
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 9,
    "sliding_window": 5,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
GEMMA3_CHANGES = {
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 9,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 3e5, "factor": 4.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 700.0},
    },
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 19}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.8,
    "short_factor": [1.0, 1.5, 2.0, 4.5],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
}
# One pair of seven is kept, four are scaled, two interpolated.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "beta_fast": 2.0,
    "beta_slow": 0.1,
    "original_max_position_embeddings": CONTEXT,
}
STRETCHED = {"max_position_embeddings": 4 * CONTEXT}
ROPE = {"rope_type": "default", "rope_theta": 700.0}
NO_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
OLMO3_CHANGES = {
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": YARN, "sliding_attention": ROPE},
}
OLMOE_CHANGES = {"num_experts": 6, "num_experts_per_tok": 3, "clip_qkv": 1.5}
# A fifth of all gates and a third of all projections are cut.
GPT_OSS_CHANGES = {
    "num_local_experts": 5,
    "num_experts_per_tok": 3,
    "swiglu_limit": 1.2,
    "sliding_window": 5,
    "rope_parameters": YARN | {"truncate": False},
}
DEEPSEEK_SIZES = {
    "vocab_size": 97,
    "hidden_size": 42,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 9,
    "kv_lora_rank": 12,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 19,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "eos_token_id": 1,
}
CASES = {
    "gpt2, tied": ("gpt2", GPT2_SIZES),
    "gpt2, untied": ("gpt2", GPT2_SIZES | {"tie_word_embeddings": False}),
    "llama 3": ("llama", LLAMA_SIZES | {"rope_parameters": LLAMA3_ROPE}),
    "llama, linear": (
        "llama",
        LLAMA_SIZES
        | {
            "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
        },
    ),
    "llama, yarn": ("llama", LLAMA_SIZES | STRETCHED | {"rope_parameters": YARN}),
    "llama, yarn of fractions, as DeepSeek's": (
        "llama",
        LLAMA_SIZES
        | STRETCHED
        | {
            "rope_parameters": YARN
            | {"truncate": False, "mscale": 0.7, "mscale_all_dim": 0.5}
        },
    ),
    "llama, longrope": (
        "llama",
        LLAMA_SIZES
        | STRETCHED
        | {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "factor": 3.0,
                "original_max_position_embeddings": CONTEXT,
                "short_factor": [1.0, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0],
                "long_factor": [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            }
        },
    ),
    "llama, biases, tied": (
        "llama",
        LLAMA_SIZES
        | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "mistral": ("mistral", LLAMA_SIZES | {"sliding_window": 5}),
    "mistral, no window": ("mistral", LLAMA_SIZES | {"sliding_window": None}),
    "qwen2": ("qwen2", QWEN2_SIZES),
    "qwen2, windows": (
        "qwen2",
        QWEN2_SIZES
        | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", LLAMA_SIZES),
    "qwen3, biases, tied": (
        "qwen3",
        LLAMA_SIZES | {"attention_bias": True, "tie_word_embeddings": True},
    ),
    "pythia": ("gpt_neox", NEOX_SIZES),
    "gpt_neox, not parallel": (
        "gpt_neox",
        NEOX_SIZES
        | {
            "use_parallel_residual": False,
            "attention_bias": False,
            "hidden_act": "gelu_fast",
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 777.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "opt": ("opt", OPT_SIZES),
    "opt, no biases, untied": (
        "opt",
        OPT_SIZES | {"enable_bias": False, "tie_word_embeddings": False},
    ),
    "gpt_neo": ("gpt_neo", GPT_NEO_SIZES),
    "gptj": ("gptj", GPTJ_SIZES),
    "gptj, tied": ("gptj", GPTJ_SIZES | {"tie_word_embeddings": True}),
    "phi": ("phi", PHI_SIZES),
    "phi, norms of queries and keys": ("phi", PHI_SIZES | {"qk_layernorm": True}),
    "phi3": ("phi3", QWEN2_SIZES | {"pad_token_id": 0, "sliding_window": 5}),
    "phi3, long": (
        "phi3",
        QWEN2_SIZES
        | {
            "pad_token_id": 0,
            "max_position_embeddings": 4 * CONTEXT,
            "original_max_position_embeddings": CONTEXT,
            "rope_parameters": LONG_ROPE,
        },
    ),
    # A fifth of all values are cut.
    "olmo": ("olmo", QWEN2_SIZES | {"clip_qkv": 2.0}),
    "olmo, plain": ("olmo", QWEN2_SIZES | {"attention_bias": True}),
    "olmo2": ("olmo2", QWEN2_SIZES),
    "olmo3": ("olmo3", QWEN2_SIZES | STRETCHED | OLMO3_CHANGES),
    "olmoe": ("olmoe", QWEN2_SIZES | OLMOE_CHANGES),
    "gpt_oss": ("gpt_oss", LLAMA_SIZES | STRETCHED | GPT_OSS_CHANGES),
    "deepseek_v2": (
        "deepseek_v2",
        DEEPSEEK_SIZES
        | {"q_lora_rank": None, "routed_scaling_factor": 1.3, "rope_parameters": ROPE},
    ),
    "deepseek_v2, groups": (
        "deepseek_v2",
        DEEPSEEK_SIZES
        | {
            "q_lora_rank": 11,
            "topk_method": "group_limited_greedy",
            "n_group": 3,
            "topk_group": 2,
            "first_k_dense_replace": 0,
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        DEEPSEEK_SIZES
        | STRETCHED
        | {
            "q_lora_rank": 11,
            "n_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 1.7,
            "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 2.0},
        },
    ),
    "deepseek_v3, halves": (
        "deepseek_v3",
        DEEPSEEK_SIZES
        | {
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "first_k_dense_replace": 2,
        },
    ),
    "smollm3": (
        "smollm3",
        LLAMA_SIZES | NO_IDS | {"no_rope_layer_interval": 2, "rope_parameters": ROPE},
    ),
    "smollm3, windows": (
        "smollm3",
        LLAMA_SIZES
        | NO_IDS
        | {
            "no_rope_layers": [0, 1, 0],
            "use_sliding_window": True,
            "sliding_window": 5,
            "rope_parameters": ROPE,
        },
    ),
    "granite": (
        "granite",
        LLAMA_SIZES
        | NO_IDS
        | {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.4,
            "residual_multiplier": 0.6,
            "logits_scaling": 0.3,
        },
    ),
    "gemma": ("gemma", LLAMA_SIZES | {"tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", LLAMA_SIZES | GEMMA3_CHANGES),
    "mixtral": ("mixtral", LLAMA_SIZES | {"num_local_experts": 5}),
    "qwen2_moe": (
        "qwen2_moe",
        QWEN2_SIZES
        | EXPERTS
        | {
            "shared_expert_intermediate_size": 23,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    ),
    "qwen3_moe": ("qwen3_moe", LLAMA_SIZES | EXPERTS | {"norm_topk_prob": True}),
    **STACKED_CASES,
    "gemma2": ("gemma2", LLAMA_SIZES | GEMMA2_CHANGES),
    "gemma2, no caps": (
        "gemma2",
        LLAMA_SIZES
        | GEMMA2_CHANGES
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
}
# One of each family, as its models were published.
PLAIN_CASES = [
    case for case in CASES if "," not in case and case not in ("llama 3", "qwen3_moe")
]
FAMILY_CASES = ["gpt2, tied", "llama 3", *PLAIN_CASES, "qwen3_moe"]
# One of each kind of attention, compiled as users compile: all heads with keys of their
# own, rotated; heads that share keys; a window; a window every other layer, and caps.
OPTIMISED_CASES = ("pythia", "llama 3", "mistral", "gemma2")
# What every commit need not try: they compile, and others try each of their switches.
_FIRST_FAMILIES = {
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "opt",
    "gemma2",
}


def with_slow_ones(cases, keep=()):
    """Cases of families that came first, and those to keep; the others marked slow."""
    return [
        case
        if CASES[case][0] in _FIRST_FAMILIES or case in keep
        else pytest.param(case, marks=pytest.mark.slow)
        for case in cases
    ]


def torch_model(case, seed=0):
    model_type, fields = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **fields)
    model = transformers.AutoModelForCausalLM.from_config(config, **EAGER)
    return randomised(model, seed)


def reopened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, **EAGER
    )


def edit_config(folder, *, drop=(), **changes):
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in raw.items() if k not in drop}))
