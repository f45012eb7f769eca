"""Checks and words that commands share."""

import dataclasses
import math
from typing import Any

import tyro

from jaxcontam.errors import InputError

# Fields that change what is printed and not what is computed.
_PRINTING = {"json"}


def check_shared_flags(seed: int, min_effect: float) -> None:
    """Refuse values that would fail later, before anything slow.

    Raises:
        InputError: If the seed is negative or the effect is no positive number.
    """
    check_seed(seed)
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise InputError(f"--min-effect must be positive, got {min_effect}")


def check_seed(seed: int) -> None:
    """Refuse a negative seed.

    Raises:
        InputError: If it is negative.
    """
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")


def flags_of(command: Any) -> tuple[str, ...]:
    """The flags that differ from their defaults, as they were typed."""
    words: list[str] = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        is_positional = tyro.conf.Positional in getattr(field.type, "__metadata__", ())
        if is_positional or field.name in _PRINTING or value == field.default:
            continue
        words.append("--" + field.name.replace("_", "-"))
        if isinstance(value, tuple):
            words += map(str, value)
        elif value is not True:
            words.append(str(value))
    return tuple(words)
