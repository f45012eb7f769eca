"""Gemma, and the text models of Gemma 3 and 4.

Scales of norms are kept as their distance from 1, and embeddings are scaled. Gemma 2
adds soft caps, a window in every second layer and norms after; Gemma 3 has norms of
queries and keys instead of caps, and lower rotary frequencies where there is no window.
In Gemma 4 layers with a window have heads of another width, the last layers may reuse
keys and values, and layers may have an input of their own beside the stream.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig, LocalShape, RopeScaling
from jaxcontam.models.families.family import (
    Family,
    Tensor,
    activation,
    layer_windows,
    need,
    norm_tensors,
    number,
    number_or_none,
    refuse,
    rope_kind,
    switch,
    two_ropes,
)
from jaxcontam.models.families.llama import llama_tensors, read_llama
from jaxcontam.models.stacks import REUSED, layer_stacks, stack_config

_DEFAULTS = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 512,
    "tie_word_embeddings": True,
}
_ROPES = {
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e6,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}


def _read_gemma(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 16, **raw}
    name = raw.get("hidden_act") or "gelu_pytorch_tanh"
    # The first files say gelu, but the models were trained with its tanh form.
    return _read(raw, "gelu_pytorch_tanh" if name == "gelu" else name)


def _read(raw: Mapping[str, Any], activation_name: str) -> DecoderConfig:
    """Fields that the three share."""
    refuse(raw, use_bidirectional_attention=True)
    # What a file leaves out is the family's default, not LLaMA's.
    raw = {"tie_word_embeddings": True, "head_dim": 256, **raw}
    config = read_llama({**raw, "hidden_act": activation_name})
    return dataclasses.replace(
        config,
        activation=activation(activation_name),
        mlp_bias=False,
        embedding_scale=float(config.d_model) ** 0.5,
        # Files hold how far a scale is from 1.
        norm_offset=1.0,
    )


def _read_gemma2(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 4, "sliding_window": 4096, **raw}
    config = _read(raw, raw.get("hidden_activation") or "gelu_pytorch_tanh")
    return dataclasses.replace(
        config,
        post_norms=True,
        windows=layer_windows(raw, config.n_layers, lambda i: i % 2 == 0),
        attention_scale=number(raw, "query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=_cap(raw, "attn_logit_softcapping", 50.0),
        logit_softcap=_cap(raw, "final_logit_softcapping", 30.0),
    )


def _read_gemma3(raw: Mapping[str, Any]) -> DecoderConfig:
    raw = {"num_key_value_heads": 4, "sliding_window": 4096, **raw}
    if raw.get("attn_logit_softcapping") is not None:
        raise InputError("attn_logit_softcapping is not supported")
    everywhere, local = two_ropes(
        raw, theta=1e6, local_theta=number(raw, "rope_local_base_freq", 1e4)
    )
    config = _read(
        {**raw, "rope_scaling": None, "rope_parameters": everywhere},
        raw.get("hidden_activation") or "gelu_pytorch_tanh",
    )
    every = need(raw, "sliding_window_pattern", 6)
    if raw["sliding_window"] is None and not raw.get("layer_types"):
        raise InputError("sliding_window must be a number of tokens, got null")
    windows = layer_windows(raw, config.n_layers, lambda i: (i + 1) % every != 0)
    return dataclasses.replace(
        config,
        query_key_norm="head",
        post_norms=True,
        windows=windows,
        local_rope_theta=number(local, "rope_theta") if windows else None,
        attention_scale=number(raw, "query_pre_attn_scalar", 256) ** -0.5,
        logit_softcap=_cap(raw, "final_logit_softcapping", None),
    )


def _cap(raw: Mapping[str, Any], field: str, default: float | None) -> float | None:
    """A cap; null is none, and a missing field is the default."""
    return None if raw.get(field, default) is None else number(raw, field, default)


def _tensors_with_post_norms(config: DecoderConfig) -> dict[str, Tensor]:
    norms = {
        "blocks.attention_post_norm": "layers.{i}.post_attention_layernorm",
        "blocks.mlp_norm": "layers.{i}.pre_feedforward_layernorm",
        "blocks.mlp_post_norm": "layers.{i}.post_feedforward_layernorm",
    }
    return llama_tensors(config) | norm_tensors(config, norms)


GEMMA = Family("gemma", "GemmaForCausalLM", _read_gemma, llama_tensors)
GEMMA2 = Family("gemma2", "Gemma2ForCausalLM", _read_gemma2, _tensors_with_post_norms)
GEMMA3_TEXT = Family(
    "gemma3_text", "Gemma3ForCausalLM", _read_gemma3, _tensors_with_post_norms
)


def _read_gemma4(raw: Mapping[str, Any]) -> DecoderConfig:
    refuse(
        raw,
        attention_bias=True,
        enable_moe_block=True,
        use_bidirectional_attention="all",
    )
    raw = {**_DEFAULTS, **raw}
    ropes = raw.get("rope_parameters") or _ROPES
    everywhere, local_rope = (ropes.get(kind) or {} for kind in _ROPES)
    if (kind := rope_kind(local_rope)) != "default":
        raise InputError(f"rope_type {kind!r} in layers with a window is not supported")
    name = raw.get("hidden_activation") or "gelu_pytorch_tanh"
    plain = {"rope_parameters": {"rope_theta": number(everywhere, "rope_theta", 1e6)}}
    config = read_llama({**raw, **plain, "hidden_act": name})
    last = config.n_layers - 1
    windows = layer_windows(
        raw, config.n_layers, lambda i: (i + 1) % 6 != 0 and i != last
    )
    if not windows or windows[-1] is not None:
        raise InputError("layer_types must name sliding layers and end with a full one")
    vocab = need(raw, "vocab_size_per_layer_input", 262_144)
    d_input = _size(raw, "hidden_size_per_layer_input", 256)
    if d_input and vocab != config.vocab_size:
        raise InputError(
            f"vocab_size_per_layer_input must be {config.vocab_size}, got {vocab}"
        )
    n_kv_heads, head_dim = _global_heads(raw, windows)
    is_wide = switch(raw, "use_double_wide_mlp", False)
    n_reusing = _size(raw, "num_kv_shared_layers", 0)
    return dataclasses.replace(
        config,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        rope_scaling=_scaling(everywhere, head_dim, config.context),
        activation=activation(name),
        mlp_bias=False,
        embedding_scale=float(config.d_model) ** 0.5,
        query_key_norm="head",
        post_norms=True,
        windows=windows,
        local=LocalShape(n_kv_heads=config.n_kv_heads, head_dim=config.head_dim),
        local_rope_theta=number(local_rope, "rope_theta", 1e4),
        value_norm=True,
        values_are_keys=switch(raw, "attention_k_eq_v", False),
        n_reusing=n_reusing,
        d_reusing=config.d_ff * (2 if is_wide else 1) if n_reusing else 0,
        d_layer_input=d_input,
        layer_scaled=True,
        attention_scale=1.0,
        logit_softcap=number_or_none(raw, "final_logit_softcapping"),
    )


def _size(raw: Mapping[str, Any], field: str, default: int) -> int:
    """A field that may be 0."""
    return 0 if raw.get(field, default) in (0, None) else need(raw, field, default)


def _global_heads(
    raw: Mapping[str, Any], windows: Sequence[int | None]
) -> tuple[int, int]:
    """Key heads of layers without a window, and the width of their heads."""
    layers = raw.get("per_layer_config")
    if layers is None:
        fields = {"head_dim": raw.get("global_head_dim", 512)}
        if switch(raw, "attention_k_eq_v", False):
            fields["num_key_value_heads"] = raw.get("num_global_key_value_heads")
    else:
        wanted = {str(i) for i, size in enumerate(windows) if size is None}
        if {str(i) for i in layers} != wanted:
            raise InputError("per_layer_config must name the layers without a window")
        fields, *others = layers.values()
        if any(other != fields for other in others):
            raise InputError("per_layer_config must be the same in all layers")
    known = {"head_dim", "num_key_value_heads"}
    if unknown := fields.keys() - known:
        raise InputError(f"per_layer_config {min(unknown)!r} is not supported")
    own = {k: x for k, x in fields.items() if x is not None}
    both = {"num_key_value_heads": raw["num_key_value_heads"], **own}
    return need(both, "num_key_value_heads"), need(both, "head_dim", raw["head_dim"])


def _scaling(
    rope: Mapping[str, Any], head_dim: int, context: int
) -> RopeScaling | None:
    """Rotations of the fastest pairs alone: the others turn infinitely slowly."""
    if (kind := rope_kind(rope)) == "default":
        return None
    if kind != "proportional":
        raise InputError(f"rope_type {kind!r} is not supported")
    n_turned = int(number(rope, "partial_rotary_factor", 1.0) * head_dim // 2)
    factor = number(rope, "factor", 1.0)
    factors = (factor,) * n_turned + (math.inf,) * (head_dim // 2 - n_turned)
    return RopeScaling(
        kind="each",
        factor=1.0,
        first_context=context,
        factors=factors,
        long_factors=factors,
        longest=context,
    )


def _tensors_gemma4(config: DecoderConfig) -> dict[str, Tensor]:
    layer = "layers.{i}."
    norms = {
        "attention_post_norm": f"{layer}post_attention_layernorm",
        "mlp_norm": f"{layer}pre_feedforward_layernorm",
        "mlp_post_norm": f"{layer}post_feedforward_layernorm",
    }
    maps = {}
    if config.d_layer_input:
        norms["layer_input.norm"] = f"{layer}post_per_layer_input_norm"
        maps["layer_input.gate"] = f"{layer}per_layer_input_gate"
        maps["layer_input.projection"] = f"{layer}per_layer_projection"
    block = {
        **norm_tensors(config, norms),
        "scale": Tensor((f"{layer}layer_scalar",)),
        **{f"{k}.kernel": Tensor((f"{x}.weight",), True) for k, x in maps.items()},
    }
    shared = llama_tensors(config)
    start = "blocks."
    block = {
        k.removeprefix(start): x for k, x in shared.items() if k.startswith(start)
    } | block
    tensors = {k: x for k, x in shared.items() if not k.startswith(start)}
    for stack in dict.fromkeys(layer_stacks(config)):
        own = dict(block)
        own["attention.qkv.kernel"] = _queries(config, stack)
        if stack in REUSED:
            del own["attention.key_norm.scale"]
        tensors |= {f"{stack}.{ours}": tensor for ours, tensor in own.items()}
    if config.d_layer_input:
        tensors |= norm_tensors(
            config, {"layer_inputs.norm": "per_layer_projection_norm"}
        )
        tensors["layer_inputs.embedding"] = Tensor(("embed_tokens_per_layer.weight",))
        tensors["layer_inputs.projection.kernel"] = Tensor(
            ("per_layer_model_projection.weight",), True
        )
    return tensors


def _queries(config: DecoderConfig, stack: str) -> Tensor:
    """Queries, and keys and values where the layers of a stack make them."""
    shape = stack_config(config, stack)
    kv = shape.n_kv_heads * shape.head_dim
    widths = {"q": shape.n_heads * shape.head_dim, "k": kv, "v": kv}
    parts = "q" if stack in REUSED else "qk" if shape.values_are_keys else "qkv"
    return Tensor(
        tuple(f"layers.{{i}}.self_attn.{part}_proj.weight" for part in parts),
        transposed=True,
        widths=tuple(widths[part] for part in parts),
    )


GEMMA4_TEXT = Family(
    "gemma4_text",
    "Gemma4ForCausalLM",
    _read_gemma4,
    _tensors_gemma4,
    # Published files hold keys and values of layers that reuse others'.
    ignored=tuple(
        f".self_attn.{part}.weight" for part in ("k_proj", "v_proj", "k_norm")
    ),
)

FAMILIES = (GEMMA, GEMMA2, GEMMA3_TEXT, GEMMA4_TEXT)
