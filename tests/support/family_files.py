"""Fields and drawn weights of a small model of every family, as published ones are."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.sharding import weight_name
from jaxcontam.models.weights import is_operand

VOCAB = 300
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 18,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 14,
    "max_position_embeddings": 32,
}
GROUPED = SIZES | {
    "hidden_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
DEEPSEEK = {
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 10,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
}
QWEN3_5 = GROUPED | {
    "head_dim": 8,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [1, 0, 0],
    },
}
# What published models set and no shape made here has.
RAW = {
    "gpt2": {
        "vocab_size": VOCAB,
        "n_embd": 18,
        "n_layer": 2,
        "n_head": 3,
        "n_inner": None,
        "n_positions": 32,
        "n_ctx": 32,
        "bos_token_id": 7,
        "task_specific_params": {"text-generation": {"max_length": 50}},
    },
    "gpt_neox": SIZES | {"rotary_pct": 1 / 3, "rotary_emb_base": 700},
    "llama": GROUPED
    | {
        "eos_token_id": [5, 6],
        "rope_theta": 5e5,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    },
    "mistral": GROUPED | {"sliding_window": 5, "rms_norm_eps": 1e-05},
    "qwen2": GROUPED
    | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3": GROUPED | {"attention_bias": True, "tie_word_embeddings": True},
    "opt": {
        "vocab_size": VOCAB,
        "hidden_size": 18,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "ffn_dim": 14,
        "max_position_embeddings": 32,
        "prefix": "</s>",
    },
    "gemma2": GROUPED
    | {"query_pre_attn_scalar": 9, "sliding_window": 5, "final_logit_softcapping": 3.0},
    "gpt_neo": {
        "vocab_size": VOCAB,
        "hidden_size": 18,
        "num_layers": 2,
        "num_heads": 3,
        "intermediate_size": None,
        "max_position_embeddings": 32,
        "attention_types": [[["global", "local"], 1]],
        "attention_layers": ["global", "local"],
        "window_size": 5,
    },
    "gptj": {
        "vocab_size": VOCAB,
        "n_embd": 18,
        "n_layer": 2,
        "n_head": 3,
        "n_inner": None,
        "n_positions": 32,
        "rotary_dim": 4,
        "rotary": True,
    },
    "phi": SIZES | {"partial_rotary_factor": 0.7, "qk_layernorm": True},
    "phi3": SIZES
    | {
        "original_max_position_embeddings": 8,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.5, 2.0],
            "long_factor": [2.0, 3.0, 4.0],
        },
    },
    "gemma": GROUPED | {"hidden_act": "gelu", "hidden_activation": None},
    "gemma3_text": GROUPED
    | {
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "rope_local_base_freq": 700,
        "rope_theta": 3e5,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma4_text": GROUPED
    | {
        "vocab_size_per_layer_input": VOCAB,
        "hidden_size_per_layer_input": 6,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 5,
        "global_head_dim": 8,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
    "olmo2": GROUPED | {"attention_bias": True, "rope_theta": 5e5},
    "olmo": SIZES | {"clip_qkv": 8.0},
    "olmo3": GROUPED
    | {
        "sliding_window": 5,
        "rope_theta": 500000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "attention_factor": 1.2,
            "original_max_position_embeddings": 8,
        },
    },
    "olmoe": SIZES | {"num_experts": 3, "num_experts_per_tok": 2, "clip_qkv": None},
    "gpt_oss": GROUPED
    | {
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "sliding_window": 5,
        "initial_context_length": 4096,
        "swiglu_limit": 7.0,
    },
    "deepseek_v2": SIZES
    | DEEPSEEK
    | {
        "q_lora_rank": None,
        "topk_method": "greedy",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "rope_scaling": {
            "type": "yarn",
            "factor": 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 8,
        },
    },
    "deepseek_v3": SIZES
    | DEEPSEEK
    | {
        "q_lora_rank": 8,
        "topk_method": "noaux_tc",
        "n_group": 2,
        "topk_group": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 0,
    },
    "smollm3": GROUPED | {"no_rope_layers": [0, 1], "rope_theta": 5e6},
    "granite": GROUPED
    | {
        "embedding_multiplier": 12.0,
        "attention_multiplier": 0.0078125,
        "residual_multiplier": 0.22,
        "logits_scaling": 16.0,
    },
    "mixtral": GROUPED | {"num_local_experts": 3, "router_aux_loss_coef": 0.02},
    "qwen2_moe": GROUPED
    | EXPERTS
    | {"shared_expert_intermediate_size": 8, "qkv_bias": False},
    "qwen3_moe": GROUPED | EXPERTS | {"norm_topk_prob": True},
    "qwen3_5_text": QWEN3_5 | {"mlp_only_layers": [], "attn_output_gate": True},
    "qwen3_5_moe_text": QWEN3_5
    | EXPERTS
    | {"shared_expert_intermediate_size": 8, "num_hidden_layers": 4},
}


def raw_config(model_type, **changes):
    family = FAMILIES[model_type]
    labels = {
        "architectures": [family.architecture],
        "model_type": model_type,
        "dtype": "float32",
    }
    return RAW[model_type] | labels | changes


def drawn(raw, *, dtype="float32", seed=0):
    """A decoder of these fields with every weight drawn anew."""
    config = FAMILIES[raw["model_type"]].read_config(raw)
    decoder = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def fill(path, leaf):
        kind = dtype if is_operand(weight_name(path)) else "float32"
        return jnp.asarray(rng.normal(size=leaf.shape), kind)

    nnx.update(decoder, jax.tree.map_with_path(fill, nnx.state(decoder)))
    return decoder


def write(decoder, raw, folder, tokenizer=None):
    model_type = raw["model_type"]
    save_checkpoint(decoder, tokenizer, folder, model_type=model_type, raw_config=raw)


def weights(decoder):
    found = jax.tree.leaves_with_path(nnx.state(decoder))
    return {weight_name(path): np.asarray(leaf) for path, leaf in found}
