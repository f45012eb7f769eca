"""Small models whose layers are of several kinds, for family_cases.py."""

from tests.support.torch_reference import CONTEXT

_QWEN3_5 = {
    "vocab_size": 97,
    "hidden_size": 42,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 700.0,
        "partial_rotary_factor": 0.25,
    },
    "tie_word_embeddings": False,
}
_GEMMA4 = {
    "vocab_size": 97,
    "vocab_size_per_layer_input": 97,
    "hidden_size": 42,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 14,
    "global_head_dim": 20,
    "intermediate_size": 53,
    "max_position_embeddings": CONTEXT,
    "sliding_window": 5,
}
_PAIR = ["sliding_attention", "full_attention"]
STACKED_CASES = {
    # Patterns of two layers, and those that reuse the last of them.
    "gemma4": (
        "gemma4_text",
        _GEMMA4
        | {
            "num_hidden_layers": 8,
            "layer_types": _PAIR * 4,
            "hidden_size_per_layer_input": 10,
            "num_kv_shared_layers": 4,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma4, values of keys": (
        "gemma4_text",
        _GEMMA4
        | {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", *_PAIR],
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 3,
            "tie_word_embeddings": False,
            "final_logit_softcapping": 3.0,
        },
    ),
    # Two patterns of two layers, and one left over.
    "qwen3_5": (
        "qwen3_5_text",
        _QWEN3_5 | {"num_hidden_layers": 5, "full_attention_interval": 2},
    ),
    "qwen3_5, biases, tied": (
        "qwen3_5_text",
        _QWEN3_5
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "attention_bias": True,
            "tie_word_embeddings": True,
            "linear_num_key_heads": 4,
            "linear_conv_kernel_dim": 3,
        },
    ),
    "qwen3_5_moe": (
        "qwen3_5_moe_text",
        _QWEN3_5
        | {
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 19,
            "num_hidden_layers": 4,
            "full_attention_interval": 2,
            "shared_expert_intermediate_size": 23,
        },
    ),
}
