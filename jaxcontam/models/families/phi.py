"""Phi, and Phi-3 with its rotations for long texts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    block_tensors,
    layer_windows,
    linear_tensors,
    need,
    number,
    rope_fields,
    rope_kind,
    switch,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama


def _read_phi(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama(raw, rotary_dim=rotary_dim(raw, rope_fields(raw), default=0.5)),
        norm="layer",
        norm_eps=number(raw, "layer_norm_eps", 1e-5),
        query_key_norm="head" if switch(raw, "qk_layernorm", False) else None,
        parallel=True,
        shared_norm=True,
        activation=activation(raw.get("hidden_act", "gelu_new")),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
    )


def rotary_dim(
    raw: Mapping[str, Any], rope: Mapping[str, Any], *, default: float
) -> int:
    """Rotated dimensions of a head; the argument is the family's default share."""
    width = need(raw, "hidden_size") // need(raw, "num_attention_heads")
    flat = number(raw, "partial_rotary_factor", default)
    part = number(rope, "partial_rotary_factor", flat)
    return int(need(raw, "head_dim", width) * part)


def _tensors_phi(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"self_attn.{part}_proj" for part in "qkv"],
        "attention.out": ["self_attn.dense"],
        "mlp.up": ["mlp.fc1"],
        "mlp.down": ["mlp.fc2"],
    }
    norms = {
        "blocks.attention_norm": "layers.{i}.input_layernorm",
        "final_norm": "final_layernorm",
    }
    if config.query_key_norm is not None:
        norms["blocks.attention.query_norm"] = "layers.{i}.self_attn.q_layernorm"
        norms["blocks.attention.key_norm"] = "layers.{i}.self_attn.k_layernorm"
    return block_tensors(config, "embed_tokens", "layers.{i}.", linears, norms)


def _read_phi3(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"rms_norm_eps": 1e-5, **raw}
    rope = dict(rope_fields(raw))
    # In this family alone an older name of the same.
    if rope_kind(rope) == "yarn":
        rope["rope_type"] = "longrope"
    first = rope.get("original_max_position_embeddings", 4096)
    raw = {"original_max_position_embeddings": first, **raw, "rope_parameters": rope}
    config = read_llama(raw, rotary_dim=rotary_dim(raw, rope, default=1.0))
    return dataclasses.replace(
        config,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        windows=layer_windows(raw, config.n_layers, lambda _: True),
    )


def _tensors_phi3(config: DecoderConfig) -> dict[str, Tensor]:
    # Query, key and value, and gate and up, are joined on disk in our order.
    joined = {"attention.qkv": ["self_attn.qkv_proj"], "mlp.up": ["mlp.gate_up_proj"]}
    return llama_tensors(config) | linear_tensors(config, "layers.{i}.", joined)


PHI = Family("phi", "PhiForCausalLM", _read_phi, _tensors_phi)
PHI3 = Family("phi3", "Phi3ForCausalLM", _read_phi3, _tensors_phi3)

FAMILIES = (PHI, PHI3)
