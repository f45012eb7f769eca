"""Files that a user names: whether they are there, and which one was meant."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse what is no file.

    Args:
        path: As the user named it.
        suffixes: Of files that could have been meant, with the dot.

    Raises:
        InputError: If it is missing (names the nearest one there is), a folder, or out
            of reach.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder", hint="name one file")
        if not path.is_file():
            raise InputError(
                f"{path}: no such file",
                hint=similar_path(path, lambda p: p.suffix in suffixes),
            )
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e


def read_json_object(path: Path) -> dict[str, Any]:
    """Fields of a JSON file that holds one object.

    Raises:
        InputError: If the file is not readable, or holds something else.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not JSON ({e})") from e
    if not isinstance(fields, dict):
        raise InputError(f"{path}: expected an object, got {type(fields).__name__}")
    return fields


def similar_path(path: Path, could_be: Callable[[Path], bool]) -> str:
    """A hint: what has nearly this name beside a path that is missing; "" if nothing.

    Args:
        path: As the user named it.
        could_be: Whether a path beside it could have been meant.
    """
    import difflib

    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    names = [p.name for p in path.parent.iterdir() if could_be(p)]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / close[0])!r}?" if close else ""
