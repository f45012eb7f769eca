"""Checks and words that commands share."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from jaxcontam.errors import InputError
from jaxcontam.scoring.pair_plan import ALL_TOKENS

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel

STORE_DIR = "store"
"""Folder of scores under `--out`."""

# Fields that change what is printed, or where, and not what is computed.
_PRINTING = {"json", "shard"}
# What a memorised order is seen in grows with the tokens, and so does the noise.
_FIRST_TOKENS = {"all": (ALL_TOKENS,), "auto": (4, 8, 16, 32, ALL_TOKENS)}


def check_shared_flags(seed: int, min_effect: float) -> None:
    """Refuse values that would fail later, before anything slow.

    Raises:
        InputError: If the seed is negative or the effect is no positive number.
    """
    check_seed(seed)
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise InputError(f"--min-effect must be positive, got {min_effect}")


def check_positive(command: Any, *names: str) -> None:
    """Refuse fields below 1, named as the flags that the user typed; None passes.

    Raises:
        InputError: Names the first such flag.
    """
    for name in names:
        value = getattr(command, name)
        if value is not None and value < 1:
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} must be at least 1, got {value}")


def check_seed(seed: int) -> None:
    """Refuse a negative seed.

    Raises:
        InputError: If it is negative.
    """
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")


def check_store_flags(store: Path | None, no_store: bool) -> None:
    """Refuse a folder of scores that cannot be one, before anything slow.

    Raises:
        InputError: If it is a file, or both flags are given.
    """
    if store is not None and no_store:
        raise InputError("--store and --no-store contradict each other")
    if store is not None and store.exists() and not store.is_dir():
        raise InputError(f"{store}: is a file", hint="--store names a folder")


def store_of(command: Any, out: Path, model: "OpenModel") -> Path | None:
    """Folder in which scores are kept, as the flags say; None keeps none."""
    if command.no_store:
        return None
    return command.store or out / model.store_name


def first_token_choices(words: str) -> tuple[int, ...]:
    """How many tokens of an example may count, as `--first-tokens` says it.

    Raises:
        InputError: If it is no number above 0 and no word that is known.
    """
    if words in _FIRST_TOKENS:
        return _FIRST_TOKENS[words]
    if words.isdecimal() and int(words) > 0:
        return (int(words),)
    raise InputError(
        f"--first-tokens must be all, auto or a number above 0, got {words!r}"
    )


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
