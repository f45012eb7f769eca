"""A file of records that only grows: each record is whole, or it is not there.

Layout, numbers little-endian:

    head     `jaxcontam scores 1 ` and the identity as one line of JSON
    record   frame, body, SHA-256 of frame and body
    frame    magic, rows, bytes of the body, CRC-32 of these three
    body     for each row its key and the size of its value, then the values

A record is one `write`. Whatever ends the writer, what it left is whole records and
at most a part of one more, which no reader takes for a record: the frame tells a
record that is not all there yet from one that is damaged.
"""

import dataclasses
import hashlib
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

KEY_BYTES = 32
"""Keys are SHA-256 digests."""

_MAGIC = b"jxcs"
_FRAME = struct.Struct("<4sIQ")
_CRC = struct.Struct("<I")
_SIZE = struct.Struct("<I")
_FRAME_BYTES = _FRAME.size + _CRC.size
_DIGEST_BYTES = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: a file, its first byte, how many."""

    path: Path
    start: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What a reader found from a position on.

    Attributes:
        places: Of each key, in the order of the file.
        end: End of the last whole record; the next one begins there.
        damaged: Bytes after `end` can never become a record.
    """

    places: dict[bytes, Place]
    end: int
    damaged: bool


def head_line(identity: str) -> bytes:
    """First bytes of a file: what wrote it, and whose scores it holds."""
    return f"jaxcontam scores 1 {identity}\n".encode()


def record_bytes(rows: Sequence[tuple[bytes, bytes]]) -> bytes:
    """One record of (key, value) rows."""
    table = b"".join(key + _SIZE.pack(len(value)) for key, value in rows)
    body = table + b"".join(value for _, value in rows)
    framed = _framed(len(rows), len(body)) + body
    return framed + hashlib.sha256(framed).digest()


def record_size(n_rows: int, n_value_bytes: int) -> int:
    """Bytes of a record of so many rows and so many bytes of values in all."""
    table = n_rows * (KEY_BYTES + _SIZE.size)
    return _FRAME_BYTES + table + n_value_bytes + _DIGEST_BYTES


def places_of(record: bytes, path: Path, start: int) -> dict[bytes, Place]:
    """Where the values of a whole record stand that begins at `start` of a file."""
    _, n_rows, _ = _FRAME.unpack_from(record)
    at = _FRAME_BYTES
    value_at = at + n_rows * (KEY_BYTES + _SIZE.size)
    places = {}
    for _ in range(n_rows):
        key = record[at : at + KEY_BYTES]
        (size,) = _SIZE.unpack_from(record, at + KEY_BYTES)
        places[key] = Place(path, start + value_at, size)
        at += KEY_BYTES + _SIZE.size
        value_at += size
    return places


def read_records(path: Path, start: int, head: bytes) -> Found:
    """Read the whole records of a file, from `start` to its end or its first damage.

    Args:
        path: A file that another process may be writing.
        start: 0, or the end of an earlier read.
        head: First bytes that the file must have.

    Raises:
        OSError: If the file is not readable.
    """
    places: dict[bytes, Place] = {}
    with path.open("rb") as file:
        end = start
        if end == 0:
            line = file.read(len(head))
            if line != head:
                return Found(places, 0, damaged=not head.startswith(line))
            end = len(head)
        file.seek(end)
        while True:
            record, damaged = _next_record(file)
            if not record:
                return Found(places, end, damaged)
            places |= places_of(record, path, end)
            end += len(record)


def _framed(n_rows: int, n_bytes: int) -> bytes:
    frame = _FRAME.pack(_MAGIC, n_rows, n_bytes)
    return frame + _CRC.pack(zlib.crc32(frame))


def _next_record(file: BinaryIO) -> tuple[bytes, bool]:
    """The record here, or nothing and whether what is here is damaged."""
    frame = file.read(_FRAME_BYTES)
    if len(frame) < _FRAME_BYTES:
        return b"", False
    magic, n_rows, n_bytes = _FRAME.unpack_from(frame)
    if magic != _MAGIC or frame != _framed(n_rows, n_bytes):
        return b"", True
    rest = file.read(n_bytes + _DIGEST_BYTES)
    if len(rest) < n_bytes + _DIGEST_BYTES:
        return b"", False
    framed, digest = frame + rest[:n_bytes], rest[n_bytes:]
    if hashlib.sha256(framed).digest() != digest:
        return b"", True
    return framed + digest, False
