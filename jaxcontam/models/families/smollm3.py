"""SmolLM 3: a LLaMA, a quarter of whose layers do not rotate."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import Family, layer_windows, need, switch
from jaxcontam.models.families.llama import llama_tensors, read_llama


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    defaults = {
        "num_key_value_heads": 4,
        "rope_theta": 2e6,
        "tie_word_embeddings": True,
    }
    raw = {**defaults, **raw}
    config = read_llama(raw)
    rotated = _rotated_layers(raw, config.n_layers)
    windows = ()
    if switch(raw, "use_sliding_window", False):
        windows = layer_windows(raw, config.n_layers, lambda i: not rotated[i])
    return dataclasses.replace(config, rotated_layers=rotated, windows=windows)


def _rotated_layers(raw: Mapping[str, Any], n_layers: int) -> tuple[bool, ...]:
    """True for each layer that rotates, where `no_rope_layers` holds 1."""
    given = raw.get("no_rope_layers")
    if given is None:
        every = need(raw, "no_rope_layer_interval", 4)
        return tuple((i + 1) % every != 0 for i in range(n_layers))
    if not isinstance(given, list) or any(rotates not in (0, 1) for rotates in given):
        raise InputError(f"no_rope_layers must be a list of 0 and 1, got {given!r}")
    return tuple(map(bool, given[:n_layers]))


SMOLLM3 = Family("smollm3", "SmolLM3ForCausalLM", _read, llama_tensors)
