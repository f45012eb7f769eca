"""Fields and drawn weights of a small model of every family, as published ones are."""

from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.families import FAMILIES
from tests.support.decoders import spread

VOCAB = 300
BASE = dict(vocab_size=VOCAB, hidden_size=18, max_position_embeddings=32)
HEADS = dict(num_hidden_layers=2, num_attention_heads=3)
SIZES = BASE | HEADS | dict(intermediate_size=14)
GPT = dict(vocab_size=VOCAB, n_embd=18, n_layer=2, n_head=3)
GPT |= dict(n_inner=None, n_positions=32)
GROUPED = SIZES | dict(hidden_size=20, num_attention_heads=4)
GROUPED |= dict(num_key_value_heads=2, head_dim=6)
WINDOW = GROUPED | dict(sliding_window=5)
CHOSEN = dict(num_experts_per_tok=2)
EXPERTS = CHOSEN | dict(num_experts=3, moe_intermediate_size=10)
SHARED = EXPERTS | dict(shared_expert_intermediate_size=8)
DEEPSEEK = SIZES | dict(n_routed_experts=4, n_shared_experts=2, num_experts_per_tok=2)
DEEPSEEK |= dict(moe_intermediate_size=10, moe_layer_freq=1, first_k_dense_replace=1)
DEEPSEEK |= dict(kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4)
QUARTER = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25)
QUARTER |= dict(mrope_interleaved=True, mrope_section=[1, 0, 0])
QWEN3_5 = GROUPED | dict(head_dim=8, full_attention_interval=2, linear_num_key_heads=2)
QWEN3_5 |= dict(linear_num_value_heads=4, linear_key_head_dim=4)
QWEN3_5 |= dict(linear_value_head_dim=6, rope_parameters=QUARTER)
# Rotations, by an older name and by the newer one.
FIRST = dict(original_max_position_embeddings=8)
LLAMA3 = FIRST | dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0
)
YARN = FIRST | dict(factor=4, beta_fast=32, beta_slow=1, type="yarn")
LONG = dict(type="longrope", short_factor=[1.0, 1.5, 2.0], long_factor=[2.0, 3.0, 4.0])
PAIR = ["sliding_attention", "full_attention"]
# What published models set and no shape made here has.
RAW = {
    "gpt2": GPT
    | dict(n_ctx=32, bos_token_id=7)
    | dict(task_specific_params={"text-generation": {"max_length": 50}}),
    "gpt_neox": SIZES | dict(rotary_pct=1 / 3, rotary_emb_base=700),
    "llama": GROUPED | dict(eos_token_id=[5, 6], rope_theta=5e5, rope_scaling=LLAMA3),
    "mistral": WINDOW | dict(rms_norm_eps=1e-05),
    "qwen2": GROUPED
    | dict(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": GROUPED | dict(attention_bias=True, tie_word_embeddings=True),
    "opt": BASE | HEADS | dict(ffn_dim=14, prefix="</s>"),
    "gemma2": WINDOW | dict(query_pre_attn_scalar=9, final_logit_softcapping=3.0),
    "gpt_neo": BASE
    | dict(num_layers=2, num_heads=3, intermediate_size=None, window_size=5)
    | dict(attention_types=[[["global", "local"], 1]])
    | dict(attention_layers=["global", "local"]),
    "gptj": GPT | dict(rotary_dim=4, rotary=True),
    "phi": SIZES | dict(partial_rotary_factor=0.7, qk_layernorm=True),
    "phi3": SIZES | FIRST | dict(rope_scaling=LONG),
    "gemma": GROUPED | dict(hidden_act="gelu", hidden_activation=None),
    "gemma3_text": WINDOW
    | dict(sliding_window_pattern=2, rope_local_base_freq=700, rope_theta=3e5)
    | dict(rope_scaling=dict(rope_type="linear", factor=8.0)),
    "gemma4_text": WINDOW
    | dict(vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=6)
    | dict(num_hidden_layers=4, num_kv_shared_layers=2, use_double_wide_mlp=True)
    | dict(layer_types=PAIR * 2, global_head_dim=8)
    | dict(attention_k_eq_v=True, num_global_key_value_heads=1),
    "olmo2": GROUPED | dict(attention_bias=True, rope_theta=5e5),
    "olmo": SIZES | dict(clip_qkv=8.0),
    "olmo3": WINDOW
    | dict(rope_theta=500000)
    | dict(
        rope_scaling=FIRST | dict(rope_type="yarn", factor=4.0, attention_factor=1.2)
    ),
    "olmoe": SIZES | CHOSEN | dict(num_experts=3, clip_qkv=None),
    "gpt_oss": WINDOW
    | CHOSEN
    | dict(num_local_experts=3, initial_context_length=4096, swiglu_limit=7.0),
    "deepseek_v2": DEEPSEEK
    | dict(q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1)
    | dict(norm_topk_prob=False, scoring_func="softmax")
    | dict(rope_scaling=YARN | dict(mscale=0.707, mscale_all_dim=0.707)),
    "deepseek_v3": DEEPSEEK
    | dict(q_lora_rank=8, topk_method="noaux_tc", n_group=2, topk_group=1)
    | dict(norm_topk_prob=True, scoring_func="sigmoid")
    | dict(routed_scaling_factor=2.5, num_nextn_predict_layers=0),
    "smollm3": GROUPED | dict(no_rope_layers=[0, 1], rope_theta=5e6),
    "granite": GROUPED
    | dict(embedding_multiplier=12.0, attention_multiplier=0.0078125)
    | dict(residual_multiplier=0.22, logits_scaling=16.0),
    "mixtral": GROUPED | dict(num_local_experts=3, router_aux_loss_coef=0.02),
    "qwen2_moe": GROUPED | SHARED | dict(qkv_bias=False),
    "qwen3_moe": GROUPED | EXPERTS | dict(norm_topk_prob=True),
    "qwen3_5_text": QWEN3_5 | dict(mlp_only_layers=[], attn_output_gate=True),
    "qwen3_5_moe_text": QWEN3_5 | SHARED | dict(num_hidden_layers=4),
}


def raw_config(model_type, **changes):
    labels = dict(architectures=[FAMILIES[model_type].architecture])
    labels |= dict(model_type=model_type, dtype="float32")
    return RAW[model_type] | labels | changes


def drawn(raw, *, dtype="float32"):
    """A decoder of these fields with every weight drawn anew."""
    config = FAMILIES[raw["model_type"]].read_config(raw)
    return spread(config, loc=0.0, scale=1.0, dtype=dtype)


def write(decoder, raw, folder, tokenizer=None):
    model_type = raw["model_type"]
    save_checkpoint(decoder, tokenizer, folder, model_type=model_type, raw_config=raw)
