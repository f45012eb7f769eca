"""`jaxcontam`: parse, call the library, print. No logic lives here."""

import ast
import collections
import contextlib
import dataclasses
import errno
import functools
import inspect
import io
import itertools
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import tyro

import jaxcontam
from jaxcontam.arguments import flag_of
from jaxcontam.errors import (
    InputError,
    StorageError,
    first_line,
    gone,
    nearest,
    unknown_name,
)
from jaxcontam.processes import is_first, joined
from jaxcontam.renamed import GONE, new_flag
from jaxcontam.reports.flags import MERGE, POD, DeviceFlags, is_positional, own_folder
from jaxcontam.scoring.parts import ShareScored
from jaxcontam.signals import interrupted, signal_of, stop_on_signals
from jaxcontam.terminal_text import printable

EXIT_DONE, EXIT_INPUT, EXIT_PARTIAL = 0, 2, 3

# Clean-ups take less.
_AGAIN_SECONDS = 0.05
# What is wrong stands at the start of a line or at its end, values between them.
_LONGEST_LINE = 2_000
# What a machine refuses, wherever it is met: rights, and room.
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
_REFUSALS = (*_DENIED, errno.ENOSPC, errno.EDQUOT, errno.EIO)
# One flag a switch; None is no word that a user types; BENCHMARK, not STR.
_TYRO = (
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.DisallowNone,
    tyro.conf.PositionalMetavarFromFieldName,
)

# What tyro says of a word that does not parse -> what is said here.
_FLAG, _WORD = r"(?P<flag>\S+)", r"'(?P<word>.*)'"
_NO_MATCH = rf"Error parsing {_FLAG}: no type matching %s could be instantiated from .*"
_SAID = (
    (_NO_MATCH % "INT" + rf"\[{_WORD}\]\.", "{flag}: {word!r} is not a whole number"),
    (
        rf"Error parsing {_FLAG}: invalid literal for int\(\) with base 10: {_WORD}",
        "{flag}: {word!r} is not a whole number",
    ),
    (_NO_MATCH % "FLOAT" + rf"\[{_WORD}\]\.", "{flag}: {word!r} is not a number"),
    (
        rf"Error parsing {_FLAG}: could not convert string to float: {_WORD}",
        "{flag}: {word!r} is not a number",
    ),
    (
        rf"invalid choice {_WORD} for argument '{_FLAG}'\. Expected one of "
        r"\((?P<choices>.*)\)\.",
        "{flag}: {word!r} is none of {choices}",
    ),
    (
        rf"Could not find valid parse for arguments: \[{_WORD}\].*",
        "{word!r} is no value of the flag before it",
    ),
    (rf"Missing value for argument '{_FLAG}'\. Expected .*", "{flag} has no value"),
    (rf"Missing from .*?: {_FLAG}( .*)?", "{flag} is missing"),
)
_COMPLETION = ("--tyro-print-completion", "--tyro-write-completion")
_SHELLS = ("bash", "zsh", "fish")

COMMANDS: dict[str, type] = {
    name.lower(): getattr(jaxcontam, name) for name in jaxcontam.COMMANDS
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse `argv` and run one command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):
        return run_command(lambda: print(jaxcontam.__version__))
    if words[:1] and words[0] in _COMPLETION:
        return run_command(lambda: _complete(words))
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
        print("  hint: use fewer examples: --limit or --sample N", file=sys.stderr)
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
    words = printable(words)
    if len(words) <= _LONGEST_LINE:
        return words
    half = _LONGEST_LINE // 2
    return f"{words[:half]} ... {words[-half:]}"


def parse(command: type, words: Sequence[str], *, prog: str) -> Any:
    """Parse words into a dataclass whose fields are the flags.

    `--help` describes the flags under the class's docstring.
    """
    _describe_flags(command)
    _refuse_odd_flags(command, words)
    said, see = io.StringIO(), f"see {prog} --help"
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
        _refuse_unknown_flags(command, words, prog)
        raise
    except SystemExit as e:
        if not e.code:
            raise
        _refuse_unknown_flags(command, words, prog)
        raise InputError(_first_sentence(said.getvalue()), hint=see) from None
    if unknown and unknown[0].startswith("-"):
        raise _unknown_flag(command, unknown[0], prog)
    if unknown:
        raise InputError(f"unexpected argument {unknown[0]!r}", hint=see)
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
        kinds, words = inspect.get_annotations(owner), _words_of_fields(owner)
        for name in kinds.keys() & fields.keys() & words.keys():
            default, metavar = fields[name].default, None
            hint = None
            if is_positional(fields[name]) and "tuple" in str(fields[name].type):
                metavar = f"{name.upper()} ..."
                metavar = f"[{metavar}]" if default == () else metavar
            if default in (None, (), "") or default is False:
                hint = ""
            elif default is dataclasses.MISSING:
                hint = "(required)"
            elif isinstance(default, str) and not default.isprintable():
                hint = f"(default: {default!r})"
            about = tyro.conf.arg(
                help=words[name], help_behavior_hint=hint, metavar=metavar
            )
            kinds[name] = Annotated[*_light(kinds[name]), about]
        owner.__annotations__ = kinds


def _words_of_fields(owner: type) -> dict[str, str]:
    """What the source says below each field of a dataclass, as one paragraph.

    Nothing of one that a function made: its fields have words of their own.
    """
    found = _classes(owner.__module__).get(owner.__qualname__)
    body = [] if found is None else found.body
    return {
        field.target.id: " ".join(said.value.value.split())
        for field, said in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
        and isinstance(said.value.value, str)
    }


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}


def _light(kind: Any) -> list[Any]:
    """A field's kind and its marks, in the form whose default tyro checks by itself.

    Of a tuple, and of `int | None`, it asks typeguard, which takes longer to import
    than tyro.
    """
    bare, *marks = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if isinstance(bare, types.UnionType):
        return [Union[get_args(bare)], *marks]  # noqa: UP007
    if get_origin(bare) is not tuple:
        return [bare, *marks]
    item, *rest = get_args(bare)
    words = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}
    if item not in words or rest != [...]:
        return [bare, *marks]
    word = words[item]
    spec = tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{word} [{word} ...]]",
        instance_from_str=lambda words: tuple(map(item, words)),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [*map(str, values)],
    )
    return [object, spec, *marks]


def _refuse_unknown_flags(command: type, words: Sequence[str], prog: str) -> None:
    known = flags_of(command)
    for flag in _flags_in(words):
        is_known = flag in known or flag.replace("--no-", "--", 1) in known
        if not is_known or _new_flag(command, flag):
            raise _unknown_flag(command, flag, prog) from None


def _unknown_flag(command: type, flag: str, prog: str) -> InputError:
    if new := _new_flag(command, flag):
        return gone(flag, new)
    hint = f"{nearest(flag, flags_of(command))}see {prog} --help"
    return InputError(f"unknown flag {flag!r}", hint=hint)


def _new_flag(command: type, flag: str) -> str | None:
    """The flag of a command of ours that replaces one that left, if there is one."""
    name, known = command.__name__.lower(), flags_of(command)
    if COMMANDS.get(name) is not command or flag in known:
        return None
    new = new_flag(name, flag) or ""
    return None if new.startswith("--") and new.split()[0] not in known else new


def _refuse_odd_flags(command: type, words: Sequence[str]) -> None:
    """Refuse a flag that occurs twice, of which the parser takes the last, or alone."""
    fields = dataclasses.fields(command)
    several = {flag_of(one.name) for one in fields if "tuple" in str(one.type)}
    for flag, n in collections.Counter(_flags_in(words)).items():
        if n > 1 and flag in flags_of(command):
            hint = f"{flag} A B takes several" if flag in several else "give it once"
            raise InputError(f"{flag} occurs {n} times", hint=hint)
    for word, after in itertools.pairwise([*words, "--"]):
        # The parser takes nothing for several.
        if word.replace("_", "-") in several and after.startswith("--"):
            raise InputError(f"{word}: no value follows")


def _flags_in(words: Sequence[str]) -> list[str]:
    flags = (word.partition("=")[0].replace("_", "-") for word in words)
    return [flag for flag in flags if flag.startswith("--") and flag != "--"]


def _run(words: list[str]) -> object:
    if not words or words[0] in ("-h", "--help"):
        _print_help()
        return EXIT_DONE
    if words[0] in GONE:
        raise gone(words[0], GONE[words[0]])
    if words[0] not in COMMANDS:
        raise unknown_name("command", words[0], (*COMMANDS, "--version", "--help"))
    name, rest = words[0], words[1:]
    command = parse(COMMANDS[name], rest, prog=f"jaxcontam {name}")
    run = command.run
    with own_folder(name, command):
        is_shared = isinstance(command, DeviceFlags) and command.shard is not None
        return _run_share(command) if is_shared else run()


def _run_share(command: Any) -> object:
    """Run a command of which each process scores a share; of a pod the first judges."""
    is_pod = command.shard == POD
    with joined(is_pod):
        judges = is_pod and is_first()
        try:
            return command.run()
        except ShareScored as e:
            print(e)
    if judges:
        return dataclasses.replace(command, shard=MERGE).run()
    return None


def _print_help() -> None:
    """The commands; tyro's own list would first make the parsers of all of them."""
    print("usage: jaxcontam COMMAND ...   (jaxcontam COMMAND --help lists its flags)\n")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  {name:<{width}} {(command.__doc__ or '').splitlines()[0]}")
    print(f"\n  {'--version':<{width}} prints the version")
    print(f"  {_COMPLETION[0]} SHELL prints a script for {', '.join(_SHELLS)}")


def _complete(words: list[str]) -> None:
    if words[1:2] == [] or words[1] not in _SHELLS:
        raise InputError(
            f"name a shell after {words[0]}: {', '.join(_SHELLS)}",
            hint=f"such as: source <(jaxcontam {_COMPLETION[0]} bash)",
        )
    tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="jaxcontam", args=words, config=_TYRO
    )


def _first_sentence(box: str) -> str:
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
    said = " ".join(lines) or "the command line does not parse"
    for pattern, words in _SAID:
        if found := re.fullmatch(pattern, said):
            parts = found.groupdict()
            # Choices are a tuple of Python.
            parts["choices"] = parts.get("choices", "").replace("'", "")
            return words.format_map(parts)
    return said


def flags_of(command: type) -> list[str]:
    """The flags of a dataclass."""
    fields = dataclasses.fields(command)
    return [*(flag_of(one.name) for one in fields if not is_positional(one)), "--help"]
