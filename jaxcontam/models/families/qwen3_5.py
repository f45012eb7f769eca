"""Qwen 3.5: of four layers three have a gated delta rule, and one gated attention."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, DeltaShape, ExpertShape
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    linear_tensors,
    need,
    norm_tensors,
    refuse,
    rope_fields,
)
from jaxcontam.models.families.llama import read_llama, rotary_dim
from jaxcontam.models.families.mixture import qwen_tensors
from jaxcontam.models.stacks import layer_stacks

_KINDS = {"linear_attention": True, "full_attention": False}


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    return _read_text(raw, n_kv_heads=4)


def _read_mixture(raw: Mapping[str, Any]) -> DecoderConfig:
    width = need(raw, "moe_intermediate_size", 512)
    experts = ExpertShape(
        n=need(raw, "num_experts", need(raw, "num_local_experts", 256)),
        n_used=need(raw, "num_experts_per_tok", 8),
        normalised=True,
        d_shared=need(raw, "shared_expert_intermediate_size", 512),
    )
    config = _read_text({**raw, "intermediate_size": width}, n_kv_heads=2)
    return dataclasses.replace(config, experts=experts)


def _read_text(raw: Mapping[str, Any], *, n_kv_heads: int) -> DecoderConfig:
    """Fields that both share; the argument is the family's default."""
    refuse(raw, attn_output_gate=False)
    if (name := raw.get("hidden_act") or "silu") != "silu":
        raise InputError(f"hidden_act {name!r} is not supported")
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"num_key_value_heads": n_kv_heads, "head_dim": 256, **raw}
    config = read_llama(raw, rotary_dim=rotary_dim(raw, rope_fields(raw), default=0.25))
    every = need(raw, "full_attention_interval", 4)
    kinds = raw.get("layer_types") or [
        "linear_attention" if (i + 1) % every else "full_attention"
        for i in range(config.n_layers)
    ]
    if unknown := set(kinds) - _KINDS.keys():
        raise InputError(f"layer type {min(unknown)!r} is not supported")
    shape = DeltaShape(
        n_keys=need(raw, "linear_num_key_heads", 16),
        n_values=need(raw, "linear_num_value_heads", 32),
        d_keys=need(raw, "linear_key_head_dim", 128),
        d_values=need(raw, "linear_value_head_dim", 128),
        window=need(raw, "linear_conv_kernel_dim", 4),
    )
    has_delta = "linear_attention" in kinds
    return dataclasses.replace(
        config,
        norm_offset=1.0,
        query_key_norm="head",
        attention_gate=True,
        mlp_bias=False,
        delta=shape if has_delta else None,
        delta_layers=tuple(_KINDS[kind] for kind in kinds) if has_delta else (),
    )


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    both = qwen_tensors(config)
    layer = "layers.{i}."
    rule = f"{layer}linear_attn."
    plain = dataclasses.replace(config, qkv_bias=False, output_bias=False)
    linears = {
        "attention.qkv": ["linear_attn.in_proj_qkv"],
        "attention.gate": ["linear_attn.in_proj_z"],
        "attention.rates": ["linear_attn.in_proj_b", "linear_attn.in_proj_a"],
        "attention.out": ["linear_attn.out_proj"],
    }
    delta = {
        **{ours: x for ours, x in both.items() if "blocks.attention." not in ours},
        **linear_tensors(plain, layer, linears),
        **norm_tensors(config, {"blocks.attention.norm": f"{rule}norm"}),
        "blocks.attention.convolution": Tensor((f"{rule}conv1d.weight",), True),
        "blocks.attention.log_decay": Tensor((f"{rule}A_log",)),
        "blocks.attention.decay_bias": Tensor((f"{rule}dt_bias",)),
    }
    both |= {
        f"delta_{ours}": x for ours, x in delta.items() if ours.startswith("blocks.")
    }
    absent = {"blocks", "delta_blocks"} - set(layer_stacks(config))
    return {ours: x for ours, x in both.items() if ours.split(".")[0] not in absent}


_FURTHER = "mtp.fc.weight"
QWEN3_5_TEXT = Family(
    "qwen3_5_text", "Qwen3_5ForCausalLM", _read, _tensors, further=_FURTHER
)
QWEN3_5_MOE_TEXT = Family(
    "qwen3_5_moe_text",
    "Qwen3_5MoeForCausalLM",
    _read_mixture,
    _tensors,
    further=_FURTHER,
)

FAMILIES = (QWEN3_5_TEXT, QWEN3_5_MOE_TEXT)
