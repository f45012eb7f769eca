"""Which processes of a run see the same files."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.data.bucket import bucket_errors, is_url
from jaxcontam.errors import InputError
from jaxcontam.processes import (
    barrier,
    broadcast_bytes,
    gather,
    process_count,
    process_index,
)

LOCK_NAME = "run.lock"
_SCHEMES = ("gs", "s3")


def disk_leader(folder: Path) -> int:
    """The first of the processes that see this process's folder; itself where alone.

    All processes ask at the same time, each for its own folder of this name.
    """
    if process_count() == 1:
        return 0
    nonce = broadcast_bytes(secrets.token_hex(8).encode()).decode()
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


def run_home(word: str | None, out: Path, flag: str = "--checkpoints") -> Any:
    """Where checkpoints are kept, and all that must outlive the disk of `out`.

    Args:
        word: A folder or an address; None is `out`.
        out: Folder of the run.
        flag: That the word was typed after.

    Returns:
        An `etils.epath.Path`.

    Raises:
        InputError: If it is no such place, or this process may not write there.
        StorageError: If a bucket is silent.
    """
    from etils import epath

    if word is None:
        return epath.Path(os.path.abspath(out))
    is_bucket = is_url(word)
    if is_bucket and word.partition("://")[0] not in _SCHEMES:
        raise InputError(
            f"{flag} {word}: an address begins with "
            f"{', '.join(f'{scheme}://' for scheme in _SCHEMES)}",
            hint="or name a folder where the bucket is mounted",
        )
    home = epath.Path(word if is_bucket else os.path.abspath(word))
    with bucket_errors(flag, word, "written"):
        home.mkdir(parents=True, exist_ok=True)
        # A bucket has no folders to make: only a file shows whether it can be written.
        probe = home / f".written-{process_index()}-{secrets.token_hex(8)}"
        probe.write_text("written")
        probe.unlink()
    return home


@contextlib.contextmanager
def alone(folder: Path, flag: str) -> Iterator[None]:
    """Keep other processes out of a run's folder; a killed one holds nothing.

    Raises:
        InputError: If one trains there now.
    """
    with (folder / LOCK_NAME).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise InputError(
                f"{folder}: another process trains there", hint=f"another {flag}"
            ) from e
        except OSError:
            pass  # a file system without locks, such as a bucket that is mounted
        yield


def check_home(home: Any) -> None:
    """Refuse a folder that is another one on another host.

    Raises:
        InputError: If processes would each write checkpoints on their own disk.
    """
    if process_count() == 1 or is_url(home):
        return
    home.mkdir(parents=True, exist_ok=True)
    leaders = gather(np.array([disk_leader(Path(home))]))
    # All end together: one that went on would wait for the others.
    if leaders.any():
        raise InputError(
            f"{home}: process {int(leaders.argmax())} does not see what process 0 "
            "writes there, and all processes write parts of a checkpoint",
            hint="--checkpoints names a folder that all hosts share, or gs://bucket/run",
        )


def keep_at_home(out: Path, home: Any, *names: str) -> None:
    """Copy files and folders of a run where they outlive its disk.

    What is not in `out` goes there too: it would be of another run.
    """
    if is_same_folder(out, home):
        return
    from etils import epath

    copy_to(epath.Path(out.absolute()), home, names)


def copy_to(folder: Any, home: Any, names: Iterable[str]) -> None:
    """Copy files and folders, one after the other; what is not in `folder` goes."""
    home.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = folder / name, home / name
        if source.is_dir():
            if target.exists():
                target.rmtree()
            _copy_folder(source, target)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            source.copy(target, overwrite=True)
        elif target.exists():
            target.unlink()


def fetch_from_home(out: Path, home: Any, *names: str) -> None:
    """Copy files back, over those of a disk that may be fresh or hold another run."""
    if is_same_folder(out, home):
        return
    for name in names:
        if (home / name).exists():
            (home / name).copy(out / name, overwrite=True)


def is_same_folder(out: Path, home: Any) -> bool:
    """Whether a run is kept where it is written, also by a link."""
    return not is_url(home) and home.exists() and os.path.samefile(out, home)


def _copy_folder(source: Any, target: Any) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            _copy_folder(path, target / path.name)
        else:
            path.copy(target / path.name, overwrite=True)
