"""Scripts that make a shell complete commands, flags and values of `jaxcontam`.

Where no word of ours fits, the shell completes names of files, as it does elsewhere.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping

from jaxcontam.help_pages import field_docs, words_of_fields
from jaxcontam.methods import SCORES, TESTS

_FIRST = ("--help", "--version", "--completion")
_EVERYWHERE = ("--help", "--help-all")


def completion(shell: str, commands: Mapping[str, type]) -> str:
    """The script of a shell.

    Args:
        shell: One of `SHELLS`.
        commands: Dataclass of each command, by name.
    """
    return SHELLS[shell](commands)


def _bash(commands: Mapping[str, type]) -> str:
    values, flags = [], []
    for name, command in commands.items():
        known = _flags_of(command)
        for flag, choices in known.items():
            if choices:
                values.append(f"    '{name} {flag}') words='{' '.join(choices)}' ;;")
        words = " ".join((*known, *_EVERYWHERE))
        flags.append(f"    {name}:-*) words='{words}' ;;")
    first = " ".join((*commands, *_FIRST))
    return f"""_jaxcontam() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="${{COMP_WORDS[1]}}" words=
  if [[ $COMP_CWORD -eq 1 ]]; then
    words='{first}'
  elif [[ $command == --completion ]]; then
    words='{" ".join(SHELLS)}'
  else
    case "$command $before" in
{_block(values)}
    *) case "$command:$current" in
{_block(flags)}
    esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _jaxcontam jaxcontam
"""


def _zsh(commands: Mapping[str, type]) -> str:
    """Bash's script: zsh reads it once its own module for that is loaded."""
    return (
        "whence compdef >/dev/null || { autoload -Uz compinit && compinit; }\n"
        "autoload -Uz bashcompinit && bashcompinit\n" + _bash(commands)
    )


def _fish(commands: Mapping[str, type]) -> str:
    start = "complete -c jaxcontam -n __fish_use_subcommand"
    lines = [
        f"{start} -f -a {name} -d {_quoted((command.__doc__ or '').splitlines()[0])}"
        for name, command in commands.items()
    ]
    lines += [f"{start} -l {flag.removeprefix('--')}" for flag in _FIRST[:-1]]
    lines += [f"{start} -l completion -x -a '{' '.join(SHELLS)}'"]
    for name, command in commands.items():
        said = field_docs(command)
        for flag, choices in _flags_of(command).items():
            long = flag.removeprefix("--")
            line = f"complete -c jaxcontam -n '__fish_seen_subcommand_from {name}'"
            line += f" -l {long} -d {_quoted(said[long.replace('-', '_')])}"
            if choices is not None:
                line += f" -x -a '{' '.join(choices)}'" if choices else " -r"
            lines.append(line)
        lines += [
            f"complete -c jaxcontam -n '__fish_seen_subcommand_from {name}'"
            f" -l {flag.removeprefix('--')}"
            for flag in _EVERYWHERE
        ]
    return "\n".join(lines) + "\n"


SHELLS: Mapping[str, Callable[[Mapping[str, type]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}


def _flags_of(command: type) -> dict[str, tuple[str, ...] | None]:
    """Flag -> words that may follow it: () for any, None where none does."""
    named = {"--tests": tuple(TESTS), "--scores": ("auto", "all", *SCORES)}
    flags: dict[str, tuple[str, ...] | None] = {}
    for words in words_of_fields(command).values():
        flag, _, value = words.partition(" ")
        if not flag.startswith("--"):
            continue
        choices = tuple(value[1:-1].split(",")) if value.startswith("{") else ()
        if value == "WORD" or value == "WORD ...":
            choices = named.get(flag, ())
        flags[flag] = choices if value else None
    return flags


def _block(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A description for fish, up to its first clause."""
    return shlex.quote(text.split(";")[0].rstrip(".").replace("'", ""))
