"""LLaMA, and the families that differ from it in a few switches.

Granite has factors of embeddings, scores, residuals and logits; a quarter of SmolLM 3's
layers do not rotate. OLMo 1 has norms without weights. OLMo 2 has norms after attention
and feed-forward alone, and of queries and keys; OLMo 3 adds windows, in whose layers
rotations are not scaled. Phi runs attention and feed-forward side by side; Phi-3 scales
rotations for long texts.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    block_tensors,
    layer_windows,
    linear_tensors,
    need,
    norm_tensors,
    number,
    number_or_none,
    rope_fields,
    rope_kind,
    rope_scaling,
    switch,
    two_ropes,
    with_first_context,
)


def read_llama(
    raw: Mapping[str, Any], *, rotary_dim: int | None = None
) -> DecoderConfig:
    """The shape of a LLaMA, and the start of its relatives' shapes."""
    D, H = need(raw, "hidden_size"), need(raw, "num_attention_heads")
    rope = rope_fields(raw)
    has_bias = switch(raw, "attention_bias", False)
    config = DecoderConfig(
        vocab_size=need(raw, "vocab_size"),
        d_model=D,
        n_layers=need(raw, "num_hidden_layers"),
        n_heads=H,
        n_kv_heads=need(raw, "num_key_value_heads", H),
        head_dim=need(raw, "head_dim", D // H),
        d_ff=need(raw, "intermediate_size"),
        context=need(raw, "max_position_embeddings"),
        positions="rotary",
        rope_theta=number(rope, "rope_theta"),
        rope_scaling=rope_scaling(raw, rope),
        rotary_dim=rotary_dim,
        norm="rms",
        norm_eps=number(raw, "rms_norm_eps", 1e-6),
        activation=activation(raw.get("hidden_act", "silu")),
        gated=True,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=switch(raw, "mlp_bias", False),
        tied=switch(raw, "tie_word_embeddings", False),
    )
    return with_first_context(config)


def _read_mistral(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"num_key_value_heads": 8, "sliding_window": 4096, **raw}
    config = read_llama(raw)
    windows = layer_windows(raw, config.n_layers, lambda _: True)
    return dataclasses.replace(config, windows=windows)


def _read_qwen2(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 32, **raw}
    return dataclasses.replace(
        read_llama(raw), qkv_bias=True, output_bias=False, windows=_qwen_windows(raw)
    )


def _read_qwen3(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama({"head_dim": 128, "num_key_value_heads": 32, **raw}),
        query_key_norm="head",
        windows=_qwen_windows(raw),
    )


def _qwen_windows(raw: Mapping[str, Any]) -> tuple[int | None, ...]:
    if not switch(raw, "use_sliding_window", False):
        return ()
    raw = {"sliding_window": 4096, "max_window_layers": 28, **raw}
    # Zero is valid, too: then all layers have a window.
    name = "max_window_layers"
    first = 0 if raw[name] == 0 else need(raw, name, 28)
    return layer_windows(raw, need(raw, "num_hidden_layers"), lambda i: i >= first)


def _write_llama(config: DecoderConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.d_ff,
        "max_position_embeddings": config.context,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "gelu_pytorch_tanh"
        if config.activation == "gelu_tanh"
        else config.activation,
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied,
    }


def llama_tensors(config: DecoderConfig) -> dict[str, Tensor]:
    """Tensor names that LLaMA and its relatives share."""
    norms = {
        "blocks.attention_norm": "layers.{i}.input_layernorm",
        "blocks.mlp_norm": "layers.{i}.post_attention_layernorm",
        "final_norm": "norm",
    }
    if config.query_key_norm:
        norms["blocks.attention.query_norm"] = "layers.{i}.self_attn.q_norm"
        norms["blocks.attention.key_norm"] = "layers.{i}.self_attn.k_norm"
    linears = {
        "attention.qkv": [f"self_attn.{part}_proj" for part in "qkv"],
        "attention.out": ["self_attn.o_proj"],
        "mlp.up": ["mlp.gate_proj", "mlp.up_proj"],
        "mlp.down": ["mlp.down_proj"],
    }
    return block_tensors(config, "embed_tokens", "layers.{i}.", linears, norms)


LLAMA = Family(
    "llama", "LlamaForCausalLM", read_llama, llama_tensors, write_config=_write_llama
)
MISTRAL = Family("mistral", "MistralForCausalLM", _read_mistral, llama_tensors)
QWEN2 = Family("qwen2", "Qwen2ForCausalLM", _read_qwen2, llama_tensors)
QWEN3 = Family("qwen3", "Qwen3ForCausalLM", _read_qwen3, llama_tensors)


def _read_granite(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama(raw),
        embedding_scale=number(raw, "embedding_multiplier", 1.0),
        attention_scale=number(raw, "attention_multiplier", 1.0),
        residual_scale=number(raw, "residual_multiplier", 1.0),
        logit_scale=1.0 / number(raw, "logits_scaling", 1.0),
    )


GRANITE = Family("granite", "GraniteForCausalLM", _read_granite, llama_tensors)


def _read_smollm3(raw: Mapping[str, Any]) -> DecoderConfig:
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


SMOLLM3 = Family("smollm3", "SmolLM3ForCausalLM", _read_smollm3, llama_tensors)


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
        config, query_key_norm="whole", pre_norms=False, post_norms=True, mlp_bias=False
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


def _read_phi(raw: Mapping[str, Any]) -> DecoderConfig:
    return dataclasses.replace(
        read_llama(raw, rotary_dim=rotary_dim(raw, rope_fields(raw), default=0.5)),
        norm="layer",
        norm_eps=number(raw, "layer_norm_eps", 1e-5),
        query_key_norm="head" if switch(raw, "qk_layernorm", False) else None,
        parallel=True,
        shared_norm=True,
        activation=activation(raw.get("hidden_act", "gelu_new")),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
    )


def rotary_dim(
    raw: Mapping[str, Any], rope: Mapping[str, Any], *, default: float
) -> int:
    """Rotated dimensions of a head; the argument is the family's default share."""
    width = need(raw, "hidden_size") // need(raw, "num_attention_heads")
    flat = number(raw, "partial_rotary_factor", default)
    part = number(rope, "partial_rotary_factor", flat)
    return int(need(raw, "head_dim", width) * part)


def _tensors_phi(config: DecoderConfig) -> dict[str, Tensor]:
    linears = {
        "attention.qkv": [f"self_attn.{part}_proj" for part in "qkv"],
        "attention.out": ["self_attn.dense"],
        "mlp.up": ["mlp.fc1"],
        "mlp.down": ["mlp.fc2"],
    }
    norms = {
        "blocks.attention_norm": "layers.{i}.input_layernorm",
        "final_norm": "final_layernorm",
    }
    if config.query_key_norm is not None:
        norms["blocks.attention.query_norm"] = "layers.{i}.self_attn.q_layernorm"
        norms["blocks.attention.key_norm"] = "layers.{i}.self_attn.k_layernorm"
    return block_tensors(config, "embed_tokens", "layers.{i}.", linears, norms)


def _read_phi3(raw: Mapping[str, Any]) -> DecoderConfig:
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"rms_norm_eps": 1e-5, **raw}
    rope = dict(rope_fields(raw))
    # In this family alone an older name of the same.
    if rope_kind(rope) == "yarn":
        rope["rope_type"] = "longrope"
    first = rope.get("original_max_position_embeddings", 4096)
    raw = {"original_max_position_embeddings": first, **raw, "rope_parameters": rope}
    config = read_llama(raw, rotary_dim=rotary_dim(raw, rope, default=1.0))
    return dataclasses.replace(
        config,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        windows=layer_windows(raw, config.n_layers, lambda _: True),
    )


def _tensors_phi3(config: DecoderConfig) -> dict[str, Tensor]:
    # Query, key and value, and gate and up, are joined on disk in our order.
    joined = {"attention.qkv": ["self_attn.qkv_proj"], "mlp.up": ["mlp.gate_up_proj"]}
    return llama_tensors(config) | linear_tensors(config, "layers.{i}.", joined)


PHI = Family("phi", "PhiForCausalLM", _read_phi, _tensors_phi)
PHI3 = Family("phi3", "Phi3ForCausalLM", _read_phi3, _tensors_phi3)

FAMILIES = (LLAMA, MISTRAL, QWEN2, QWEN3, GRANITE, SMOLLM3)
FAMILIES += (OLMO, OLMO2, OLMO3, PHI, PHI3)
