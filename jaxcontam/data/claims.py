"""One process writes a file: a claim that ends with the process, however it ends."""

import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import IO

from jaxcontam.errors import InputError

# Claims of this process, by device and inode: several objects may share one.
_CLAIMS: "weakref.WeakValueDictionary[tuple[int, int], Claim]"
_CLAIMS = weakref.WeakValueDictionary()
_CLAIMING = threading.Lock()


class Claim:
    """This process's right to write a file, for as long as the object lives.

    Attributes:
        writing: Held by the thread that writes.
    """

    def __init__(self, handle: int):
        """Takes a handle on the locked file, which it closes."""
        self.writing = threading.Lock()
        weakref.finalize(self, os.close, handle)


def claimed(file: IO[bytes] | IO[str], path: Path) -> Claim:
    """Claim a file that is open for writing, where the system supports locks.

    It may be closed while the claim lives.

    Raises:
        InputError: If another process has claimed it.
    """
    place = os.fstat(file.fileno())
    with _CLAIMING:
        found = _CLAIMS.get((place.st_dev, place.st_ino))
        if found is None:
            _lock(file.fileno(), path)
            # Locks belong to what is open, not to a handle: the copy keeps it.
            found = Claim(os.dup(file.fileno()))
            _CLAIMS[place.st_dev, place.st_ino] = found
        return found


def _lock(handle: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return
    # A file system without locks gives another error, and no protection.
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{path}: another run writes to it",
                hint="wait until that run has ended, or name another folder",
            ) from None
