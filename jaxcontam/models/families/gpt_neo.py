"""GPT-Neo: windows in some layers, scores that nothing scales."""

from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    need,
    number,
    switch,
)
from jaxcontam.models.families.gpt2 import gpt2_tensors


def _read(raw: Mapping[str, Any]) -> DecoderConfig:
    D, H = need(raw, "hidden_size"), need(raw, "num_heads")
    n_layers = need(raw, "num_layers")
    return DecoderConfig(
        vocab_size=need(raw, "vocab_size"),
        d_model=D,
        n_layers=n_layers,
        n_heads=H,
        n_kv_heads=H,
        head_dim=D // H,
        d_ff=need(raw, "intermediate_size", 4 * D),
        context=need(raw, "max_position_embeddings"),
        positions="learned",
        norm="layer",
        norm_eps=number(raw, "layer_norm_epsilon", 1e-5),
        activation=activation(raw.get("activation_function", "gelu_new")),
        gated=False,
        qkv_bias=False,
        output_bias=True,
        mlp_bias=True,
        windows=_windows(raw, n_layers),
        attention_scale=1.0,
        tied=switch(raw, "tie_word_embeddings", True),
    )


def _windows(raw: Mapping[str, Any], n_layers: int) -> tuple[int | None, ...]:
    """Window of each layer, from groups of layer types and their repeats."""
    groups = raw.get("attention_types") or [[["global", "local"], 12]]
    try:
        # Counted before they are laid out.
        if (n := sum(len(group) * times for group, times in groups)) != n_layers:
            raise InputError(f"attention_types must name {n_layers} layers, got {n}")
        kinds = [
            kind for group, times in groups for _ in range(times) for kind in group
        ]
        unknown = sorted({*kinds} - {"global", "local"})
    except (TypeError, ValueError) as e:
        raise InputError(
            f"attention_types must be groups of types with repeats, got {groups!r}"
        ) from e
    if unknown:
        raise InputError(f"attention type {unknown[0]!r} is not supported")
    window = need(raw, "window_size", 256)
    windows = tuple(window if kind == "local" else None for kind in kinds)
    return windows if "local" in kinds else ()


def _tensors(config: DecoderConfig) -> dict[str, Tensor]:
    qkv = [f"attn.attention.{part}_proj" for part in "qkv"]
    return gpt2_tensors(config, qkv, "attn.attention.out_proj", transposed=True)


GPT_NEO = Family(
    "gpt_neo",
    "GPTNeoForCausalLM",
    _read,
    _tensors,
    prefix="transformer.",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)
