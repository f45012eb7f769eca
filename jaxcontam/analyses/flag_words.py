"""Fields of a command as the flags that a user types."""

import dataclasses
from collections.abc import Sequence
from typing import Any


def flag_of(name: str) -> str:
    """A field's flag, as it is typed."""
    return "--" + name.replace("_", "-")


def words_of(command: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The flags of these fields that differ from their defaults, as they were typed."""
    words: list[str] = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if field.name in names and value != field.default:
            words.append(flag_of(field.name))
            if isinstance(value, tuple):
                words += map(str, value)
            elif value is not True:
                words.append(str(value))
    return tuple(words)
