"""Scripts that make a shell complete commands, flags and choices of `jaxcontam`.

tyro writes such scripts, too, but its do not complete file names of positionals, and
zsh cannot source them. Where no word fits here, the shell completes file names.
"""

import dataclasses
import shlex
import typing
from collections.abc import Mapping
from typing import Any

from jaxcontam.commands.flags import is_positional
from jaxcontam.methods import SCORES, TESTS

SHELLS = ("bash", "zsh", "fish")
_FIRST = ("--help", "--version", "--completion")
# Names that no type lists.
_NAMES = {"--tests": tuple(TESTS), "--scores": ("auto", "all", *SCORES)}


def completion(shell: str, commands: Mapping[str, type]) -> str:
    """Return the script of a shell, one of `SHELLS`, for dataclasses by command."""
    if shell == "fish":
        return _fish(commands)
    if shell == "bash":
        return _bash(commands)
    # zsh reads bash's script once its own module for that is loaded.
    return (
        "whence compdef >/dev/null || { autoload -Uz compinit && compinit; }\n"
        "autoload -Uz bashcompinit && bashcompinit\n" + _bash(commands)
    )


def flags_of(command: type) -> dict[str, tuple[str, ...]]:
    """Each flag of a dataclass with the words that may follow it, () for any."""
    flags = {}
    for field in dataclasses.fields(command):
        if not is_positional(field):
            flag = "--" + field.name.replace("_", "-")
            flags[flag] = _choices(field.type) or _NAMES.get(flag, ())
    return flags | {"--help": ()}


def _choices(kind: Any) -> tuple[str, ...]:
    if typing.get_origin(kind) is typing.Literal:
        return tuple(map(str, typing.get_args(kind)))
    return next(filter(None, map(_choices, typing.get_args(kind))), ())


def _bash(commands: Mapping[str, type]) -> str:
    cases = []
    for name, command in commands.items():
        flags = flags_of(command)
        cases += [
            f"    '{name} {flag} '*) words='{' '.join(words)}' ;;"
            for flag, words in flags.items()
            if words
        ]
        cases.append(f"    '{name} '*' -'*) words='{' '.join(flags)}' ;;")
    return f"""_jaxcontam() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local words=
  if [[ $COMP_CWORD -eq 1 ]]; then
    words='{" ".join((*commands, *_FIRST))}'
  else
    case "${{COMP_WORDS[1]}} $before $current" in
    '--completion '*) words='{" ".join(SHELLS)}' ;;
{chr(10).join(cases)}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _jaxcontam jaxcontam
"""


def _fish(commands: Mapping[str, type]) -> str:
    start = "complete -c jaxcontam -n __fish_use_subcommand"
    lines = [f"{start} -l {flag.removeprefix('--')}" for flag in _FIRST[:-1]]
    lines += [f"{start} -l completion -x -a '{' '.join(SHELLS)}'"]
    for name, command in commands.items():
        summary = shlex.quote((command.__doc__ or "").splitlines()[0].replace("'", ""))
        lines += [f"{start} -f -a {name} -d {summary}"]
        lines += [
            f"complete -c jaxcontam -n '__fish_seen_subcommand_from {name}'"
            f" -l {flag.removeprefix('--')}"
            + (f" -x -a '{' '.join(words)}'" if words else "")
            for flag, words in flags_of(command).items()
        ]
    return "\n".join(lines) + "\n"
