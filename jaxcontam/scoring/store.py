"""Scores on disk, so that no row is scored twice.

Each process appends to its own file (`data.journal` describes the format) and
reads all files of the same `ScoreIdentity` in the folder, also while they grow. The
folder may be deleted at any moment: what is gone is scored again.
"""

import base64
import functools
import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.journal import Records, record_line
from jaxcontam.errors import InputError
from jaxcontam.scoring.identity import ScoreIdentity

SUFFIX = ".scores"
"""Suffix of the files in a score folder."""


class RowKeys:
    """Names rows by what their scores depend on."""

    def __init__(self, identity: bytes):
        self._key_start = hashlib.sha256(identity)

    def row_key(
        self, kept: str, shape: tuple[int, ...], first: int, ids: np.ndarray
    ) -> bytes:
        """Key of a row: equal keys have bit-equal values.

        `kept` names what is kept of its scores, from target `first` on. The shape is
        (B, S) of its batch, or what else tells compiled programs apart. Ids are inputs
        and last target.
        """
        key = self._key_start.copy()
        key.update(f"{kept} {' '.join(map(str, shape))} {first}\n".encode())
        key.update(ids.astype("<i4").tobytes())
        return key.digest()


class ScoreStore(RowKeys):
    """Values by key, in a folder that several processes may share."""

    def __init__(self, directory: Path, identity: ScoreIdentity):
        """Read what is there; nothing is written before the first commit."""
        super().__init__(identity.digest)
        self.directory, self.identity = directory, identity
        stem = identity.digest.hex()[:16]
        own = f"{stem}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        try:
            self._records = Records(
                directory / own,
                beside=f"{stem}-*{SUFFIX}",
                about=json.loads(identity.text),
                is_synced=False,
            )
        except OSError as e:
            raise self._unreadable(e) from e

    def __contains__(self, key: bytes) -> bool:
        return key.hex() in self._records

    @property
    def is_empty(self) -> bool:
        """True if no row was there when the folder was last read."""
        return self._records.is_empty

    def holds(self, keys: Sequence[bytes]) -> bool:
        """True if all keys are there, looking once more at the folder if not."""
        if self._knows(keys):
            return True
        try:
            self._records.refresh()
        except OSError as e:
            raise self._unreadable(e) from e
        return self._knows(keys)

    def values(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Values of all keys, or None if one is missing."""
        if not self.holds(keys):
            return None
        found = self._records.values([key.hex() for key in keys])
        return None if found is None else [base64.b64decode(text) for text in found]

    def commit(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the (key, value) rows of a batch.

        Rows that are there already are compared: a device may not repeat its numbers.
        """
        fresh: dict[str, str] = {}
        for key, value in rows:
            stored = self.values([key]) if self._knows([key]) else None
            if stored is None:
                fresh[key.hex()] = _as_text(value)
            elif stored != [value]:
                raise InputError(
                    f"{self.directory}: other scores are kept for the same rows than "
                    "the device gives now",
                    hint="its numbers may not repeat from run to run: --store none, or "
                    "a new folder",
                )
        if not fresh:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._records.append(fresh)
        except OSError as e:
            raise InputError(
                f"{self.directory}: scores cannot be written ({e.strerror})",
                hint="--store DIR keeps them in another folder, --store none nowhere",
            ) from e

    def _knows(self, keys: Sequence[bytes]) -> bool:
        return all(key in self for key in keys)

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(
            f"{self.directory}: scores cannot be read ({error.strerror})",
            hint="--store names a folder",
        )


@functools.cache
def row_size(n_value_bytes: int) -> int:
    """Bytes in a file of a row whose value has `n_value_bytes` bytes."""
    return len(record_line(bytes(32).hex(), _as_text(bytes(n_value_bytes))))


def _as_text(value: bytes) -> str:
    return base64.b64encode(value).decode()
