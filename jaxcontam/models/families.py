"""Model families as data: config mapping and tensor names.

A family says how its config.json reads, and where on disk each of our weights
lives. Names carry `{i}` for the layer. Several names in one row stand side by side
along the output axis of ours (query, key and value; gate and up).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.config import DecoderConfig


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Where one of our weights lives on disk.

    Attributes:
        names: Tensor names; more than one are joined along our output axis.
        transposed: True where the file holds [outputs, inputs].
    """

    names: tuple[str, ...]
    transposed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """One `model_type` of Hugging Face.

    Attributes:
        model_type: As config.json names it.
        architecture: Class that transformers opens it with.
        read_config: config.json -> DecoderConfig.
        write_config: DecoderConfig -> fields of config.json.
        tensors: Path of our weight -> where it lives.
        prefix: Put before every name but those of the head; optional on disk.
        ignored: Suffixes of buffers that hold no weights.
    """

    model_type: str
    architecture: str
    read_config: Callable[[Mapping[str, Any]], DecoderConfig]
    write_config: Callable[[DecoderConfig], dict[str, Any]]
    tensors: Callable[[DecoderConfig], dict[str, Tensor]]
    prefix: str
    ignored: tuple[str, ...] = ()


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family of a config.json.

    Raises:
        InputError: If its model_type is missing or unknown.
    """
    model_type = raw.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{where}: no model_type (found {model_type!r})")
    if model_type not in FAMILIES:
        error = unknown_name("model_type", model_type, FAMILIES)
        raise InputError(f"{where}: {error}", hint=error.hint)
    return FAMILIES[model_type]


_ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def _activation(name: str) -> Any:
    if name not in _ACTIVATION_NAMES:
        raise unknown_name("activation", name, _ACTIVATION_NAMES)
    return _ACTIVATION_NAMES[name]


def _need(raw: Mapping[str, Any], field: str) -> Any:
    value = raw.get(field)
    if value is None:
        raise InputError(f"no field {field!r}")
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{field} must be a positive integer, got {value!r}")
    return value


def _read_gpt2(raw: Mapping[str, Any]) -> DecoderConfig:
    for switch in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        if raw.get(switch):
            raise InputError(f"{switch} is not supported")
    if raw.get("scale_attn_weights") is False:
        raise InputError("scale_attn_weights false is not supported")
    D, H = _need(raw, "n_embd"), _need(raw, "n_head")
    return DecoderConfig(
        vocab_size=_need(raw, "vocab_size"),
        d_model=D,
        n_layers=_need(raw, "n_layer"),
        n_heads=H,
        n_kv_heads=H,
        head_dim=D // H,
        d_ff=raw.get("n_inner") or 4 * D,
        context=_need(raw, "n_positions"),
        positions="learned",
        norm="layer",
        norm_eps=raw.get("layer_norm_epsilon", 1e-5),
        activation=_activation(raw.get("activation_function", "gelu_new")),
        gated=False,
        attention_bias=True,
        mlp_bias=True,
        tied=raw.get("tie_word_embeddings", True),
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
        "activation_function": "gelu_new"
        if config.activation == "gelu_tanh"
        else config.activation,
        "tie_word_embeddings": config.tied,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def _gpt2_tensors(config: DecoderConfig) -> dict[str, Tensor]:
    tensors = {
        "embedding": Tensor(("wte.weight",)),
        "position_embedding": Tensor(("wpe.weight",)),
    }
    # GPT-2 keeps its kernels as [inputs, outputs], like ours.
    for ours, theirs in {
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    }.items():
        weight = "scale" if ours.endswith("norm") else "kernel"
        tensors[f"blocks.{ours}.{weight}"] = Tensor((f"h.{{i}}.{theirs}.weight",))
        tensors[f"blocks.{ours}.bias"] = Tensor((f"h.{{i}}.{theirs}.bias",))
    tensors["final_norm.scale"] = Tensor(("ln_f.weight",))
    tensors["final_norm.bias"] = Tensor(("ln_f.bias",))
    return tensors | _head(config)


def _read_llama(raw: Mapping[str, Any]) -> DecoderConfig:
    H = _need(raw, "num_attention_heads")
    D = _need(raw, "hidden_size")
    # transformers 5 nests the rotary settings, older configs keep them flat.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise InputError(
            f"rope_type {kind!r} is not supported yet", hint="only the default is"
        )
    return DecoderConfig(
        vocab_size=_need(raw, "vocab_size"),
        d_model=D,
        n_layers=_need(raw, "num_hidden_layers"),
        n_heads=H,
        n_kv_heads=raw.get("num_key_value_heads") or H,
        head_dim=raw.get("head_dim") or D // H,
        d_ff=_need(raw, "intermediate_size"),
        context=_need(raw, "max_position_embeddings"),
        positions="rotary",
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
        norm="rms",
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        activation=_activation(raw.get("hidden_act", "silu")),
        gated=True,
        attention_bias=raw.get("attention_bias", False),
        mlp_bias=raw.get("mlp_bias", False),
        tied=raw.get("tie_word_embeddings", False),
    )


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
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied,
    }


def _llama_tensors(config: DecoderConfig) -> dict[str, Tensor]:
    tensors = {"embedding": Tensor(("embed_tokens.weight",))}
    qkv = tuple(f"self_attn.{part}_proj" for part in "qkv")
    rows = {
        "attention.qkv": (qkv, config.attention_bias),
        "attention.out": (("self_attn.o_proj",), config.attention_bias),
        "mlp.up": (("mlp.gate_proj", "mlp.up_proj"), config.mlp_bias),
        "mlp.down": (("mlp.down_proj",), config.mlp_bias),
    }
    for ours, (theirs, bias) in rows.items():
        weights = tuple(f"layers.{{i}}.{name}.weight" for name in theirs)
        tensors[f"blocks.{ours}.kernel"] = Tensor(weights, transposed=True)
        if bias:
            biases = tuple(f"layers.{{i}}.{name}.bias" for name in theirs)
            tensors[f"blocks.{ours}.bias"] = Tensor(biases)
    for ours, theirs in {
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    }.items():
        name = f"layers.{{i}}.{theirs}.weight"
        tensors[f"blocks.{ours}.scale"] = Tensor((name,))
    tensors["final_norm.scale"] = Tensor(("norm.weight",))
    return tensors | _head(config)


def _head(config: DecoderConfig) -> dict[str, Tensor]:
    return {} if config.tied else {"head": Tensor(("lm_head.weight",))}


FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family(
            model_type="gpt2",
            architecture="GPT2LMHeadModel",
            read_config=_read_gpt2,
            write_config=_write_gpt2,
            tensors=_gpt2_tensors,
            prefix="transformer.",
            ignored=(".attn.bias", ".attn.masked_bias"),
        ),
        Family(
            model_type="llama",
            architecture="LlamaForCausalLM",
            read_config=_read_llama,
            write_config=_write_llama,
            tensors=_llama_tensors,
            prefix="model.",
            ignored=(".rotary_emb.inv_freq",),
        ),
    )
}
