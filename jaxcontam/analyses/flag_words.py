"""Fields of a command as the flags that a user types."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
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
                words += map(path_word, value)
            elif value is not True:
                words.append(path_word(value))
    return tuple(words)


def path_word(value: object) -> str:
    """A value as it is typed: a path that begins as flags do, below its folder."""
    word = str(value)
    return f"./{word}" if isinstance(value, Path) and word.startswith("-") else word
