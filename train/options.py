"""Options of training: a field of a configuration is a flag of every command.

    warmup: float = option(0.05, "Share of the steps that the warm-up takes", SHARE)

is all that an option needs: its default, its help and the values that it may have.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import tyro

from jaxcontam.errors import InputError
from jaxcontam.reports.flags import flag_of

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words and as a check."""

AT_LEAST_0: Rule = ("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1: Rule = ("at least 1", lambda value: 1 <= value < math.inf)
ABOVE_0: Rule = ("above 0", lambda value: 0 < value < math.inf)
BELOW_1: Rule = ("at least 0 and below 1", lambda value: 0 <= value < 1)
SHARE: Rule = ("0 to 1", lambda value: 0 <= value <= 1)


def option(default: Any, help: str, rule: Rule | None = None) -> Any:
    """A field that is a flag; a default of `...` is left to the presets."""
    if "(default: " not in help:
        usual = "the preset's" if default is ... else repr(default).strip("'")
        help = f"{help} (default: {usual})"
    given = {} if default is ... else {"default": default}
    return dataclasses.field(metadata={"help": f"{help}.", "rule": rule}, **given)


def option_flags(parts: Sequence[type]) -> Any:
    """A dataclass with the options of some classes, None where a flag is not given."""
    fields = [
        (
            one.name,
            Annotated[
                hints[one.name] | None,
                tyro.conf.arg(help=one.metadata["help"], help_behavior_hint=""),
                tyro.conf.FlagConversionOff,
            ],
            dataclasses.field(default=None, metadata=one.metadata),
        )
        for part, hints in ((part, get_type_hints(part)) for part in parts)
        for one in dataclasses.fields(part)
        if "help" in one.metadata
    ]
    return dataclasses.make_dataclass("Options", fields, frozen=True, kw_only=True)


def check_options(flags: Any, options: Any) -> None:
    """Refuse values that no training has; `options` is a class with the options.

    A command may declare one of them again, for a default of its own.
    """
    for one in dataclasses.fields(options):
        rule, value = one.metadata.get("rule"), getattr(flags, one.name)
        if rule is not None and value is not None and not rule[1](value):
            raise InputError(f"{flag_of(one.name)} must be {rule[0]}, got {value}")
