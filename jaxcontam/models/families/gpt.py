"""GPT-2 and its relatives, most with learned positions and layer norms.

GPT-Neo has windows in some layers, and scores that nothing scales. GPT-J has parallel
blocks behind one norm, rotated neighbours and a head with a bias; GPT-NeoX and Pythia
rotate a part of each head. OPT's positions start at row 2.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Conversion,
    Family,
    Tensor,
    activation,
    block_tensors,
    linear_tensors,
    need,
    norm_tensors,
    number,
    refuse,
    rope_fields,
    switch,
)
from jaxcontam.models.families.llama import read_llama

# Fields of width, heads, layers, inner width and context.
_CONTEXT = "max_position_embeddings"
_NAMES = ("n_embd", "n_head", "n_layer", "n_inner", "n_positions")


def _read_gpt2(raw: Mapping[str, Any]) -> DecoderConfig:
    refuse(
        raw,
        scale_attn_by_inverse_layer_idx=True,
        reorder_and_upcast_attn=True,
        scale_attn_weights=False,
    )
    return _read(raw, _NAMES)


def _read(
    raw: Mapping[str, Any], names: Sequence[str], *, tied: bool = True
) -> DecoderConfig:
    """A GPT-2 whose width, heads, layers, inner width and context have these names."""
    width, heads, layers, inner, context = names
    D, H = need(raw, width), need(raw, heads)
    return DecoderConfig(
        vocab_size=need(raw, "vocab_size"),
        d_model=D,
        n_layers=need(raw, layers),
        n_heads=H,
        n_kv_heads=H,
        head_dim=D // H,
        d_ff=need(raw, inner, 4 * D),
        context=need(raw, context),
        positions="learned",
        norm="layer",
        norm_eps=number(raw, "layer_norm_epsilon", 1e-5),
        activation=activation(raw.get("activation_function", "gelu_new")),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=switch(raw, "tie_word_embeddings", tied),
    )


def _write_gpt2(config: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_layer": config.n_layers,
        "n_head": config.n_heads,
        "n_inner": config.d_ff,
        "n_positions": config.context,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": {"gelu_tanh": "gelu_new"}.get(
            config.activation, config.activation
        ),
        "tie_word_embeddings": config.tied,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def _tensors_gpt2(
    config: DecoderConfig,
    qkv: Sequence[str] = ("attn.c_attn",),
    out: str = "attn.c_proj",
    *,
    # GPT-2 keeps its kernels as [inputs, outputs], like ours.
    transposed: bool = False,
) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": qkv,
        "attention.out": [out],
        "mlp.up": ["mlp.c_fc"],
        "mlp.down": ["mlp.c_proj"],
    }
    norms = {
        "blocks.attention_norm": "h.{i}.ln_1",
        "blocks.mlp_norm": "h.{i}.ln_2",
        "final_norm": "ln_f",
    }
    return {
        "embedding": Tensor(("wte.weight",)),
        "position_embedding": Tensor(("wpe.weight",)),
        **linear_tensors(config, "h.{i}.", linears, transposed=transposed),
        **norm_tensors(config, norms),
    }


GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    _read_gpt2,
    _tensors_gpt2,
    write_config=_write_gpt2,
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)


def _read_gpt_neo(raw: Mapping[str, Any]) -> DecoderConfig:
    names = ("hidden_size", "num_heads", "num_layers", "intermediate_size", _CONTEXT)
    config = _read(raw, names)
    return dataclasses.replace(
        config,
        qkv_bias=False,
        windows=_windows_gpt_neo(raw, config.n_layers),
        attention_scale=1.0,
    )


def _windows_gpt_neo(raw: Mapping[str, Any], n_layers: int) -> tuple[int | None, ...]:
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


def _tensors_gpt_neo(config: DecoderConfig) -> dict[str, Tensor]:
    qkv = [f"attn.attention.{part}_proj" for part in "qkv"]
    return _tensors_gpt2(config, qkv, "attn.attention.out_proj", transposed=True)


GPT_NEO = Family(
    "gpt_neo",
    "GPTNeoForCausalLM",
    _read_gpt_neo,
    _tensors_gpt_neo,
    prefix="transformer.",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)


def _read_gptj(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        _read(raw, _NAMES, tied=False),
        positions="rotary",
        # Missing, it is the family's 64; null would rotate more than there is.
        rotary_dim=need({"rotary_dim": 64, **raw}, "rotary_dim"),
        rotary_pairs="neighbours",
        parallel=True,
        shared_norm=True,
        qkv_bias=False,
        output_bias=False,
        head_bias=True,
    )


def _tensors_gptj(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"attn.{part}_proj" for part in "qkv"],
        "attention.out": ["attn.out_proj"],
        "mlp.up": ["mlp.fc_in"],
        "mlp.down": ["mlp.fc_out"],
    }
    norms = {"blocks.attention_norm": "h.{i}.ln_1", "final_norm": "ln_f"}
    return block_tensors(config, "wte", "h.{i}.", linears, norms)


GPTJ = Family(
    "gptj",
    "GPTJForCausalLM",
    _read_gptj,
    _tensors_gptj,
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),
)


def _read_gpt_neox(raw: Mapping[str, Any]) -> DecoderConfig:
    # Older files have names of their own for the rotary settings.
    old = {"rope_theta": raw.get("rotary_emb_base") or raw.get("rope_theta")}
    rope = rope_fields({**raw, **old})
    part = number(rope, "partial_rotary_factor", number(raw, "rotary_pct", 0.25))
    has_bias = switch(raw, "attention_bias", True)
    width = need(raw, "hidden_size") // need(raw, "num_attention_heads")
    heads = {"num_key_value_heads": None, "head_dim": None, "rope_parameters": rope}
    config = read_llama({**raw, **heads}, rotary_dim=int(width * part))
    return dataclasses.replace(
        config,
        norm="layer",
        norm_eps=number(raw, "layer_norm_eps", 1e-5),
        parallel=switch(raw, "use_parallel_residual", True),
        activation=activation(raw.get("hidden_act", "gelu")),
        gated=False,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=True,
    )


def _tensors_gpt_neox(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": ["attention.query_key_value"],
        "attention.out": ["attention.dense"],
        "mlp.up": ["mlp.dense_h_to_4h"],
        "mlp.down": ["mlp.dense_4h_to_h"],
    }
    norms = {
        "blocks.attention_norm": "layers.{i}.input_layernorm",
        "blocks.mlp_norm": "layers.{i}.post_attention_layernorm",
        "final_norm": "final_layer_norm",
    }
    tensors = block_tensors(config, "embed_in", "layers.{i}.", linears, norms)
    for name in tensors:
        if name.startswith("blocks.attention.qkv."):
            tensors[name] = dataclasses.replace(tensors[name], conversion=_HEADS)
    return tensors


def _heads(fused: np.ndarray, config: DecoderConfig, *, to_disk: bool) -> np.ndarray:
    """Query, key, value of each head in turn <-> all queries, all keys, all values."""
    outer, H, E = fused.shape[:-1], config.n_heads, config.head_dim
    parts = fused.reshape(*outer, *((3, H) if to_disk else (H, 3)), E)
    return np.swapaxes(parts, -2, -3).reshape(*outer, 3 * H * E)


_HEADS = Conversion(
    to_ours=functools.partial(_heads, to_disk=False),
    to_disk=functools.partial(_heads, to_disk=True),
)


GPT_NEOX = Family(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    _read_gpt_neox,
    _tensors_gpt_neox,
    head="embed_out.weight",
    prefix="gpt_neox.",
    ignored=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
)


def _read_opt(raw: Mapping[str, Any]) -> DecoderConfig:
    refuse(
        raw,
        do_layer_norm_before=False,
        layer_norm_elementwise_affine=False,
        _remove_final_layer_norm=True,
    )
    if raw.get("word_embed_proj_dim") not in (None, need(raw, "hidden_size")):
        raise InputError("word_embed_proj_dim other than hidden_size is not supported")
    has_bias = switch(raw, "enable_bias", True)
    sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers", "ffn_dim")
    return dataclasses.replace(
        _read({"activation_function": "relu", **raw}, (*sizes, _CONTEXT)),
        d_ff=need(raw, "ffn_dim"),
        norm_eps=1e-5,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=has_bias,
    )


def _tensors_opt(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"self_attn.{part}_proj" for part in "qkv"],
        "attention.out": ["self_attn.out_proj"],
        "mlp.up": ["fc1"],
        "mlp.down": ["fc2"],
    }
    norms = {
        "blocks.attention_norm": "decoder.layers.{i}.self_attn_layer_norm",
        "blocks.mlp_norm": "decoder.layers.{i}.final_layer_norm",
        "final_norm": "decoder.final_layer_norm",
    }
    embedding, layer = "decoder.embed_tokens", "decoder.layers.{i}."
    # transformers numbers a text's tokens from 2 and gives row 1 to padding.
    positions = Tensor(("decoder.embed_positions.weight",), skipped_rows=2)
    tensors = block_tensors(config, embedding, layer, linears, norms)
    return tensors | {"position_embedding": positions}


OPT = Family("opt", "OPTForCausalLM", _read_opt, _tensors_opt)

FAMILIES = (GPT2, GPT_NEO, GPTJ, GPT_NEOX, OPT)
