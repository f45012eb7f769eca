"""The exceptions that a command turns into one line."""

import difflib
import shlex
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement


class InputError(Exception):
    """Bad input from outside the program: a flag, a file, a record.

    No ValueError, which argument parsers catch and print in words of their own. The
    message says what is wrong and where, in one line; `hint` says what to do. The
    command line prints both and exits with 2; every other exception keeps its
    traceback.
    """

    def __init__(self, message: str, *, hint: str = ""):
        super().__init__(message)
        self.hint = hint


class StorageError(Exception):
    """Storage that other runs of the command may well reach refuses or is silent.

    No fault of the input and no bug here: one line, a hint, and exit code 3.
    """

    def __init__(self, message: str, *, hint: str):
        super().__init__(message)
        self.hint = hint


def first_line(error: BaseException) -> str:
    """First line of what an error says, for a message; its type if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def nearest(name: str, choices: Iterable[str]) -> str:
    """`did you mean 'x'? ` for the choice that looks like a name, or nothing."""
    found = difflib.get_close_matches(name, list(choices), n=1)
    return f"did you mean {found[0]!r}? " if found else ""


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not among `choices`, nearest one first."""
    known = list(choices)
    error = InputError(
        f"unknown {kind} {name!r}",
        hint=f"{nearest(name, known)}choices: {', '.join(known)}",
    )
    # Python's traceback shows notes; a command prints the hint.
    error.add_note(error.hint)
    return error


def gone(name: str, new: str) -> InputError:
    """An `InputError` for a name that left, which says what to use now."""
    return InputError(f"there is no {name} any more: {new}")


def requirements(extra: str | None = None) -> "list[Requirement]":
    """Requirements of jaxcontam, or those of an extra; empty if not installed."""
    import importlib.metadata

    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("jaxcontam") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for one in map(Requirement, lines):
        is_base = one.marker is None or one.marker.evaluate({"extra": ""})
        of_extra = extra and one.marker and one.marker.evaluate({"extra": extra})
        if is_base if extra is None else of_extra and not is_base:
            found.append(one)
    return found


def install_hint(extra: str) -> str:
    """The command that installs what an extra of ours needs, clone or not."""
    needed = [
        one.name + f"[{','.join(one.extras)}]" * bool(one.extras) + str(one.specifier)
        for one in requirements(extra)
    ]
    if not needed:
        return f"pip install -c constraints.txt -e '.[{extra}]'"
    return f"pip install {shlex.join(needed)}"


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that is not among those known: raises `unknown_name`."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)
