"""Files that replace nothing and are written whole or not at all."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.errors import InputError
from jaxcontam.reports.report_files import part_path, sweep_parts


def write_new_files(files: Sequence[tuple[Path, bytes, int]]) -> None:
    """Write all files or none; a file that exists is never touched.

    Each is a path, content and mode, the most precious first. It is written whole
    beside its place and then linked to its name, which fails where the name is taken,
    even by a process that came in between. A mapping would lose one of two equal paths.
    """
    targets: set[str] = set()
    for path, _, _ in files:
        # Where links and `..` lead: one file may have two names.
        target = os.path.realpath(path)
        if target in targets:
            raise InputError(
                f"{path}: two outputs would go to this file",
                hint="give each a name of its own",
            )
        targets.add(target)
    for path, _, _ in files:
        _refuse_existing(path)
    parts: list[tuple[Path, Path]] = []
    linked: list[Path] = []
    path = files[0][0]
    try:
        for path, data, mode in files:
            sweep_parts(path)
            part = part_path(path)
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            parts.append((part, path))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for part, path in parts:
            _link(part, path)
            linked.append(path)
    except BaseException as e:
        for done in linked:
            done.unlink()
        if isinstance(e, FileExistsError):
            raise _taken(Path(e.filename2 or e.filename)) from e
        if isinstance(e, OSError):
            # A write that fails does not say of which file.
            raise InputError(
                f"{path}: cannot be written ({e.strerror})",
                hint="nothing was written: make room, or name another place",
            ) from e
        raise
    finally:
        for part, _ in parts:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


def _link(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: the look before is all that can be done.
        _refuse_existing(path)
        part.rename(path)


def _refuse_existing(path: Path) -> None:
    # A link to nowhere is a name that is taken, too.
    if os.path.lexists(path):
        raise _taken(path)


def _taken(path: Path) -> InputError:
    return InputError(
        f"{path}: exists, and is not overwritten", hint="give another name, or move it"
    )
