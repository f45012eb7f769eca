"""OLMo 1 to 3.

OLMo 1 has norms without weights. OLMo 2 has norms after attention and feed-forward
alone, and of queries and keys; OLMo 3 adds windows, in whose layers rotations are not
scaled.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    layer_windows,
    norm_tensors,
    number,
    number_or_none,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama
from jaxcontam.models.families.rope_settings import two_ropes


def _read_olmo(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama(raw),
        norm="layer",
        norm_eps=1e-5,
        norm_weights=False,
        qkv_clip=number_or_none(raw, "clip_qkv"),
        mlp_bias=False,
    )


def _read_olmo2(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    config = read_llama({"rms_norm_eps": 1e-5, **raw})
    return dataclasses.replace(
        config,
        query_key_norm="whole",
        pre_norms=False,
        post_norms=True,
        mlp_bias=False,
    )


def _read_olmo3(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"sliding_window": 4096, "rope_theta": 5e5, **raw}
    everywhere, local = two_ropes(raw, theta=5e5, local_theta=number(raw, "rope_theta"))
    config = _read_olmo2({**raw, "rope_scaling": None, "rope_parameters": everywhere})
    windows = layer_windows(raw, config.n_layers, lambda i: (i + 1) % 4 != 0)
    local_theta = number(local, "rope_theta")
    is_one = local_theta == config.rope_theta and config.rope_scaling is None
    return dataclasses.replace(
        config,
        windows=windows,
        local_rope_theta=None if is_one or not windows else local_theta,
    )


def _tensors_olmo2(config: DecoderConfig) -> dict[str, Tensor]:
    tensors = llama_tensors(config)
    del tensors["blocks.attention_norm.scale"], tensors["blocks.mlp_norm.scale"]
    norms = {
        "blocks.attention_post_norm": "layers.{i}.post_attention_layernorm",
        "blocks.mlp_post_norm": "layers.{i}.post_feedforward_layernorm",
    }
    return tensors | norm_tensors(config, norms)


OLMO = Family("olmo", "OlmoForCausalLM", _read_olmo, llama_tensors)
OLMO2 = Family("olmo2", "Olmo2ForCausalLM", _read_olmo2, _tensors_olmo2)
OLMO3 = Family("olmo3", "Olmo3ForCausalLM", _read_olmo3, _tensors_olmo2)
