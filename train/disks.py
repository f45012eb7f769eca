"""Which processes of a run see the same files."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.hosts import barrier, broadcast_bytes, process_count, process_index


def disk_leader(folder: Path) -> int:
    """The first of the processes that see this process's folder; itself where alone.

    All processes ask at the same time, each for its own folder of this name.

    Args:
        folder: Exists.
    """
    if process_count() == 1:
        return 0
    nonce = broadcast_bytes(secrets.token_hex(8).encode(), name="nonce").decode()
    mark = folder / f".process-{nonce}-{process_index()}"
    mark.touch()
    try:
        barrier("marked")
        # A listing asks the server, where a name may be looked up in a cache.
        found = [
            int(name.rpartition("-")[2])
            for name in os.listdir(folder)
            if name.startswith(f".process-{nonce}-")
        ]
        barrier("seen")
    finally:
        with contextlib.suppress(OSError):
            mark.unlink()
    return min(found)


def run_home(word: str | None, out: Path) -> Any:
    """Where checkpoints are kept, and all that must outlive the disk of `out`.

    Args:
        word: A folder or an address such as gs://bucket/run; None is `out`.
        out: Folder of the run.

    Returns:
        An `etils.epath.Path`.

    Raises:
        InputError: If such addresses cannot be read here.
    """
    from etils import epath

    if word is None or "://" not in word:
        return epath.Path(os.path.abspath(out if word is None else word))
    home = epath.Path(word)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except ImportError as e:
        raise InputError(
            f"--checkpoints {word}: such addresses are not read here ({e})",
            hint="install that package, or name a folder where the bucket is mounted",
        ) from e
    except Exception as e:  # every kind of storage has errors of its own
        first_line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise InputError(
            f"--checkpoints {word}: cannot be written ({first_line[:200]})",
            hint="does the bucket exist, and may this machine write there?",
        ) from e
    return home


def check_home(home: Any) -> None:
    """Refuse a folder that is another one on another host.

    Raises:
        InputError: If processes would each write checkpoints on a disk of their own.
    """
    if process_count() == 1 or "://" in str(home):
        return
    home.mkdir(parents=True, exist_ok=True)
    if disk_leader(Path(home)) != 0:
        raise InputError(
            f"{home}: process {process_index()} does not see what process 0 writes "
            "there, and all processes write parts of a checkpoint",
            hint="--checkpoints names a folder that all hosts share, or gs://bucket/run",
        )


def keep_at_home(out: Path, home: Any, *names: str) -> None:
    """Copy files and folders of a run where they outlive its disk."""
    if _is_same(out, home):
        return
    from etils import epath

    home.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = epath.Path(out.absolute()) / name, home / name
        if source.is_dir():
            if target.exists():
                target.rmtree()
            _copy_folder(source, target)
        elif source.exists():
            source.copy(target, overwrite=True)


def fetch_from_home(out: Path, home: Any, *names: str) -> None:
    """Copy files back that a fresh disk does not have."""
    for name in names:
        if not (out / name).exists() and (home / name).exists():
            (home / name).copy(out / name)


def _is_same(out: Path, home: Any) -> bool:
    # Also where one path leads to the other by a link.
    return "://" not in str(home) and home.exists() and os.path.samefile(out, home)


def _copy_folder(source: Any, target: Any) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            _copy_folder(path, target / path.name)
        else:
            path.copy(target / path.name, overwrite=True)
