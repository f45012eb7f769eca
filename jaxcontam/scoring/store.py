"""Scores on disk, so that no row is scored twice.

A folder holds one file for each process that wrote there; see `records` for their
layout. A process appends to its own file alone and reads all others of the same
`ScoreIdentity`, also while they grow. The folder may be deleted at any moment: what is
gone is scored again.
"""

import hashlib
import itertools
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.scoring.identity import ScoreIdentity
from jaxcontam.scoring.records import (
    Place,
    head_line,
    places_of,
    read_records,
    record_bytes,
)
from jaxcontam.terminal import visible

SUFFIX = ".scores"
"""Of the files in a folder of scores."""


class RowKeys:
    """Names rows by what their scores depend on."""

    def __init__(self, identity: bytes):
        """Digest of what all scores depend on."""
        self._key_start = hashlib.sha256(identity)

    def row_key(
        self, kept: str, shape: tuple[int, ...], first: int, ids: np.ndarray
    ) -> bytes:
        """Key of a row: equal keys have bit-equal values.

        Args:
            kept: Name of what is kept of the row's scores.
            shape: (B, S) of its batch, or what else tells compiled programs apart.
            first: First target whose score is the row's own.
            ids: int32, inputs and last target, prefix and separators among them.
        """
        key = self._key_start.copy()
        key.update(f"{kept} {' '.join(map(str, shape))} {first}\n".encode())
        key.update(ids.astype("<i4").tobytes())
        return key.digest()


class ScoreStore(RowKeys):
    """Values by key, in a folder that several processes may share."""

    def __init__(self, directory: Path, identity: ScoreIdentity):
        """Read what is there; nothing is written before the first commit.

        Args:
            directory: Need not exist.
            identity: Files of other identities are left alone.

        Raises:
            InputError: If the path is no folder, or not readable.
        """
        super().__init__(identity.digest)
        self.directory = directory
        self.identity = identity
        self._head = head_line(identity.text)
        self._prefix = identity.digest.hex()[:16] + "-"
        self._places: dict[bytes, Place] = {}
        # Of each file, its size when it was last read and the end of its records.
        self._read: dict[Path, tuple[int, int]] = {}
        self._skipped: set[Path] = set()
        self._own: Path | None = None
        self._refresh()

    def holds(self, keys: Sequence[bytes]) -> bool:
        """Whether all keys are there, looking once more at the folder if not."""
        if self._knows(keys):
            return True
        self._refresh()
        return self._knows(keys)

    def values(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Values of all keys, or None if one is missing."""
        if not self.holds(keys):
            return None
        values = []
        places = [self._places[key] for key in keys]
        for path, of_file in itertools.groupby(places, key=lambda place: place.path):
            found = _read_values(path, list(of_file))
            if found is None:
                self._forget(path)
                return None
            values += found
        return values

    def commit(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the (key, value) rows of a batch, all of them or none.

        Rows that are there already are compared: a device that does not repeat its
        numbers would make reports that cannot be made again.

        Raises:
            InputError: If the disk is full or the folder not writable, or a row has
                another value than the one that is there.
        """
        fresh: dict[bytes, bytes] = {}
        for key, value in rows:
            stored = self.values([key]) if self._knows([key]) else None
            if stored is None:
                fresh[key] = value
            elif stored != [value]:
                raise InputError(
                    f"{self.directory}: other scores are kept for the same rows than "
                    "the device gives now",
                    hint="its numbers may not repeat from run to run: --no-store, or "
                    "--store with a new folder",
                )
        if not fresh:
            return
        record = record_bytes(list(fresh.items()))
        try:
            path, start = self._append(record)
        except OSError as e:
            raise InputError(
                f"{self.directory}: scores cannot be written ({e.strerror})",
                hint="--store DIR keeps them in another folder, --no-store nowhere",
            ) from e
        self._places |= places_of(record, path, start)

    def _append(self, record: bytes) -> tuple[Path, int]:
        """Write a record at the end of the own file; returns the file and the place."""
        # Until the record is whole the file is not the own one: whatever interrupts
        # the write, nothing is ever appended to a part of a record.
        path, self._own = self._own, None
        # Unbuffered: what is written is with the system, which outlives the process.
        try:
            # Not `ab`: that would make a deleted file anew, where places still point.
            file = None if path is None else path.open("r+b", buffering=0)
        except FileNotFoundError:
            file = None
        if file is None or path is None:
            if path is not None:
                self._forget(path)
            # A new name each time: known places may never point into another file.
            name = f"{self._prefix}{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
            path = self.directory / name
            self.directory.mkdir(parents=True, exist_ok=True)
            file = path.open("xb", buffering=0)
        with file:
            start = file.seek(0, os.SEEK_END)
            head = self._head if start == 0 else b""
            if head:
                self._forget(path)
            rest = memoryview(head + record)
            while rest:
                rest = rest[file.write(rest) :]
        self._own = path
        return path, start + len(head)

    def _knows(self, keys: Sequence[bytes]) -> bool:
        return all(key in self._places for key in keys)

    def _forget(self, path: Path) -> None:
        """Drop the rows of a file that is gone or shorter than it was."""
        self._places = {
            key: place for key, place in self._places.items() if place.path != path
        }

    def _refresh(self) -> None:
        """Read what other processes have added."""
        for path in self._files():
            size_before, end = self._read.get(path, (-1, 0))
            try:
                size = path.stat().st_size
                if size == size_before:
                    continue
                found = read_records(path, end, self._head)
            except FileNotFoundError:
                continue
            except OSError as e:
                self._skip(path, f"cannot be read ({e.strerror})")
                continue
            self._read[path] = (size, found.end)
            # The first value of a key stays, so that a run never sees it change.
            for key, place in found.places.items():
                self._places.setdefault(key, place)
            if found.damaged:
                self._skip(path, f"is damaged after byte {found.end}")

    def _files(self) -> list[Path]:
        """Files of the same identity that others wrote and that can be read."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        except OSError as e:
            raise InputError(
                f"{self.directory}: scores cannot be read ({e.strerror})",
                hint="--store names a folder",
            ) from e
        paths = [
            self.directory / name
            for name in names
            if name.startswith(self._prefix) and name.endswith(SUFFIX)
        ]
        return [p for p in paths if p not in self._skipped and p != self._own]

    def _skip(self, path: Path, reason: str) -> None:
        self._skipped.add(path)
        print(
            f"jaxcontam: warning: {visible(str(path))}: {reason}; "
            "what is missing is scored again",
            file=sys.stderr,
        )


def _read_values(path: Path, places: Sequence[Place]) -> list[bytes] | None:
    """Values at places of one file; None if it is gone or shorter than it was."""
    values = []
    try:
        with path.open("rb", buffering=0) as file:
            for place in places:
                file.seek(place.start)
                values.append(file.read(place.size))
    except OSError:
        return None
    if any(len(v) < place.size for v, place in zip(values, places, strict=True)):
        return None
    return values
