"""Types of a row of FAMILIES, and readers for fields of a config.json."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.config import DecoderConfig, RopeScaling


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """Lossless reordering of a tensor's last axis between disk and decoder."""

    to_ours: Callable[[np.ndarray, DecoderConfig], np.ndarray]
    to_disk: Callable[[np.ndarray, DecoderConfig], np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Place of one weight of the decoder on disk.

    Attributes:
        names: Tensor names; more than one are joined along our output axis.
        transposed: True where the file holds [outputs, inputs].
        skipped_rows: Rows on disk before the first one that is used; written as zeros,
            since no token that counts reads them.
        widths: Outputs of each name; empty: as many of each, or three of q, k and v.
    """

    names: tuple[str, ...]
    transposed: bool = False
    skipped_rows: int = 0
    conversion: Conversion | None = None
    widths: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """One `model_type` of Hugging Face.

    Attributes:
        write_config: DecoderConfig -> fields of config.json; None: a model is written
            only with the fields that it was read from.
        head: Name of the head, which a tied model's file may leave out.
        prefix: Put before every name but the head's; optional on disk.
        ignored: Suffixes of buffers that hold no weights.
        further: Weight by which layers that guess later tokens are known; they are
            not read. `{n}` is the number of layers.
    """

    model_type: str
    architecture: str
    read_config: Callable[[Mapping[str, Any]], DecoderConfig]
    tensors: Callable[[DecoderConfig], dict[str, Tensor]]
    _: dataclasses.KW_ONLY
    write_config: Callable[[DecoderConfig], dict[str, Any]] | None = None
    head: str = "lm_head.weight"
    head_bias: str = "lm_head.bias"
    prefix: str = "model."
    ignored: tuple[str, ...] = (".rotary_emb.inv_freq",)
    further: str = ""


def linear_tensors(
    config: DecoderConfig,
    layer: str,
    names: Mapping[str, Sequence[str]],
    *,
    transposed: bool = True,
) -> dict[str, Tensor]:
    """Kernels of a block's linear maps and, where the config has them, biases.

    `layer` is a prefix on disk, such as `layers.{i}.`; `names` maps ours, such as
    `mlp.up`, to those on disk, which hold [outputs, inputs] if `transposed`.
    """
    biased = {
        "attention.qkv": config.qkv_bias,
        "attention.out": config.output_bias,
        "mlp.up": config.mlp_bias,
        "mlp.down": config.mlp_bias,
    }
    tensors = {}
    for ours, theirs in names.items():
        weights = tuple(f"{layer}{name}.weight" for name in theirs)
        tensors[f"blocks.{ours}.kernel"] = Tensor(weights, transposed=transposed)
        if biased.get(ours):
            biases = tuple(f"{layer}{name}.bias" for name in theirs)
            tensors[f"blocks.{ours}.bias"] = Tensor(biases)
    return tensors


def norm_tensors(config: DecoderConfig, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Scales of norms, and biases of layer norms, from our name -> name on disk."""
    tensors = {}
    for ours, theirs in names.items() if config.norm_weights else ():
        tensors[f"{ours}.scale"] = Tensor((f"{theirs}.weight",))
        if config.norm == "layer":
            tensors[f"{ours}.bias"] = Tensor((f"{theirs}.bias",))
    return tensors


def block_tensors(
    config: DecoderConfig,
    embedding: str,
    layer: str,
    linears: Mapping[str, Sequence[str]],
    norms: Mapping[str, str],
) -> dict[str, Tensor]:
    """The embedding and all weights of the blocks; see the two above."""
    return {
        "embedding": Tensor((f"{embedding}.weight",)),
        **linear_tensors(config, layer, linears),
        **norm_tensors(config, norms),
    }


# Above every count and every number of a real config.json: contexts of ten million
# tokens, rotary bases of 10^12.
_MOST, _LARGEST = 1 << 24, 1e15
_ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def activation(name: str) -> Any:
    """Our name of an activation."""
    if name not in _ACTIVATION_NAMES:
        raise unknown_name("activation", name, _ACTIVATION_NAMES)
    return _ACTIVATION_NAMES[name]


def _given(raw: Mapping[str, Any], field: str, default: Any) -> Any:
    """A field; null and missing are the default; missing, that of transformers, too."""
    value = raw.get(field)
    value = default if value is None else value
    if value is None and field not in raw:
        value = _class_default(raw.get("model_type"), field)
    if value is None:
        raise InputError(f"no field {field!r}")
    return value


@functools.cache
def _class_default(model_type: Any, field: str) -> Any:
    """Default in transformers of a field that a published config.json leaves out."""
    if model_type is None:
        return None
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        return None
    return getattr(CONFIG_MAPPING[model_type](), field, None)


def need(raw: Mapping[str, Any], field: str, default: int | None = None) -> int:
    """A field that must be a positive integer; null and missing are the default."""
    value = _given(raw, field, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{field} must be a positive integer, got {_begin(value)}")
    if value > _MOST:
        raise InputError(f"{field} must be at most {_MOST:,}, got {_begin(value)}")
    return value


def number(raw: Mapping[str, Any], field: str, default: float | None = None) -> float:
    """A field that must be a positive number; null and missing are the default."""
    value = _given(raw, field, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value > 0:
        raise InputError(f"{field} must be a positive number, got {_begin(value)}")
    if value > _LARGEST:
        raise InputError(f"{field} must be at most {_LARGEST:g}, got {_begin(value)}")
    return float(value)


def _begin(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."


def number_or_none(raw: Mapping[str, Any], field: str) -> float | None:
    """A field that must be a positive number; null and missing are None."""
    return None if raw.get(field) is None else number(raw, field)


def switch(raw: Mapping[str, Any], field: str, default: bool) -> bool:
    """A field that must be true or false; null and missing are the default."""
    value = _given(raw, field, default)
    if not isinstance(value, bool):
        raise InputError(f"{field} must be true or false, got {value!r}")
    return value


def refuse(raw: Mapping[str, Any], **unsupported: Any) -> None:
    """Refuse a config with a field at the given value, which the decoder lacks."""
    for field, value in unsupported.items():
        if raw.get(field) == value and raw.get(field) is not None:
            raise InputError(f"{field} {str(value).lower()} is not supported")


def layer_windows(
    raw: Mapping[str, Any], n_layers: int, is_sliding: Callable[[int], bool]
) -> tuple[int | None, ...]:
    """Windows of the layers; `layer_types`, where it is given, says which slide.

    `is_sliding` is the family's rule where nothing is said, from the layer's index.
    """
    if raw.get("sliding_window") is None:
        if "sliding_attention" in (raw.get("layer_types") or ()):
            raise InputError("layer_types names sliding layers, but not sliding_window")
        return ()
    window = need(raw, "sliding_window")
    types = raw.get("layer_types") or [
        "sliding_attention" if is_sliding(i) else "full_attention"
        for i in range(n_layers)
    ]
    if unknown := set(types) - {"sliding_attention", "full_attention"}:
        raise InputError(f"layer type {min(unknown)!r} is not supported")
    windows = tuple(window if kind == "sliding_attention" else None for kind in types)
    return windows if set(windows) != {None} else ()


# The second is an older name of the first.
LONG_ROPES = ("longrope", "su")
"""Names of the scaling with a factor for every pair."""


def rope_fields(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rotary settings: transformers 5 nests them, older configs keep them flat."""
    nested = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(nested, Mapping):
        raise InputError(f"rope settings must be an object, got {nested!r}")
    return {"rope_theta": number(raw, "rope_theta", 10_000.0), **nested}


def rope_kind(fields: Mapping[str, Any]) -> Any:
    """Name of the scaling that rotary settings ask for."""
    return fields.get("rope_type", fields.get("type", "default"))


def rope_scaling(
    raw: Mapping[str, Any], fields: Mapping[str, Any]
) -> RopeScaling | None:
    """The scaling that rotary settings ask for, or None."""
    kind = rope_kind(fields)
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=number(fields, "factor"))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=number(fields, "factor"),
            low_factor=number(fields, "low_freq_factor"),
            high_factor=number(fields, "high_freq_factor"),
            first_context=_first_context(raw, fields),
        )
    if kind == "yarn":
        return _yarn(raw, fields)
    if kind in LONG_ROPES:
        return _long_rope(raw, fields)
    raise InputError(
        f"rope_type {kind!r} is not supported yet",
        hint="default, linear, llama3, yarn and longrope are",
    )


def two_ropes(
    raw: Mapping[str, Any], *, theta: float, local_theta: float
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Rotary settings of layers without a window, and of those with one.

    `theta` and `local_theta` are the family's bases where nothing is said.
    """
    nested = raw.get("rope_parameters") or {}
    both = [nested.get(f"{kind}_attention") or {} for kind in ("full", "sliding")]
    everywhere = {
        "rope_theta": number(raw, "rope_theta", theta),
        **(raw.get("rope_scaling") or {}),
        **both[0],
    }
    local = {"rope_theta": local_theta, **both[1]}
    if rope_scaling(raw, local) is not None:
        raise InputError("rope scaling in layers with a window is not supported")
    return everywhere, local


def with_first_context(config: DecoderConfig) -> DecoderConfig:
    """Decoder of the first training's context, where factors depend on the context."""
    scaling = config.rope_scaling
    if scaling is None or scaling.kind != "each":
        return config
    n_pairs = config.n_rotated // 2
    both = {"short_factor": scaling.factors, "long_factor": scaling.long_factors}
    for field, factors in both.items():
        if len(factors) != n_pairs:
            raise InputError(f"{field} must be {n_pairs} numbers, got {len(factors)}")
    context = min(scaling.first_context, config.context)
    return dataclasses.replace(config, context=context)


def _first_context(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> int:
    """Context of the first training; a field beside the rotary settings comes first."""
    field = "original_max_position_embeddings"
    context = need(raw, "max_position_embeddings")
    return need(raw, field, need(fields, field, context))


def _yarn(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> RopeScaling:
    first = _first_context(raw, fields)
    if (theta := number(fields, "rope_theta")) <= 1:
        raise InputError(f"rope_theta must be above 1 for yarn, got {theta}")
    factor = number(fields, "factor", need(raw, "max_position_embeddings") / first)
    names, magnitude = ("mscale", "mscale_all_dim"), yarn_magnitude(factor)
    if all(map(fields.get, names)):
        one, other = (yarn_magnitude(factor, number(fields, x)) for x in names)
        magnitude = one / other
    return RopeScaling(
        kind="yarn",
        factor=factor,
        low_factor=number({"beta_slow": fields.get("beta_slow") or 1}, "beta_slow"),
        high_factor=number({"beta_fast": fields.get("beta_fast") or 32}, "beta_fast"),
        whole_pairs=switch(fields, "truncate", True),
        first_context=first,
        magnitude=number(fields, "attention_factor", magnitude),
    )


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """Magnitude of scaled cosines and sines: 0.1 scale ln(factor) + 1.

    Peng et al., arXiv:2309.00071, equation 22; `scale` is DeepSeek's.
    """
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _long_rope(raw: Mapping[str, Any], fields: Mapping[str, Any]) -> RopeScaling:
    first, longest = _first_context(raw, fields), need(raw, "max_position_embeddings")
    factors = {}
    for field in ("short_factor", "long_factor"):
        given = fields.get(field)
        if not isinstance(given, list):
            raise InputError(f"{field} must be a list of numbers, got {given!r}")
        factors[field] = tuple(number({field: x}, field) for x in given)
    stretch = number(fields, "factor", longest / first)
    magnitude = 1.0
    if stretch > 1.0:
        magnitude = math.sqrt(1 + math.log(stretch) / math.log(first))
    return RopeScaling(
        kind="each",
        factor=1.0,
        first_context=first,
        factors=factors["short_factor"],
        long_factors=factors["long_factor"],
        longest=longest,
        magnitude=number(fields, "attention_factor", magnitude),
    )
