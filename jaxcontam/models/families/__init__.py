"""Model families as data: config mapping and tensor names of each `model_type`.

A family maps its config.json to a `DecoderConfig`, and our weights to names on disk;
both ways, so that a model that is read can be written. Names carry `{i}` for
the layer and `{x}` for the expert. Several names in one row are joined along our
output axis (query, key and value; gate and up).
"""

from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.families import (
    deepseek,
    gemma,
    gpt,
    llama,
    mixture,
    qwen3_5,
)
from jaxcontam.models.families.family import Conversion, Family, Tensor

__all__ = ["FAMILIES", "Conversion", "Family", "Tensor", "family_of", "text_fields"]

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for module in (gpt, llama, gemma, mixture, deepseek, qwen3_5)
    for family in module.FAMILIES
}

# What an image model's config.json says outside of its text model's fields.
_OF_BOTH = ("bos_token_id", "eos_token_id", "pad_token_id", "quantization_config")
_OF_BOTH += ("tie_word_embeddings",)


def text_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """A config.json, or where it is an image model's, that of its text model."""
    inner, model_type = raw.get("text_config"), raw.get("model_type")
    is_ours = isinstance(model_type, str) and model_type in FAMILIES
    if is_ours or not isinstance(inner, dict):
        return raw
    outer = {name: raw[name] for name in _OF_BOTH if name in raw}
    return outer | {name: x for name, x in inner.items() if x is not None}


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{where}: no model_type (found {model_type!r})")
    if model_type not in FAMILIES:
        error = unknown_name("model_type", model_type, FAMILIES)
        hint = f"{error.hint}; serve another (api:URL#NAME)"
        raise InputError(f"{where}: {error}", hint=hint)
    return FAMILIES[model_type]
