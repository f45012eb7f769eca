"""Readers of the rotary settings of a config.json."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.families.family import need, number, switch
from jaxcontam.models.shapes import RopeScaling

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
    scales = [fields.get(name) or None for name in ("mscale", "mscale_all_dim")]
    magnitude = yarn_magnitude(factor)
    if None not in scales:
        one, other = (
            yarn_magnitude(factor, number(fields, name))
            for name in ("mscale", "mscale_all_dim")
        )
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
