"""Gemma, Gemma 2 and the text models of Gemma 3.

Scales of norms are kept as their distance from 1, and embeddings are scaled. Gemma 2
adds soft caps, a window in every second layer and norms after; Gemma 3 has norms of
queries and keys instead of caps, and lower rotary frequencies where there is no window.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    layer_windows,
    need,
    norm_tensors,
    number,
    refuse,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama
from jaxcontam.models.families.rope_settings import two_ropes


def _read_gemma(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 16, **raw}
    name = raw.get("hidden_act") or "gelu_pytorch_tanh"
    # The first files say gelu, but the models were trained with its tanh form.
    return _read(raw, "gelu_pytorch_tanh" if name == "gelu" else name)


def _read(raw: Mapping[str, Any], activation_name: str) -> DecoderConfig:
    """Fields that the three share."""
    refuse(raw, use_bidirectional_attention=True)
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"tie_word_embeddings": True, "head_dim": 256, **raw}
    config = read_llama({**raw, "hidden_act": activation_name})
    return dataclasses.replace(
        config,
        activation=activation(activation_name),
        mlp_bias=False,
        embedding_scale=float(config.d_model) ** 0.5,
        # Files hold how far a scale is from 1.
        norm_offset=1.0,
    )


def _read_gemma2(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 4, "sliding_window": 4096, **raw}
    config = _read(raw, raw.get("hidden_activation") or "gelu_pytorch_tanh")
    return dataclasses.replace(
        config,
        post_norms=True,
        windows=layer_windows(raw, config.n_layers, lambda i: i % 2 == 0),
        attention_scale=number(raw, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(raw, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(raw, "final_logit_softcapping", 30.0),
    )


def _read_gemma3(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 4, "sliding_window": 4096, **raw}
    if raw.get("attn_logit_softcapping") is not None:
        raise InputError("attn_logit_softcapping is not supported")
    everywhere, local = two_ropes(
        raw, theta=1e6, local_theta=number(raw, "rope_local_base_freq", 1e4)
    )
    config = _read(
        {**raw, "rope_scaling": None, "rope_parameters": everywhere},
        raw.get("hidden_activation") or "gelu_pytorch_tanh",
    )
    every = need(raw, "sliding_window_pattern", 6)
    if raw["sliding_window"] is None and not raw.get("layer_types"):
        raise InputError("sliding_window must be a number of tokens, got null")
    windows = layer_windows(raw, config.n_layers, lambda i: (i + 1) % every != 0)
    return dataclasses.replace(
        config,
        query_key_norm="head",
        post_norms=True,
        windows=windows,
        local_rope_theta=number(local, "rope_theta") if windows else None,
        attention_scale=number(raw, "query_pre_attn_scalar", 256) ** -0.5,
        logit_softcap=_cap(raw, "final_logit_softcapping", None),
    )


def _cap(raw: Mapping[str, Any], field: str, default: float | None) -> float | None:
    """A cap; null is none, and a missing field is the default."""
    return None if raw.get(field, default) is None else number(raw, field, default)


def _tensors_with_post_norms(config: DecoderConfig) -> dict[str, Tensor]:
    norms = {
        "blocks.attention_post_norm": "layers.{i}.post_attention_layernorm",
        "blocks.mlp_norm": "layers.{i}.pre_feedforward_layernorm",
        "blocks.mlp_post_norm": "layers.{i}.post_feedforward_layernorm",
    }
    return llama_tensors(config) | norm_tensors(config, norms)


GEMMA = Family("gemma", "GemmaForCausalLM", _read_gemma, llama_tensors)
GEMMA2 = Family("gemma2", "Gemma2ForCausalLM", _read_gemma2, _tensors_with_post_norms)
GEMMA3_TEXT = Family(
    "gemma3_text", "Gemma3ForCausalLM", _read_gemma3, _tensors_with_post_norms
)
