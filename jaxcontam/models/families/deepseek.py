"""DeepSeek V2 and V3: latent attention, shared experts, dense blocks at the start."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, ExpertShape, LatentShape
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    linear_tensors,
    need,
    norm_tensors,
    number,
    refuse,
    rope_fields,
    rope_kind,
    switch,
    yarn_magnitude,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama

_CHOICES = ("greedy", "group_limited_greedy")


def _read_v2(raw: Mapping[str, Any]) -> DecoderConfig:
    # transformers leaves this out, DeepSeek's own code does not.
    refuse(raw, norm_topk_prob=True)
    if (how := raw.get("topk_method") or "greedy") not in _CHOICES:
        raise InputError(f"topk_method {how!r} is not supported")
    # What a file leaves out is the family's default, not LLaMA's.
    defaults = {
        "q_lora_rank": 1536,
        "first_k_dense_replace": 0,
        "moe_intermediate_size": 1407,
        "n_shared_experts": 2,
        "routed_scaling_factor": 1.0,
    }
    n_groups = n_groups_used = 1
    if how != "greedy":
        n_groups, n_groups_used = need(raw, "n_group"), need(raw, "topk_group")
    experts = ExpertShape(
        n=need(raw, "n_routed_experts", 64),
        n_used=need(raw, "num_experts_per_tok"),
        n_groups=n_groups,
        n_groups_used=n_groups_used,
        normalised=False,
    )
    return _read({**defaults, **raw}, experts, scores="softmax", pairs="neighbours")


def _read_v3(raw: Mapping[str, Any]) -> DecoderConfig:
    if (how := raw.get("topk_method") or "noaux_tc") != "noaux_tc":
        raise InputError(f"topk_method {how!r} is not supported")
    defaults = {
        "q_lora_rank": 1536,
        "first_k_dense_replace": 3,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "routed_scaling_factor": 2.5,
    }
    experts = ExpertShape(
        n=need(raw, "n_routed_experts", 256),
        n_used=need(raw, "num_experts_per_tok", 8),
        scores="sigmoid",
        has_preference=True,
        n_groups=need(raw, "n_group", 8),
        n_groups_used=need(raw, "topk_group", 4),
        group_best=2,
        normalised=switch(raw, "norm_topk_prob", True),
    )
    pairs = "neighbours" if switch(raw, "rope_interleave", True) else "halves"
    return _read({**defaults, **raw}, experts, scores="sigmoid", pairs=pairs)


def _read(
    raw: Mapping[str, Any], experts: ExpertShape, *, scores: str, pairs: Any
) -> DecoderConfig:
    """Fields that the two share."""
    refuse(raw, attention_bias=True, mlp_bias=True)
    if (found := raw.get("scoring_func", scores)) != scores:
        raise InputError(f"scoring_func {found!r} is not supported")
    if raw.get("moe_layer_freq", 1) != 1:
        raise InputError("dense layers among expert layers are not supported")
    plain, rotated = (
        need(raw, "qk_nope_head_dim", 128),
        need(raw, "qk_rope_head_dim", 64),
    )
    # Every head has keys of its own, whatever the file says.
    heads = {"num_key_value_heads": None, "head_dim": plain + rotated}
    config = read_llama({**raw, **heads}, rotary_dim=rotated)
    first = "first_k_dense_replace"
    n_dense = 0 if raw[first] in (None, 0) else need(raw, first)
    width = need(raw, "moe_intermediate_size")
    return dataclasses.replace(
        config,
        rotary_pairs=pairs,
        attention_scale=_attention_scale(raw, config.head_dim),
        d_ff=width,
        n_dense=n_dense,
        d_dense=config.d_ff if n_dense else 0,
        latent=LatentShape(
            d_values=need(raw, "v_head_dim", 128),
            rank=need(raw, "kv_lora_rank", 512),
            query_rank=None if raw["q_lora_rank"] is None else need(raw, "q_lora_rank"),
        ),
        experts=dataclasses.replace(
            experts,
            scale=number(raw, "routed_scaling_factor"),
            d_shared=width * need(raw, "n_shared_experts"),
            shared_gated=False,
        ),
    )


def _attention_scale(raw: Mapping[str, Any], head_dim: int) -> float:
    """Scale of the scores, which grows with the context that rotations are made for."""
    rope = rope_fields(raw)
    scale = head_dim**-0.5
    if rope_kind(rope) == "default" or not rope.get("mscale_all_dim"):
        return scale
    magnitude = yarn_magnitude(number(rope, "factor"), number(rope, "mscale_all_dim"))
    return scale * magnitude * magnitude


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    assert config.latent is not None
    attention = {
        "attention.down": ["self_attn.kv_a_proj_with_mqa"],
        "attention.key_value": ["self_attn.kv_b_proj"],
        "attention.out": ["self_attn.o_proj"],
        "attention.query": ["self_attn.q_proj"],
    }
    norms = {"blocks.attention.norm": "layers.{i}.self_attn.kv_a_layernorm"}
    if config.latent.query_rank is not None:
        attention["attention.query_down"] = ["self_attn.q_a_proj"]
        attention["attention.query"] = ["self_attn.q_b_proj"]
        norms["blocks.attention.query_norm"] = "layers.{i}.self_attn.q_a_layernorm"
    shared = llama_tensors(config) | norm_tensors(config, norms)
    del shared["blocks.attention.qkv.kernel"]
    shared |= linear_tensors(config, "layers.{i}.", attention)
    experts = {
        "mlp.router": ["mlp.gate"],
        "mlp.up": [f"mlp.experts.{{x}}.{part}_proj" for part in ("gate", "up")],
        "mlp.down": ["mlp.experts.{x}.down_proj"],
        "mlp.shared.up": [f"mlp.shared_experts.{part}_proj" for part in ("gate", "up")],
        "mlp.shared.down": ["mlp.shared_experts.down_proj"],
    }
    tensors = shared | linear_tensors(config, "layers.{i}.", experts)
    if config.experts is not None and config.experts.has_preference:
        tensors["blocks.mlp.preference"] = Tensor(
            ("layers.{i}.mlp.gate.e_score_correction_bias",)
        )
    if config.n_dense:
        # The first layers have the names of a LLaMA.
        tensors |= {
            f"first_{ours}": tensor
            for ours, tensor in shared.items()
            if ours.startswith("blocks.")
        }
    return tensors


DEEPSEEK_V2 = Family("deepseek_v2", "DeepseekV2ForCausalLM", _read_v2, _tensors)
DEEPSEEK_V3 = Family(
    "deepseek_v3",
    "DeepseekV3ForCausalLM",
    _read_v3,
    _tensors,
    further="model.layers.{n}.eh_proj.weight",
)

FAMILIES = (DEEPSEEK_V2, DEEPSEEK_V3)
