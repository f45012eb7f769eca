"""`jaxcontam`: parse, call the library, print. No logic lives here."""

import collections
import contextlib
import dataclasses
import errno
import functools
import inspect
import io
import os
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import docstring_parser
import tyro

import jaxcontam
from jaxcontam.commands.flags import (
    MERGE,
    DeviceFlags,
    is_positional,
    own_folder,
)
from jaxcontam.errors import InputError, StorageError, first_line, unknown_name
from jaxcontam.methods import SCORES, TESTS
from jaxcontam.processes import is_first, joined
from jaxcontam.scoring.shares import ShareScored
from jaxcontam.signals import interrupted, signal_of, stop_on_signals
from jaxcontam.terminal import visible

EXIT_DONE, EXIT_INPUT, EXIT_PARTIAL = 0, 2, 3

# Clean-ups take less.
_AGAIN_SECONDS = 0.05

# What is wrong stands at the start of a line or at its end, values between them.
_LONGEST_LINE = 2_000

# What a machine refuses, wherever it is met: rights, and room.
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REFUSALS = (*_DENIED, errno.ENOSPC, errno.EDQUOT, errno.EIO)

# One flag a switch; None is no word that a user types; BENCHMARK, not STR.
_TYRO = (
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.DisallowNone,
    tyro.conf.PositionalMetavarFromFieldName,
)

SHELLS = ("bash", "zsh", "fish")
_FIRST = ("--help", "--version", "--completion")
# Names that no type lists.
_NAMES = {"--tests": tuple(TESTS), "--scores": ("auto", "all", *SCORES)}

COMMANDS: dict[str, type] = {
    name.lower(): getattr(jaxcontam, name) for name in jaxcontam.COMMANDS
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` and run one command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        return run_command(lambda: print(jaxcontam.__version__))
    if words[:1] == ["--completion"]:
        return run_command(lambda: _print_completion(words[1:]))
    return run_command(lambda: _run(words))


def entry_point() -> None:
    """Console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows a question mark, and no traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.unraisablehook = _ignored
    sys.exit(main())


def _ignored(found: Any) -> None:
    """Send a signal again if it came in a clean-up, whose errors Python ignores."""
    if found.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(found)
        return
    number = signal_of(found.exc_value)
    again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def run_command(command: Callable[[], object], *, name: str = "jaxcontam") -> int:
    """Run one command and turn its outcome into an exit code.

    Bad input becomes one line and a hint on stderr; an interruption says that the
    command can be run again. A command may return an exit code of its own.
    """
    try:
        outcome = command()
        # Else Python fails to, at its end.
        sys.stdout.flush()
    except (InputError, StorageError) as e:
        print(f"{name}: error: {_line(str(e))}", file=sys.stderr)
        if e.hint:
            print(f"  hint: {_line(e.hint)}", file=sys.stderr)
        return EXIT_INPUT if isinstance(e, InputError) else EXIT_PARTIAL
    except SystemExit as e:
        if e.code:
            raise
        # Help or a script for a shell was printed.
        return EXIT_DONE
    except KeyboardInterrupt as e:
        return interrupted(e, name)
    except BrokenPipeError:
        # The reader of a pipe went away; nothing more can be printed.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return EXIT_DONE
    except MemoryError as e:
        print(f"{name}: error: memory ran out ({first_line(e)})", file=sys.stderr)
        print("  hint: fewer examples need less: --limit N", file=sys.stderr)
        return EXIT_PARTIAL
    except OSError as e:
        if e.errno not in _REFUSALS:
            raise
        if e.filename is None:
            # Python would try once more to write what stdout still holds.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        place = _line(str(e.filename or "output"))
        print(f"{name}: error: {place}: {e.strerror}", file=sys.stderr)
        return EXIT_INPUT if e.errno in _DENIED else EXIT_PARTIAL
    return outcome if isinstance(outcome, int) else EXIT_DONE


def run_module(
    command: type,
    name: str,
    exit_code: Callable[[Any], object] = lambda outcome: outcome,
) -> int:
    """Run `python -m NAME` of a dataclass whose fields are the flags."""
    stop_on_signals()

    def run() -> object:
        return exit_code(parse(command, sys.argv[1:], prog=f"python -m {name}").run())

    return run_command(run, name=name)


def _line(words: str) -> str:
    """One line of readable length, whatever the names and values in it hold."""
    words = visible(words.replace("\n", "\\n"))
    if len(words) <= _LONGEST_LINE:
        return words
    half = _LONGEST_LINE // 2
    return f"{words[:half]} ... {words[-half:]}"


def parse(command: type, words: Sequence[str], *, prog: str) -> Any:
    """Parse words into a dataclass whose fields are the flags.

    `--help` describes the flags under the class's docstring.

    Raises:
        InputError: If a flag is unknown (names the nearest) or stands twice, a value
            does not fit or a positional is missing.
        SystemExit: After help.
    """
    _describe_flags(command)
    _refuse_repeated_flags(command, words)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed, unknown = tyro.cli(
                command,
                args=list(words),
                prog=prog,
                # Without it tyro drops the examples of a docstring.
                description=inspect.getdoc(command),
                return_unknown_args=True,
                config=_TYRO,
            )
    except InputError:
        # What follows an unknown flag was taken for another word.
        _refuse_unknown_flags(command, words)
        raise
    except SystemExit as e:
        if not e.code:
            raise
        _refuse_unknown_flags(command, words)
        raise InputError(
            _first_sentence(said.getvalue()), hint=f"see {prog} --help"
        ) from None
    if unknown:
        if not unknown[0].startswith("-"):
            raise InputError(
                f"unexpected argument {unknown[0]!r}", hint=f"see {prog} --help"
            )
        raise unknown_name("flag", unknown[0], flags_of(command))
    return parsed


@functools.cache
def _describe_flags(command: type) -> None:
    """Give tyro each flag's words as one paragraph, and only defaults that say more.

    It breaks the lines of an attribute's docstring where the source does, and prints
    None, False and emptiness as defaults.
    """
    fields = {field.name: field for field in dataclasses.fields(command)}
    for owner in command.__mro__:
        if not dataclasses.is_dataclass(owner):
            continue
        kinds = inspect.get_annotations(owner)
        words = {
            param.arg_name: " ".join((param.description or "").split())
            for param in docstring_parser.parse_from_object(owner).params
        }
        for name in kinds.keys() & fields.keys() & words.keys():
            default = fields[name].default
            hint = None
            if default in (None, (), "") or default is False:
                hint = ""
            elif isinstance(default, str) and not default.isprintable():
                hint = f"(default: {default!r})"
            about = tyro.conf.arg(help=words[name], help_behavior_hint=hint)
            kinds[name] = Annotated[kinds[name], about]
        owner.__annotations__ = kinds


def _refuse_unknown_flags(command: type, words: Sequence[str]) -> None:
    known = flags_of(command)
    for flag in _flags_in(words):
        if not {flag, flag.replace("--no-", "--", 1)} & set(known):
            raise unknown_name("flag", flag, known) from None


def _refuse_repeated_flags(command: type, words: Sequence[str]) -> None:
    """The parser takes the last of two and says nothing of the first."""
    several = {
        "--" + field.name.replace("_", "-")
        for field in dataclasses.fields(command)
        if "tuple" in str(field.type)
    }
    for flag, n in collections.Counter(_flags_in(words)).items():
        if n > 1 and flag in flags_of(command):
            hint = f"{flag} A B takes several" if flag in several else "give it once"
            raise InputError(f"{flag} stands {n} times", hint=hint)


def _flags_in(words: Sequence[str]) -> list[str]:
    """The words that name flags, without the value after an equals sign."""
    flags = (word.partition("=")[0].replace("_", "-") for word in words)
    return [flag for flag in flags if flag.startswith("--") and flag != "--"]


def _run(words: list[str]) -> object:
    if not words or words[0] in ("-h", "--help"):
        _print_help()
        return EXIT_DONE
    if words[0] not in COMMANDS:
        raise unknown_name("command", words[0], COMMANDS)
    name, rest = words[0], words[1:]
    command = parse(COMMANDS[name], rest, prog=f"jaxcontam {name}")
    with own_folder(name, command):
        outcome = _run_share(command) if _is_shared(command) else command.run()
    return outcome if isinstance(outcome, int) else EXIT_DONE


def _is_shared(command: Any) -> bool:
    return isinstance(command, DeviceFlags) and (
        command.shard is not None or command.distributed
    )


def _run_share(command: Any) -> object:
    """Run a command of which each process scores a share; of a pod the first judges."""
    with joined(command.distributed):
        judges = command.distributed and is_first()
        try:
            return command.run()
        except ShareScored as e:
            print(e)
    if judges:
        command = dataclasses.replace(command, distributed=False, shard=MERGE)
        return command.run()
    return None


def _print_help() -> None:
    """The commands; tyro's own list would first make the parsers of all of them."""
    print("usage: jaxcontam COMMAND ...   (jaxcontam COMMAND --help lists its flags)\n")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  {name:<{width}} {(command.__doc__ or '').splitlines()[0]}")
    print(f"\n  {'--version':<{width}} prints the version")
    print(
        f"  --completion {{{','.join(SHELLS)}}} prints a script for your shell: "
        "source <(jaxcontam --completion bash)"
    )


def _print_completion(words: list[str]) -> None:
    """The script that makes a shell complete commands, flags and choices."""
    if len(words) != 1 or words[0] not in SHELLS:
        raise InputError(
            f"--completion takes a shell: {', '.join(SHELLS)}",
            hint="such as: source <(jaxcontam --completion bash)",
        )
    print(completion(words[0]), end="")


def _first_sentence(box: str) -> str:
    """The parser's framed message as one line, without frame and footer."""
    lines: list[str] = []
    below_title = False
    for line in box.splitlines():
        text = line.strip("│╭╮╰╯ ")
        # Where the terminal has no UTF-8 the rules are drawn with hyphens.
        is_rule = "─" in text or "---" in text
        if lines and (is_rule or not text):
            break
        if below_title and text and not is_rule:
            lines.append(text)
        below_title = below_title or is_rule
    return " ".join(lines) or "the command line does not parse"


def completion(shell: str) -> str:
    """The script of one of `SHELLS`; where no word fits, it completes file names.

    tyro writes such scripts, too, but its do not complete file names of positionals,
    and zsh cannot source them.
    """
    if shell == "fish":
        return _fish()
    if shell == "bash":
        return _bash()
    # zsh reads bash's script once its own module for that is loaded.
    return (
        "whence compdef >/dev/null || { autoload -Uz compinit && compinit; }\n"
        "autoload -Uz bashcompinit && bashcompinit\n" + _bash()
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
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return next(filter(None, map(_choices, get_args(kind))), ())


def _bash() -> str:
    cases = []
    for name, command in COMMANDS.items():
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
    words='{" ".join((*COMMANDS, *_FIRST))}'
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


def _fish() -> str:
    start = "complete -c jaxcontam -n __fish_use_subcommand"
    lines = [f"{start} -l {flag.removeprefix('--')}" for flag in _FIRST[:-1]]
    lines += [f"{start} -l completion -x -a '{' '.join(SHELLS)}'"]
    for name, command in COMMANDS.items():
        summary = shlex.quote((command.__doc__ or "").splitlines()[0].replace("'", ""))
        lines += [f"{start} -f -a {name} -d {summary}"]
        lines += [
            f"complete -c jaxcontam -n '__fish_seen_subcommand_from {name}'"
            f" -l {flag.removeprefix('--')}"
            + (f" -x -a '{' '.join(words)}'" if words else "")
            for flag, words in flags_of(command).items()
        ]
    return "\n".join(lines) + "\n"
