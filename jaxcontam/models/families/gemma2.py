"""Gemma 2: soft caps, a window in every second layer, norms before and after."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    layer_windows,
    number,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {
        "tie_word_embeddings": True,
        "head_dim": 256,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        **raw,
    }
    name = raw.get("hidden_activation") or "gelu_pytorch_tanh"
    config = read_llama({**raw, "hidden_act": name})
    return dataclasses.replace(
        config,
        post_norms=True,
        activation=activation(name),
        windows=layer_windows(raw, config.n_layers, lambda i: i % 2 == 0),
        attention_scale=number(raw, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(raw, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(raw, "final_logit_softcapping", 30.0),
        embedding_scale=float(config.d_model) ** 0.5,
        # Files hold how far a scale is from 1.
        norm_offset=1.0,
    )


def _cap(raw: Mapping[str, Any], field: str, default: float) -> float | None:
    """A cap; null is none, and a missing field is the default."""
    return None if raw.get(field, default) is None else number(raw, field, default)


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    tensors = llama_tensors(config)
    for ours, theirs in {
        "attention_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    }.items():
        tensors[f"blocks.{ours}.scale"] = Tensor((f"layers.{{i}}.{theirs}.weight",))
    return tensors


GEMMA2 = Family(
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    read_config=_read,
    tensors=_tensors,
    prefix="model.",
)
