"""gpt-oss: experts with biases and a cut gate, windows, and attention sinks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxcontam.models.config import DecoderConfig, ExpertShape
from jaxcontam.models.families.family import (
    Conversion,
    Family,
    Tensor,
    layer_windows,
    need,
    number,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama
from jaxcontam.models.shapes import GateClip

_ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    defaults = {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "attention_bias": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
        "sliding_window": 128,
    }
    raw = {**defaults, **raw}
    if not (raw.get("rope_parameters") or raw.get("rope_scaling")):
        raw["rope_parameters"] = _ROPE
    config = read_llama(raw)
    # Newer files write num_local_experts.
    n = need(raw, "num_local_experts", need(raw, "num_experts", 128))
    return dataclasses.replace(
        config,
        mlp_bias=False,
        gate_clip=GateClip(
            limit=number(raw, "swiglu_limit", 7.0),
            slope=number(raw, "swiglu_alpha", 1.702),
        ),
        windows=layer_windows(raw, config.n_layers, lambda i: i % 2 == 0),
        attention_sinks=True,
        experts=ExpertShape(
            n=n,
            n_used=need(raw, "num_experts_per_tok", 4),
            # A softmax over the chosen is that over all, divided by their sum.
            normalised=True,
            biased=True,
        ),
    )


def _halves(mixed: np.ndarray, config: DecoderConfig) -> np.ndarray:
    """Gate and projection of each unit in turn -> all gates, all projections."""
    return np.concatenate([mixed[..., ::2], mixed[..., 1::2]], axis=-1)


def _in_turn(halves: np.ndarray, config: DecoderConfig) -> np.ndarray:
    """All gates, all projections -> gate and projection of each unit in turn."""
    gate, up = np.split(halves, 2, axis=-1)
    return np.stack([gate, up], axis=-1).reshape(halves.shape)


_UNITS = Conversion(to_ours=_halves, to_disk=_in_turn)


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    layer = "layers.{i}."
    experts = f"{layer}mlp.experts."
    return llama_tensors(config) | {
        "blocks.attention.sinks": Tensor((f"{layer}self_attn.sinks",)),
        "blocks.mlp.router.kernel": Tensor(
            (f"{layer}mlp.router.weight",), transposed=True
        ),
        "blocks.mlp.router.bias": Tensor((f"{layer}mlp.router.bias",)),
        "blocks.mlp.up.kernel": Tensor((f"{experts}gate_up_proj",), conversion=_UNITS),
        "blocks.mlp.up.bias": Tensor(
            (f"{experts}gate_up_proj_bias",), conversion=_UNITS
        ),
        "blocks.mlp.down.kernel": Tensor((f"{experts}down_proj",)),
        "blocks.mlp.down.bias": Tensor((f"{experts}down_proj_bias",)),
    }


GPT_OSS = Family("gpt_oss", "GptOssForCausalLM", _read, _tensors)
