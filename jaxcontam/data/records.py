"""Streaming readers of JSON lines, JSON arrays and CSV rows, in bounded memory.

A damaged record is a `Refusal`, and reading continues after it; damage after which no
record can be told from the next is an `UnreadableError`.
"""

import codecs
import collections
import csv
import dataclasses
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from jaxcontam.data.tables import SEPARATOR, fitting_cells, without_blank_end

MAX_RECORD = 64 << 20
"""Bytes of the longest record that is read, so that memory is bounded."""

BLOCK = 1 << 20
"""Bytes that are read at a time where a file has no lines."""

# Bytes that a line takes besides its text.
_LINE = 64
_BOM = b"\xef\xbb\xbf"
# Values that take more memory than a long text: lists without end, say.
_MANY_VALUES, _SHORT_VALUE = 1 << 20, 16
# The last may be cut short.
_string = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_space = re.compile(r"[ \t\r\n]*")


class UnreadableError(Exception):
    """Nothing after this place of a file can be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record has no text."""

    reason: str


_CROWDED = Refusal("a record of too many values")

Records = Iterator[tuple[int, object]]
"""Line, ascending from 1 (element of an array), and parsed value or `Refusal`."""


def json_lines(stream: BinaryIO) -> Records:
    """One JSON value per line; blank lines are skipped."""
    stream.seek(0)
    line = 0
    while data := stream.readline(MAX_RECORD + 1):
        line += 1
        is_too_long = len(data) > MAX_RECORD
        while is_too_long and data and not data.endswith(b"\n"):
            data = stream.readline(BLOCK)
        if not (is_too_long or data.strip()):
            continue
        if is_too_long:
            value = Refusal(f"longer than {MAX_RECORD >> 20} MiB")
        else:
            value = _json_value(data.removeprefix(_BOM) if line == 1 else data)
        yield line, value


def _json_value(data: bytes) -> object:
    try:
        text = data.rstrip(b"\r\n").decode("utf-8")
        return _CROWDED if _is_crowded(text) else json.loads(text)
    except UnicodeDecodeError as e:
        return Refusal(f"not UTF-8 (byte {e.start}: {data[e.start]:#04x})")
    except json.JSONDecodeError as e:
        return Refusal(f"not JSON ({e.msg}, column {e.colno})")
    except (ValueError, RecursionError) as e:
        return Refusal(f"not JSON ({e})")


def _is_crowded(text: str) -> bool:
    """True if JSON holds so many values that they take far more memory than it."""
    most = max(_MANY_VALUES, len(text) // _SHORT_VALUE)
    return len(text) > most and (
        _count_values(text) > most and _count_values(_string.sub('""', text)) > most
    )


def _count_values(text: str) -> int:
    return sum(map(text.count, ",[{"))


def is_array(stream: BinaryIO) -> bool:
    """True if the first character of a file, white space aside, is a bracket."""
    while block := stream.read(4096):
        if signs := block.removeprefix(_BOM).lstrip():
            return signs.startswith(b"[")
    return False


def json_elements(stream: BinaryIO) -> Records:
    """Elements of one array."""
    stream.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    scan = json.JSONDecoder().raw_decode
    text, at, number, is_at_end = "", 0, 0, False
    while True:
        try:
            begin = _next_element(text, at, is_first=not number)
            if begin is None:
                rest = text[text.index("]", at) + 1 :].strip()
                if rest or stream.read(BLOCK).strip():
                    raise UnreadableError("text after the end of the array")
                return
            value, end = scan(text, begin)
            if end == len(text) and not is_at_end:
                raise ValueError("the file ends")  # 12 may be the start of 123
        except RecursionError as e:
            raise UnreadableError("not JSON (nested too deeply)") from e
        except ValueError as e:
            if is_at_end or len(text) - at > MAX_RECORD:
                reason = e.msg if isinstance(e, json.JSONDecodeError) else str(e)
                raise UnreadableError(f"not a JSON array ({reason})") from e
            # All of it is of one element.
            if _is_crowded(text[at:]):
                raise UnreadableError(_CROWDED.reason) from e
            # Twice as much each time: parsing again costs no more than it reads.
            block = stream.read(max(BLOCK, len(text) - at))
            is_at_end = not block
            try:
                text, at = text[at:] + decoder.decode(block, is_at_end), 0
            except UnicodeDecodeError as fault:
                raise UnreadableError("not UTF-8") from fault
            continue
        at, number = end, number + 1
        yield number, value


def _next_element(text: str, at: int, *, is_first: bool) -> int | None:
    """Index of the next element; None after the last; ValueError if the text ends."""
    at = _after_space(text, at)
    begin = _after_space(text, at + 1)
    if not is_first and text[at : at + 1] == "]":
        return None
    if begin >= len(text):
        raise ValueError("the file ends")
    if text[at] != ("[" if is_first else ","):
        raise UnreadableError("not a JSON array (no comma between two elements)")
    return None if is_first and text[begin] == "]" else begin


def _after_space(text: str, at: int) -> int:
    found = _space.match(text, at)
    return found.end() if found else at


def csv_rows(stream: BinaryIO, delimiter: str) -> Records:
    """Rows below the header as dicts.

    Quotes enclose cells. In a .tsv they are characters of a row that cannot be read so,
    and where each line of a cell would be a row of its own.
    """
    lines = _Lines(stream)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    is_tsv = delimiter == "\t"
    try:
        written = next(reader, [])
        if (first := SEPARATOR.match("".join(lines.taken))) is not None:
            if first[1] != delimiter:
                raise UnreadableError(f"cells are separated by {first[1]!r}")
            written = next(reader, [])
    except csv.Error as e:
        raise UnreadableError(f"no header ({e})") from e
    header = without_blank_end(written)

    def bare_cells(line: str) -> list[str] | None:
        return fitting_cells(line.rstrip("\r\n").split(delimiter), header, written)

    while True:
        lines.begin()
        line, value = lines.count + 1, None
        try:
            values = next(reader, None)
            if values is None:
                return
            is_bare = is_tsv and len(header) > 1 < len(lines.taken)
            is_bare = is_bare and None not in map(bare_cells, lines.taken)
        except csv.Error as e:
            values, is_bare = [], is_tsv
            value = Refusal(f"not a row of fields ({e})")
        except _OpenQuoteError as e:
            values, is_bare = [], is_tsv
            if not is_tsv or bare_cells(lines.taken[0]) is None:
                raise UnreadableError(str(e)) from e
        if is_bare and (cells := bare_cells(lines.taken[0])) is not None:
            lines.put_back(len(lines.taken) - 1)
            value = _row(header, written, cells)
        elif value is None:
            if not values:
                continue
            value = _row(header, written, values)
        yield line, value


def _row(header: list[str], written: list[str], values: list[str]) -> object:
    cells = fitting_cells(values, header, written)
    if cells is None:
        return Refusal(f"{len(values)} columns (the header has {len(header)})")
    if escaped_byte("".join(cells)) is not None:
        return Refusal("not UTF-8")
    return dict(zip(header, cells, strict=True))


def escaped_byte(text: str) -> int | None:
    """First byte that is not UTF-8 in a text decoded with `surrogateescape`."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        return ord(text[e.start]) - 0xDC00
    return None


class _OpenQuoteError(Exception):
    """A row that goes on for more bytes than a record may have."""


class _Lines:
    """Decoded lines for `csv.reader`, which bounds no record; `taken` since `begin`."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._n_read = self._n_bytes = self.count = 0
        self._held: collections.deque[str] = collections.deque()
        self.taken: list[str] = []

    def begin(self) -> None:
        """Begin a row."""
        self.taken, self._n_bytes = [], 0

    def put_back(self, n: int) -> None:
        """Give the last lines once more."""
        held = [self.taken.pop() for _ in range(n)]
        self._held.extendleft(held)
        self.count -= n

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._held.popleft() if self._held else self._read()
        self._n_bytes += len(line) + _LINE
        self.count += 1
        self.taken.append(line)
        if self._n_bytes > MAX_RECORD + _LINE:
            raise _OpenQuoteError(
                f"a row of over {MAX_RECORD >> 20} MiB, perhaps from an unclosed quote"
            )
        return line

    def _read(self) -> str:
        data = self._stream.readline(MAX_RECORD + 1)
        if not data:
            raise StopIteration
        self._n_read += 1
        data = data.removeprefix(_BOM) if self._n_read == 1 else data
        return data.decode("utf-8", errors="surrogateescape")
