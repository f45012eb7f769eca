"""OLMo 2: norms after attention and feed-forward alone, and of queries and keys."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    norm_tensors,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    config = read_llama({"rms_norm_eps": 1e-5, **raw})
    return dataclasses.replace(
        config,
        query_key_norm="whole",
        pre_norms=False,
        post_norms=True,
        mlp_bias=False,
    )


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    tensors = llama_tensors(config)
    del tensors["blocks.attention_norm.scale"], tensors["blocks.mlp_norm.scale"]
    norms = {
        "blocks.attention_post_norm": "layers.{i}.post_attention_layernorm",
        "blocks.mlp_post_norm": "layers.{i}.post_feedforward_layernorm",
    }
    return tensors | norm_tensors(config, norms)


OLMO2 = Family(
    model_type="olmo2",
    architecture="Olmo2ForCausalLM",
    read_config=_read,
    tensors=_tensors,
)
