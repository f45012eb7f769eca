"""Records of a file, one at a time, in bounded memory: JSON lines, arrays and rows.

A record that is damaged is a `Refusal`, and reading goes on behind it; damage after
which no record can be told from the next is an `UnreadableError`.
"""

import codecs
import csv
import dataclasses
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

MAX_RECORD = 64 << 20
"""Longest record that is read, in bytes: bounded memory holds no more."""

BLOCK = 1 << 20
"""Bytes that are read at a time where a file has no lines."""

_BOM = b"\xef\xbb\xbf"
_skip_space = re.compile(r"[ \t\r\n]*").match


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A place in a file from which reading can go on.

    Attributes:
        offset: Bytes before it, uncompressed.
        line: Lines before it (elements of a .json array).
        stored: Bytes of the file as stored that were read so far, for progress.
        joins: Whether what follows continues the document before it.
    """

    offset: int = 0
    line: int = 0
    stored: int = 0
    joins: bool = False


class UnreadableError(Exception):
    """Nothing after this place of a file can be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record has no text."""

    reason: str


Records = Iterator[tuple[int, object, Place]]
"""Line, parsed value or `Refusal`, and the place after it."""


def without_mark(data: bytes, offset: int) -> bytes:
    """Bytes from an offset of a file on, without the byte order mark at its start."""
    return data if offset else data.removeprefix(_BOM)


def json_lines(stream: BinaryIO, stored: BinaryIO, start: Place) -> Records:
    """One JSON value a line; blank lines are passed over."""
    for data, after in _whole_lines(stream, stored, start):
        if data is None:
            value = Refusal(f"longer than {MAX_RECORD >> 20} MiB")
        elif not data.strip():
            continue
        else:
            value = _json_value(data)
        yield after.line, value, after


def _whole_lines(
    stream: BinaryIO, stored: BinaryIO, start: Place
) -> Iterator[tuple[bytes | None, Place]]:
    """Lines and the place after each; None for one longer than `MAX_RECORD`."""
    stream.seek(start.offset)
    offset, line = start.offset, start.line
    while data := stream.readline(MAX_RECORD + 1):
        offset, line = offset + len(data), line + 1
        is_too_long = len(data) > MAX_RECORD
        while is_too_long and not data.endswith(b"\n"):
            data = stream.readline(BLOCK)
            offset += len(data)
            if not data:
                break
        data = without_mark(data, offset - len(data))
        yield None if is_too_long else data, Place(offset, line, stored.tell())


def _json_value(data: bytes) -> object:
    try:
        return json.loads(data.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as e:
        return Refusal(f"not UTF-8 (byte {e.start}: {data[e.start]:#04x})")
    except json.JSONDecodeError as e:
        return Refusal(f"not JSON ({e.msg}, column {e.colno})")
    except (ValueError, RecursionError) as e:
        return Refusal(f"not JSON ({e})")


def is_array(stream: BinaryIO) -> bool:
    """Whether the first sign of a file is a bracket."""
    while block := stream.read(4096):
        if signs := without_mark(block, 0).lstrip():
            return signs.startswith(b"[")
    return False


def json_elements(stream: BinaryIO, stored: BinaryIO, start: Place) -> Records:
    """Elements of one array; `offset` counts up to the end of one, before its comma."""
    scan = json.JSONDecoder().raw_decode
    decoder = codecs.getincrementaldecoder("utf-8")()
    stream.seek(start.offset)
    offset, number = start.offset, start.line
    text, at, is_at_end = "", 0, False
    while True:
        try:
            begin = _next_element(text, at, is_first=not number)
            if begin is None:
                return
            value, end = scan(text, begin)
            if end == len(text) and not is_at_end:
                raise json.JSONDecodeError("may go on", text, end)  # 12 as 123
        except RecursionError as e:
            raise UnreadableError("not JSON (nested too deeply)") from e
        except ValueError as e:
            if is_at_end or _is_damage(e, text) or len(text) - at > MAX_RECORD:
                raise UnreadableError(f"not a JSON array ({_reason(e)})") from e
            # Twice as much each time: parsing again costs no more than it reads.
            block = stream.read(max(BLOCK, len(text) - at))
            is_at_end = not block
            try:
                text = text[at:] + decoder.decode(block, is_at_end)
            except UnicodeDecodeError as fault:
                raise UnreadableError("not UTF-8") from fault
            at = 0
            continue
        offset, number = offset + len(text[at:end].encode()), number + 1
        at = end
        yield number, value, Place(offset, number, stored.tell())


def _next_element(text: str, at: int, *, is_first: bool) -> int | None:
    """Where the next element begins; None after the last.

    Raises:
        ValueError: If the text ends before it.
        UnreadableError: If something else stands there.
    """
    if is_first and text.startswith("\ufeff"):
        at += 1
    at = _end_of_space(text, at)
    if text[at] == "]":
        return None
    if text[at] != ("[" if is_first else ","):
        raise UnreadableError("not a JSON array (no comma between two elements)")
    at = _end_of_space(text, at + 1)
    return None if is_first and text[at] == "]" else at


def _end_of_space(text: str, at: int) -> int:
    found = _skip_space(text, at)
    end = found.end() if found else at
    if end >= len(text):
        raise json.JSONDecodeError("the file ends", text, len(text))
    return end


def _is_damage(error: ValueError, text: str) -> bool:
    """Whether more text cannot mend a fault of parsing."""
    if not isinstance(error, json.JSONDecodeError):
        return True
    # A string that is not closed is reported where it begins, all else where it is.
    is_open = error.msg.startswith(("Unterminated", "Invalid \\"))
    return not is_open and error.pos < len(text) - len("-Infinity")


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def csv_rows(
    stream: BinaryIO, stored: BinaryIO, delimiter: str, start: Place
) -> Records:
    """Rows below the header as dicts; the header is read again on going on."""
    header_reader = _RecordLines(stream, Place())
    try:
        header = next(csv.reader(header_reader, delimiter=delimiter), [])
    except csv.Error as e:
        raise UnreadableError(f"no header ({e})") from e
    lines = header_reader
    if start.offset:
        lines = _RecordLines(stream, start)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.n_record_bytes = 0
        line = lines.line + 1
        try:
            values = next(reader, None)
        except csv.Error as e:
            values, value = [], Refusal(f"not a row of fields ({e})")
        else:
            if values is None:
                return
            if not values:
                continue
            value = _row(header, values)
        yield line, value, Place(lines.offset, lines.line, stored.tell())


def _row(header: list[str], values: list[str]) -> object:
    if len(values) != len(header):
        return Refusal(f"{len(values)} columns (the header has {len(header)})")
    if any("\udc80" <= sign <= "\udcff" for value in values for sign in value):
        return Refusal("not UTF-8")
    return dict(zip(header, values, strict=True))


class _RecordLines:
    """Decoded lines for `csv.reader`, which counts no bytes and bounds no record.

    Attributes:
        offset: Bytes handed out, with those before the start.
        line: Lines handed out, with those before the start.
        n_record_bytes: Bytes handed out since it was set to 0.
    """

    def __init__(self, stream: BinaryIO, start: Place):
        stream.seek(start.offset)
        self._stream = stream
        self.offset, self.line = start.offset, start.line
        self.n_record_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        data = self._stream.readline(MAX_RECORD + 1)
        if not data:
            raise StopIteration
        self.n_record_bytes += len(data)
        if self.n_record_bytes > MAX_RECORD:
            raise UnreadableError(
                f"a row of over {MAX_RECORD >> 20} MiB: is a quote left open?"
            )
        self.offset, self.line = self.offset + len(data), self.line + 1
        data = without_mark(data, self.offset - len(data))
        return data.decode("utf-8", errors="surrogateescape")
