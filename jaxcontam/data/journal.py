"""Append-only files of finished work, so that a rerun repeats none of it.

A record is one line of JSON, its key, its value and a checksum of both:

    {"key": "5f0c...", "value": ..., "check": "9a31..."}

A killed writer leaves whole lines and at most part of one more, which has no newline:
readers skip it and the next writer cuts it off. A line that ends in a newline but fails
its checksum is damaged; only that line is lost. One process writes a file, from its
first record to its end, and a record's key is compared whenever it is read.
"""

import contextlib
import fnmatch
import hashlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

from jaxcontam.errors import InputError
from jaxcontam.terminal_text import printable

_DECODER = json.JSONDecoder()
_KEY_AT = len('{"key": ')
_CHECK_BYTES = len(', "check": "0123456789abcdef"}\n')
# Read at once when the last newline of a file is looked for.
_BLOCK_BYTES = 4096

_Place = tuple[Path, int, int]
"""A file, and a line in it: its first byte, and how many."""

# Claims of this process, by device and inode: several objects may share one.
_CLAIMS: "weakref.WeakValueDictionary[tuple[int, int], Claim]"
_CLAIMS = weakref.WeakValueDictionary()
_CLAIMING = threading.Lock()


class Records:
    """JSON values by key: one file to append to, any number beside it to read.

    Thread-safe. Within a file the last value of a key counts; between files the first
    one that was read does.
    """

    def __init__(
        self,
        own: Path,
        *,
        beside: str | None = None,
        about: Any = None,
        is_synced: bool = True,
    ):
        """Read what is there; nothing is written before the first `append`.

        `beside` matches files of the same folder that are read as well, `*` being any
        characters. `about` is written as the first record of a new file, for people who
        open it. Unless `is_synced`, a power failure may lose the last records, a killed
        process none.
        """
        self._own = own
        self._beside = beside
        self._about = about
        self._is_synced = is_synced
        self._lock = threading.RLock()
        self._places: dict[str, _Place] = {}
        # End of the lines read so far, by file.
        self._ends: dict[Path, int] = {}
        self._warned: set[Path] = set()
        self._claim: Claim | None = None
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    @property
    def is_empty(self) -> bool:
        """True if the files held no value when they were last read."""
        return not self._places

    def refresh(self) -> None:
        """Read what other processes have added."""
        with self._lock:
            for path in self._paths():
                try:
                    self._read(path)
                except FileNotFoundError:
                    continue
                except OSError as e:
                    if path == self._own:
                        raise
                    self._warn(path, f"cannot be read ({e.strerror})")

    def values(self, keys: Sequence[str]) -> list[Any] | None:
        """Values of all keys, or None if one is missing, damaged or another's."""
        found: list[Any] = []
        files: dict[Path, BinaryIO] = {}
        with self._lock, contextlib.ExitStack() as stack:
            for key in keys:
                if (place := self._places.get(key)) is None:
                    return None
                path, start, size = place
                try:
                    if path not in files:
                        opened = path.open("rb", buffering=0)
                        files[path] = stack.enter_context(opened)
                    files[path].seek(start)
                    line = files[path].read(size)
                except OSError:
                    line = b""
                row = json.loads(line) if _is_whole(line) else {}
                if row.get("key") != key:
                    self._forget(path)
                    return None
                found.append(row["value"])
        return found

    def claim(self) -> None:
        """Keep other processes from writing the own file; creates it."""
        if self._claim is None:
            with self._opened():
                # What another one added before it ended.
                self.refresh()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The own file, which nobody else writes meanwhile."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        with (
            self._lock,
            open(os.open(self._own, flags, 0o666), "r+b", buffering=0) as file,
        ):
            # Another file than before, if that was deleted.
            self._claim = claimed(file, self._own)
            with self._claim.writing:
                yield file

    def append(self, values: Mapping[str, Any]) -> None:
        """Keep values, in the file before this returns; if it fails, some are kept."""
        with self._lock:
            with self._opened() as file:
                start = _end_of_lines(file)
                if start == 0:
                    self._forget(self._own)
                    if self._about is not None:
                        values = {"about": self._about, **values}
                lines = {key: record_line(key, v) for key, v in values.items()}
                file.truncate(start)
                file.seek(start)
                rest = memoryview(b"".join(lines.values()))
                while rest:
                    rest = rest[file.write(rest) :]
                if self._is_synced:
                    os.fsync(file.fileno())
            if self._ends.get(self._own, 0) == start:
                self._ends[self._own] = start + sum(map(len, lines.values()))
            for key, line in lines.items():
                self._places[key] = self._own, start, len(line)
                start += len(line)

    def _paths(self) -> list[Path]:
        if self._beside is None:
            return [self._own]
        try:
            names = sorted(os.listdir(self._own.parent))
        except FileNotFoundError:
            return []
        return [self._own.parent / name for name in fnmatch.filter(names, self._beside)]

    def _read(self, path: Path) -> None:
        """Read the whole lines behind those that were read."""
        size, end = path.stat().st_size, self._ends.get(path, 0)
        if size < end:
            self._forget(path)
            end = 0
        if size == end:
            return
        places: dict[str, _Place] = {}
        with path.open("rb") as file:
            file.seek(end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                if _is_whole(line):
                    places[_key_of(line)] = path, end, len(line)
                else:
                    self._warn(path, f"is damaged after byte {end}")
                end += len(line)
        self._ends[path] = end
        for key, place in places.items():
            if path == self._own or self._places.get(key, place)[0] == path:
                self._places[key] = place

    def _forget(self, path: Path) -> None:
        """Drop the places of a file that was deleted or replaced."""
        self._ends.pop(path, None)
        self._places = {k: p for k, p in self._places.items() if p[0] != path}

    def _warn(self, path: Path, reason: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            print(
                f"jaxcontam: warning: {printable(path)}: {reason}; missing entries are "
                "redone",
                file=sys.stderr,
            )


class Journal(Records):
    """Finished pieces of a run in one file, with errors in words for its user.

    Values stay in the file, because answers with log-probabilities may not fit into
    memory.
    """

    def __init__(self, path: Path):
        """Read what is there."""
        self.path = path
        try:
            super().__init__(path)
        except OSError as e:
            raise InputError(f"{path}: not readable ({e.strerror})") from e

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        if (found := self.values([key])) is None:
            raise InputError(f"{self.path}: changed while it was in use")
        return found[0]

    def claim(self) -> None:
        """Keep other processes from adding pieces, before one is paid for."""
        with self._writable():
            super().claim()

    def add(self, key: str, value: Any) -> None:
        """Keep a piece, on disk before this returns."""
        with self._writable():
            self.append({key: value})

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise InputError(f"{self.path}: cannot be written ({e.strerror})") from e


class MemoryJournal(Journal):
    """A journal of which nothing is written."""

    def __init__(self):
        self._kept: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def __getitem__(self, key: str) -> Any:
        return self._kept[key]

    def claim(self) -> None:
        """Nobody else has it."""

    def add(self, key: str, value: Any) -> None:
        """Keep a value."""
        self._kept[key] = value


def journal_in(folder: Path, name: str) -> Journal:
    """The journal of a name in a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(f"{folder}: cannot be made ({e.strerror})") from e
    return Journal(folder / name)


def journal_key(*parts: object) -> str:
    """Digest of everything that a piece depends on."""
    words = json.dumps(parts, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(words.encode()).hexdigest()


def record_line(key: str, value: Any) -> bytes:
    """A record as a file holds it, its newline included."""
    row = json.dumps({"key": key, "value": value}, allow_nan=False)
    return _with_check(row[:-1].encode())


def _with_check(head: bytes) -> bytes:
    check = hashlib.sha256(head).hexdigest()[:16]
    return head + f', "check": "{check}"}}\n'.encode()


def _is_whole(line: bytes) -> bool:
    """True if a line has the checksum of what stands before it."""
    return line == _with_check(line[:-_CHECK_BYTES])


def _key_of(line: bytes) -> str:
    """Key of a whole line; its value may be long, and is not needed yet."""
    return _DECODER.raw_decode(line.decode("ascii"), _KEY_AT)[0]


def _end_of_lines(file: BinaryIO) -> int:
    """Offset after the last newline of a file."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


class Claim:
    """This process's right to write a file, for as long as the object lives."""

    def __init__(self, handle: int):
        """Takes a handle on the locked file, which it closes."""
        # Held by the thread that writes.
        self.writing = threading.Lock()
        weakref.finalize(self, os.close, handle)


def claimed(file: IO[bytes] | IO[str], path: Path) -> Claim:
    """Claim a file that is open for writing, where the system supports locks.

    It may be closed while the claim lives.
    """
    place = os.fstat(file.fileno())
    with _CLAIMING:
        found = _CLAIMS.get((place.st_dev, place.st_ino))
        if found is None:
            lock(file.fileno(), path)
            # Locks belong to what is open, not to a handle: the copy keeps it.
            found = Claim(os.dup(file.fileno()))
            _CLAIMS[place.st_dev, place.st_ino] = found
        return found


def lock(
    handle: int,
    path: Path,
    *,
    hint: str = "wait until that run has ended, or name another folder",
) -> None:
    """Have a file or folder alone until the handle is closed, or this process ends."""
    try:
        import fcntl
    except ImportError:
        return
    # A file system without locks gives another error, and no protection.
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{path}: another run writes to it", hint=hint) from None
