"""Files that a user names: whether they are there, and which one was meant."""

from collections.abc import Sequence
from pathlib import Path

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
            raise InputError(f"{path}: no such file", hint=_similar(path, suffixes))
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e


def _similar(path: Path, suffixes: Sequence[str]) -> str:
    import difflib

    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    names = [p.name for p in path.parent.iterdir() if p.suffix in suffixes]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {str(path.parent / close[0])!r}?" if close else ""
