"""Small models of every family, whose torch forms are the tests' witnesses."""

import re

import pytest
import transformers

from tests.support.torch_reference import CONTEXT, randomised, torch

# Other implementations than eager leave out Gemma's caps, and want experts of sizes
# that are multiples of four.
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}

# Odd sizes, and three layers, so that no axis can be taken for another.
BASE = dict(
    vocab_size=97, hidden_size=42, num_hidden_layers=3, max_position_embeddings=CONTEXT
)
BASE |= dict(num_attention_heads=6)
WIDE = BASE | dict(intermediate_size=53)
UNTIED, TIED = dict(tie_word_embeddings=False), dict(tie_word_embeddings=True)
LLAMA = WIDE | UNTIED | dict(num_key_value_heads=2, head_dim=14)
# Heads of hidden_size / num_attention_heads.
QWEN2 = WIDE | UNTIED | dict(num_key_value_heads=2, hidden_size=60)
NEOX = WIDE | dict(hidden_size=48, num_attention_heads=3)
GPT2 = dict(n_embd=42, n_layer=3, n_head=6, n_inner=53, n_positions=CONTEXT)
GPT2 |= dict(vocab_size=97)
OPT = BASE | dict(word_embed_proj_dim=42, ffn_dim=53)
GPT_NEO = dict(vocab_size=97, hidden_size=42, num_layers=3, num_heads=6)
GPT_NEO |= dict(intermediate_size=53, max_position_embeddings=CONTEXT, window_size=5)
GPT_NEO |= dict(attention_types=[[["global", "local"], 1], [["local"], 1]])
GPTJ = GPT2 | dict(n_embd=48, n_head=3, rotary_dim=6)
PHI = NEOX | dict(num_attention_heads=6, num_key_value_heads=2)
# Windows, caps and scaled positions must bite within 16 tokens.
ROPE = dict(rope_type="default", rope_theta=700.0)
LINEAR = dict(rope_type="linear", rope_theta=1e4, factor=4.0)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500_000.0, factor=8.0)
LLAMA3_ROPE |= dict(low_freq_factor=1.0, high_freq_factor=4.0)
LLAMA3_ROPE |= dict(original_max_position_embeddings=8)
# One pair of seven is kept, four are scaled, two interpolated.
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, beta_fast=2.0, beta_slow=0.1)
YARN |= dict(original_max_position_embeddings=CONTEXT)
LONG = dict(rope_type="longrope", rope_theta=1e4)
LONG_ROPE = LONG | dict(factor=3.0, original_max_position_embeddings=CONTEXT)
LONG_ROPE |= dict(short_factor=[1.0, 1.1, 1.5, 2.0, 2.5, 3.0, 4.0])
LONG_ROPE |= dict(long_factor=[1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
PHI3_ROPE = LONG | dict(partial_rotary_factor=0.8)
PHI3_ROPE |= dict(short_factor=[1.0, 1.5, 2.0, 4.5], long_factor=[2.0, 3.0, 4.0, 5.0])
QUARTER = ROPE | dict(partial_rotary_factor=0.25)
STRETCHED = dict(max_position_embeddings=4 * CONTEXT)
NO_IDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
WINDOW = dict(sliding_window=5)
GEMMA2 = LLAMA | TIED | WINDOW | dict(query_pre_attn_scalar=9)
CAPS = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
PAIR = ["sliding_attention", "full_attention"]
EXPERTS = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=19)
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.4)
GRANITE |= dict(residual_multiplier=0.6, logits_scaling=0.3)
SHARED = dict(shared_expert_intermediate_size=23)
# A fifth of all gates and a third of all projections are cut.
GPT_OSS = dict(num_local_experts=5, num_experts_per_tok=3, swiglu_limit=1.2)
DEEPSEEK = WIDE | dict(num_key_value_heads=6, qk_nope_head_dim=10, qk_rope_head_dim=6)
DEEPSEEK |= dict(v_head_dim=9, kv_lora_rank=12, q_lora_rank=11, n_routed_experts=6)
DEEPSEEK |= dict(num_experts_per_tok=3, moe_intermediate_size=19, n_shared_experts=2)
DEEPSEEK |= dict(first_k_dense_replace=1, eos_token_id=1)
GROUPS = dict(n_group=3, topk_group=2)
QWEN3_5 = LLAMA | dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4)
QWEN3_5 |= dict(linear_key_head_dim=6, linear_value_head_dim=10)
QWEN3_5 |= dict(rope_parameters=QUARTER)
GEMMA4 = WIDE | WINDOW | dict(num_key_value_heads=2, head_dim=14, global_head_dim=20)
GEMMA4 |= dict(vocab_size_per_layer_input=97)


def rope(*fields, **more):
    """Settings of rotations: those of each dict, and more."""
    made = {name: value for one in fields for name, value in one.items()}
    return dict(rope_parameters=made | more)


_FIELDS = {
    # The kernel's vocabulary block is 1024.
    "gpt2, tied": GPT2,
    "gpt2, untied": GPT2 | UNTIED | dict(activation_function="gelu_pytorch_tanh"),
    "gpt2, gelu": GPT2 | dict(activation_function="gelu", layer_norm_epsilon=1e-2),
    "gpt2, silu, many words": GPT2
    | UNTIED
    | dict(activation_function="silu", vocab_size=2501),
    "llama 3": LLAMA | rope(LLAMA3_ROPE),
    "llama, many words": LLAMA | dict(vocab_size=2501),
    "llama, one key head": LLAMA
    | TIED
    | dict(num_key_value_heads=1, head_dim=10, vocab_size=1024, hidden_act="gelu"),
    "llama, linear": LLAMA | rope(LINEAR),
    "llama, yarn": LLAMA | STRETCHED | rope(YARN),
    "llama, yarn of fractions, as DeepSeek's": LLAMA
    | STRETCHED
    | rope(YARN, truncate=False, mscale=0.7, mscale_all_dim=0.5),
    "llama, longrope": LLAMA | STRETCHED | rope(LONG_ROPE),
    "llama, biases, tied": LLAMA
    | TIED
    | dict(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2),
    "llama, biases, all heads": LLAMA
    | rope(ROPE, rope_theta=500_000.0)
    | dict(attention_bias=True, mlp_bias=True, num_key_value_heads=6),
    "mistral": LLAMA | WINDOW,
    "mistral, no window": LLAMA | dict(sliding_window=None),
    "qwen2": QWEN2,
    "qwen2, windows": QWEN2
    | dict(use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": LLAMA,
    "qwen3, biases, tied": LLAMA | TIED | dict(attention_bias=True),
    "pythia": NEOX,
    "gpt_neox, not parallel": NEOX
    | rope(ROPE, rope_theta=777.0, partial_rotary_factor=0.5)
    | dict(use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast"),
    "opt": OPT,
    "opt, no biases, untied": OPT | UNTIED | dict(enable_bias=False),
    "gpt_neo": GPT_NEO,
    "gptj": GPTJ,
    "gptj, tied": GPTJ | TIED,
    "phi": PHI,
    "phi, norms of queries and keys": PHI | dict(qk_layernorm=True),
    "phi3": QWEN2 | WINDOW | dict(pad_token_id=0),
    "phi3, long": QWEN2
    | STRETCHED
    | rope(PHI3_ROPE)
    | dict(pad_token_id=0, original_max_position_embeddings=CONTEXT),
    # A fifth of all values are cut.
    "olmo": QWEN2 | dict(clip_qkv=2.0),
    "olmo, plain": QWEN2 | dict(attention_bias=True),
    "olmo2": QWEN2,
    "olmo3": QWEN2
    | STRETCHED
    | WINDOW
    | rope(full_attention=YARN, sliding_attention=ROPE)
    | dict(layer_types=[*PAIR, PAIR[0]]),
    "olmoe": QWEN2 | dict(num_experts=6, num_experts_per_tok=3, clip_qkv=1.5),
    "gpt_oss": LLAMA | STRETCHED | WINDOW | GPT_OSS | rope(YARN, truncate=False),
    "deepseek_v2": DEEPSEEK
    | rope(ROPE)
    | dict(q_lora_rank=None, routed_scaling_factor=1.3),
    "deepseek_v2, groups": DEEPSEEK
    | GROUPS
    | dict(topk_method="group_limited_greedy", first_k_dense_replace=0),
    "deepseek_v3": DEEPSEEK
    | GROUPS
    | STRETCHED
    | rope(YARN, mscale=1.0, mscale_all_dim=2.0)
    | dict(routed_scaling_factor=1.7),
    "deepseek_v3, halves": DEEPSEEK
    | dict(q_lora_rank=None, n_group=1, topk_group=1, first_k_dense_replace=2)
    | dict(norm_topk_prob=False, rope_interleave=False),
    "smollm3": LLAMA | NO_IDS | rope(ROPE) | dict(no_rope_layer_interval=2),
    "smollm3, windows": LLAMA
    | NO_IDS
    | WINDOW
    | rope(ROPE)
    | dict(no_rope_layers=[0, 1, 0], use_sliding_window=True),
    "granite": LLAMA | NO_IDS | GRANITE,
    "gemma": LLAMA | TIED,
    "gemma3": GEMMA2
    | rope(full_attention=LINEAR | dict(rope_theta=3e5), sliding_attention=ROPE)
    | dict(layer_types=[*PAIR, PAIR[0]]),
    "mixtral": LLAMA | dict(num_local_experts=5),
    "qwen2_moe": QWEN2
    | EXPERTS
    | SHARED
    | WINDOW
    | dict(use_sliding_window=True, max_window_layers=2),
    "qwen3_moe": LLAMA | EXPERTS | dict(norm_topk_prob=True),
    # Patterns of two layers, and those that reuse the last of them.
    "gemma4": GEMMA4
    | dict(num_hidden_layers=8, layer_types=PAIR * 4, num_kv_shared_layers=4)
    | dict(hidden_size_per_layer_input=10, use_double_wide_mlp=True),
    "gemma4, values of keys": GEMMA4
    | UNTIED
    | dict(hidden_size_per_layer_input=0, layer_types=[PAIR[1], *PAIR])
    | dict(attention_k_eq_v=True, num_global_key_value_heads=3)
    | dict(final_logit_softcapping=3.0),
    # Two patterns of two layers, and one left over.
    "qwen3_5": QWEN3_5 | dict(num_hidden_layers=5, full_attention_interval=2),
    "qwen3_5, biases, tied": QWEN3_5
    | TIED
    | dict(layer_types=["linear_attention", PAIR[1], "linear_attention"])
    | dict(attention_bias=True, linear_num_key_heads=4, linear_conv_kernel_dim=3),
    "qwen3_5_moe": QWEN3_5
    | EXPERTS
    | SHARED
    | dict(num_hidden_layers=4, full_attention_interval=2),
    "gemma2": GEMMA2 | CAPS,
    "gemma2, no caps": GEMMA2 | dict.fromkeys(CAPS),
}
# Model types of names that begin otherwise.
_TEXTS = ["gemma3", "gemma4", "qwen3_5", "qwen3_5_moe"]
_TYPES = {name: f"{name}_text" for name in _TEXTS}
_TYPES["pythia"] = "gpt_neox"
CASES = {
    name: (_TYPES.get(word := re.split("[ ,]", name)[0], word), fields)
    for name, fields in _FIELDS.items()
}
# One of each family, as its models were published.
PLAIN_CASES = [
    case for case in CASES if "," not in case and case not in ("llama 3", "qwen3_moe")
]
FAMILY_CASES = ["gpt2, tied", "llama 3", *PLAIN_CASES, "qwen3_moe"]
# Phi-3's case with long rotations tries all that its plain one does but the window.
PARITY_CASES = [case if case != "phi3" else "phi3, long" for case in FAMILY_CASES]
# One of each kind of attention, compiled as users compile: all heads with keys of their
# own, rotated; heads that share keys; a window; a window every other layer, and caps.
OPTIMISED_CASES = ("pythia", "llama 3", "mistral", "gemma2")
# What every commit need not try: they compile, and others try each of their switches.
_FIRST_FAMILIES = {"gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "opt"}
_FIRST_FAMILIES |= {"gemma2"}


def with_slow_ones(cases):
    """Cases of families that came first; the others marked slow."""
    marks = {True: (), False: pytest.mark.slow}
    is_first = {case: CASES[case][0] in _FIRST_FAMILIES for case in cases}
    return [pytest.param(case, marks=marks[is_first[case]]) for case in cases]


def torch_model(case, seed=0, **more):
    model_type, fields = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **fields | more)
    model = transformers.AutoModelForCausalLM.from_config(config, **EAGER)
    return randomised(model, seed)


def reopened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, **EAGER
    )
