"""Granite: a LLaMA with factors of embeddings, scores, residuals and logits."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import Family, number
from jaxcontam.models.families.llama import llama_tensors, read_llama


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama(raw),
        embedding_scale=number(raw, "embedding_multiplier", 1.0),
        attention_scale=number(raw, "attention_multiplier", 1.0),
        residual_scale=number(raw, "residual_multiplier", 1.0),
        logit_scale=1.0 / number(raw, "logits_scaling", 1.0),
    )


GRANITE = Family("granite", "GraniteForCausalLM", _read, llama_tensors)
