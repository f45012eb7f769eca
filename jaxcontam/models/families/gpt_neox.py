"""GPT-NeoX and Pythia: parallel blocks, rotary positions on a part of each head."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Conversion,
    Family,
    Tensor,
    activation,
    block_tensors,
    need,
    number,
    switch,
)
from jaxcontam.models.families.llama import read_llama
from jaxcontam.models.families.rope_settings import (
    rope_fields,
)


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    # Older files have names of their own for the rotary settings.
    old = {"rope_theta": raw.get("rotary_emb_base") or raw.get("rope_theta")}
    rope = rope_fields({**raw, **old})
    part = number(rope, "partial_rotary_factor", number(raw, "rotary_pct", 0.25))
    has_bias = switch(raw, "attention_bias", True)
    width = need(raw, "hidden_size") // need(raw, "num_attention_heads")
    heads = {"num_key_value_heads": None, "head_dim": None, "rope_parameters": rope}
    config = read_llama({**raw, **heads}, rotary_dim=int(width * part))
    return dataclasses.replace(
        config,
        norm="layer",
        norm_eps=number(raw, "layer_norm_eps", 1e-5),
        parallel=switch(raw, "use_parallel_residual", True),
        activation=activation(raw.get("hidden_act", "gelu")),
        gated=False,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=True,
    )


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": ["attention.query_key_value"],
        "attention.out": ["attention.dense"],
        "mlp.up": ["mlp.dense_h_to_4h"],
        "mlp.down": ["mlp.dense_4h_to_h"],
    }
    norms = {
        "blocks.attention_norm": "layers.{i}.input_layernorm",
        "blocks.mlp_norm": "layers.{i}.post_attention_layernorm",
        "final_norm": "final_layer_norm",
    }
    tensors = block_tensors(config, "embed_in", "layers.{i}.", linears, norms)
    for name in tensors:
        if name.startswith("blocks.attention.qkv."):
            tensors[name] = dataclasses.replace(tensors[name], conversion=_HEADS)
    return tensors


def _heads_apart(fused: np.ndarray, config: DecoderConfig) -> np.ndarray:
    """Query, key, value of each head in turn -> all queries, all keys, all values."""
    outer, H, E = fused.shape[:-1], config.n_heads, config.head_dim
    by_head = fused.reshape(*outer, H, 3, E)
    return np.moveaxis(by_head, -2, -3).reshape(*outer, 3 * H * E)


def _heads_together(apart: np.ndarray, config: DecoderConfig) -> np.ndarray:
    """All queries, all keys, all values -> query, key, value of each head in turn."""
    outer, H, E = apart.shape[:-1], config.n_heads, config.head_dim
    by_part = apart.reshape(*outer, 3, H, E)
    return np.moveaxis(by_part, -3, -2).reshape(*outer, 3 * H * E)


_HEADS = Conversion(to_ours=_heads_apart, to_disk=_heads_together)


GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    _read,
    _tensors,
    head="embed_out.weight",
    prefix="gpt_neox.",
    ignored=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
)
