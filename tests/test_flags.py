"""The command line that a report quotes, from the fields of a command."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.commands.flags import flags_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    model: Annotated[str, tyro.conf.Positional]
    corpus: tuple[Path, ...] = ()
    limit: int | None = None
    tiny: bool = False
    json: bool = False


def test_defaults_positionals_and_printing_flags_are_left_out():
    assert flags_of(Command(model="m", json=True)) == ()


def test_flags_parse_back_to_the_same_command():
    command = Command(model="m", corpus=(Path("a"), Path("b c")), limit=3, tiny=True)
    words = flags_of(command)
    assert words == ("--corpus", "a", "b c", "--limit", "3", "--tiny")
    assert tyro.cli(Command, args=["m", *words]) == command
