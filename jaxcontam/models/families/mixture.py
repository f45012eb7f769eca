"""Mixtures of experts: Mixtral, OLMoE, Qwen 2 and 3 with experts, and gpt-oss.

The last has experts with biases and a cut gate, windows, and attention sinks.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, ExpertShape, GateClip
from jaxcontam.models.families.family import (
    Conversion,
    Family,
    Tensor,
    layer_windows,
    linear_tensors,
    need,
    number,
    number_or_none,
    switch,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama

_ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}


def _read_mixtral(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6, **raw}
    config = read_llama(raw)
    return dataclasses.replace(
        config,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        windows=layer_windows(raw, config.n_layers, lambda _: True),
        experts=ExpertShape(
            # Newer files write num_experts.
            n=need(raw, "num_local_experts", need(raw, "num_experts", 8)),
            n_used=need(raw, "num_experts_per_tok", 2),
            normalised=True,
        ),
    )


def _read_olmoe(raw: Mapping[str, Any]) -> DecoderConfig:
    config = read_llama({"rms_norm_eps": 1e-5, **raw})
    return dataclasses.replace(
        config,
        query_key_norm="whole",
        qkv_clip=number_or_none(raw, "clip_qkv"),
        mlp_bias=False,
        experts=ExpertShape(
            n=need(raw, "num_experts", 64),
            n_used=need(raw, "num_experts_per_tok", 8),
            normalised=switch(raw, "norm_topk_prob", False),
        ),
    )


def _read_qwen2_moe(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 16, **raw}
    config = _read_qwen(raw, n_experts=60, n_used=4, width=1408)
    assert config.experts is not None
    # Zero is valid, too: then no layer has a window.
    last = (
        0 if raw.get("max_window_layers") == 0 else need(raw, "max_window_layers", 28)
    )
    return dataclasses.replace(
        config,
        qkv_bias=switch(raw, "qkv_bias", True),
        output_bias=False,
        windows=_windows(raw, config, lambda i: i % 2 == 0 and i < last),
        experts=dataclasses.replace(
            config.experts, d_shared=need(raw, "shared_expert_intermediate_size", 5632)
        ),
    )


def _read_qwen3_moe(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 4, **raw}
    config = _read_qwen(raw, n_experts=128, n_used=8, width=768)
    return dataclasses.replace(
        config, query_key_norm="head", windows=_windows(raw, config, lambda _: True)
    )


def _read_qwen(
    raw: Mapping[str, Any], *, n_experts: int, n_used: int, width: int
) -> DecoderConfig:
    """Fields that the two share; the arguments are the family's defaults."""
    if raw.get("decoder_sparse_step", 1) != 1 or raw.get("mlp_only_layers"):
        raise InputError("dense layers among expert layers are not supported")
    # Newer files write num_local_experts.
    n = need(raw, "num_experts", need(raw, "num_local_experts", n_experts))
    return dataclasses.replace(
        read_llama(raw),
        d_ff=need(raw, "moe_intermediate_size", width),
        mlp_bias=False,
        experts=ExpertShape(
            n=n,
            n_used=need(raw, "num_experts_per_tok", n_used),
            normalised=switch(raw, "norm_topk_prob", False),
        ),
    )


def _windows(
    raw: Mapping[str, Any], config: DecoderConfig, is_sliding: Callable[[int], bool]
) -> tuple[int | None, ...]:
    if not switch(raw, "use_sliding_window", False):
        return ()
    raw = {"sliding_window": 4096, **raw}
    return layer_windows(raw, config.n_layers, is_sliding)


def _tensors_mixtral(config: DecoderConfig) -> dict[str, Tensor]:
    experts = "block_sparse_moe.experts.{x}"
    linears = {
        "mlp.router": ["block_sparse_moe.gate"],
        "mlp.up": [f"{experts}.w1", f"{experts}.w3"],
        "mlp.down": [f"{experts}.w2"],
    }
    return llama_tensors(config) | linear_tensors(config, "layers.{i}.", linears)


def qwen_tensors(config: DecoderConfig) -> dict[str, Tensor]:
    """Tensor names of Qwen, dense where it has no experts."""
    if config.experts is None:
        return llama_tensors(config)
    experts, shared = "mlp.experts.{x}", "mlp.shared_expert"
    linears = {
        "mlp.router": ["mlp.gate"],
        "mlp.up": [f"{experts}.gate_proj", f"{experts}.up_proj"],
        "mlp.down": [f"{experts}.down_proj"],
    }
    if config.experts.d_shared:
        linears |= {
            "mlp.shared.up": [f"{shared}.gate_proj", f"{shared}.up_proj"],
            "mlp.shared.down": [f"{shared}.down_proj"],
            "mlp.shared_gate": ["mlp.shared_expert_gate"],
        }
    return llama_tensors(config) | linear_tensors(config, "layers.{i}.", linears)


MIXTRAL = Family("mixtral", "MixtralForCausalLM", _read_mixtral, _tensors_mixtral)
OLMOE = Family("olmoe", "OlmoeForCausalLM", _read_olmoe, qwen_tensors)
QWEN2_MOE = Family("qwen2_moe", "Qwen2MoeForCausalLM", _read_qwen2_moe, qwen_tensors)
QWEN3_MOE = Family("qwen3_moe", "Qwen3MoeForCausalLM", _read_qwen3_moe, qwen_tensors)


def _read_gpt_oss(raw: Mapping[str, Any]) -> DecoderConfig:
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


def _tensors_gpt_oss(config: DecoderConfig) -> dict[str, Tensor]:
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


GPT_OSS = Family("gpt_oss", "GptOssForCausalLM", _read_gpt_oss, _tensors_gpt_oss)

FAMILIES = (MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE, GPT_OSS)
