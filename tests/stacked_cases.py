"""Small models whose layers are of several kinds, for family_cases.py."""

from tests.torch_reference import CONTEXT

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
STACKED_CASES = {
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
