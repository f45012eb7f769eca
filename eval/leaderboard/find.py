"""Entries from their files: those of this package, and those that the user names."""

import dataclasses
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.leaderboard import entries
from eval.leaderboard.detector import Entry
from jaxcontam.errors import InputError, unknown_name


@dataclasses.dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry and the digest of its file, by which a changed one is told."""

    entry: Entry
    digest: str


def built_in_entries() -> dict[str, FoundEntry]:
    """Every file of `eval/leaderboard/entries`, by the name of its entry.

    Raises:
        InputError: If a file holds no entry, or two have one name.
    """
    found = [
        _of_module(
            importlib.import_module(f"{entries.__name__}.{info.name}"),
            Path(entries.__path__[0]) / f"{info.name}.py",
        )
        for info in pkgutil.iter_modules(entries.__path__)
    ]
    return _by_name(found)


def entry_of_file(path: Path) -> FoundEntry:
    """The entry of a file that the user names; runs the file.

    The file stands alone: a module beside it is not found, nor would a change of it be
    noticed.

    Raises:
        InputError: If there is no such file, or it holds no entry.
    """
    if not path.is_file() or path.suffix != ".py":
        raise InputError(
            f"{path}: no such Python file",
            hint="--entry names a file that holds an ENTRY; see docs/leaderboard.md",
        )
    # Files of one name in two folders are two modules.
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    name = f"_entry_{path.stem}_{place[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look the module of their annotations up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return _of_module(module, path)


def chosen_entries(
    files: Sequence[Path], only: Sequence[str]
) -> Mapping[str, FoundEntry]:
    """What a run compares.

    Args:
        files: Of the user, beside those of the package.
        only: Names; none takes all.

    Raises:
        InputError: If a name is unknown or taken twice, or a file holds no entry.
    """
    found = _by_name(
        [*built_in_entries().values(), *(entry_of_file(path) for path in files)]
    )
    for name in only:
        if name not in found:
            raise unknown_name("entry", name, found)
    return {name: found[name] for name in found if not only or name in only}


def _of_module(module: object, path: Path) -> FoundEntry:
    entry = getattr(module, "ENTRY", None)
    if not isinstance(entry, Entry):
        raise InputError(
            f"{path}: holds no ENTRY",
            hint="ENTRY = Entry(...) from eval.leaderboard.detector; see "
            "docs/leaderboard.md",
        )
    return FoundEntry(entry, hashlib.sha256(path.read_bytes()).hexdigest())


def _by_name(found: Sequence[FoundEntry]) -> dict[str, FoundEntry]:
    names = [one.entry.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two entries are named {name!r}", hint="give yours another name"
            )
    return dict(zip(names, found, strict=True))
