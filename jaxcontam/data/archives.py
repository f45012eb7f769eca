"""Streaming readers of what crawls and data sets are packed in, in bounded memory.

Compressed streams (.gz, .zst), WARC and WET archives of the web, and Parquet files.
"""

import codecs
import gzip
import html.parser
import io
import re
import zlib
from typing import Any, BinaryIO

from jaxcontam.data.records import (
    BLOCK,
    MAX_RECORD,
    Place,
    Records,
    Refusal,
    UnreadableError,
)

PACKINGS = (".gz", ".zst")
"""Suffixes of files that are unpacked while they are read."""

# Rows that are held at once, or fewer: one row may be a book.
_ROWS = 256
_STRINGS = ("string", "large_string", "string_view")
_CHARSET = re.compile(r"charset=[\"']?([\w-]+)", re.IGNORECASE)
# Python's codecs that no page is written in; some take quadratic time.
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7")
# Bytes of HTML, each of which may take 200 of memory; crawls cut pages at as many.
_MAX_PAGE = 5 << 20
# Fields of a header that are kept, as a hostile one has millions.
_FIELDS = (
    *("content-length", "content-type", "content-encoding", "transfer-encoding"),
    "warc-type",
)
# Bytes of a page in which it may name its own charset.
_HEAD = 1024
# Pages say the one and mean the other, which has more signs.
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030"}
# Size of a chunk, after the end of the one before.
_CHUNK = re.compile(rb"(?:\r?\n)?([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_GZIP = b"\x1f\x8b"
# Elements whose text nobody reads, and those that words do not run across.
_UNSEEN = frozenset({"script", "style", "noscript", "template"})
_INLINE = frozenset({"a", "b", "i", "em", "strong", "span", "sub", "sup", "code", "u"})


def unpacked(stored: BinaryIO, packing: str) -> Any:
    """Content of a file, as a stream that can be begun again; `packing` may be ""."""
    if packing == ".gz":
        return gzip.GzipFile(fileobj=stored)
    return io.BufferedReader(_Zstd(stored), BLOCK) if packing == ".zst" else stored


class _Zstd(io.RawIOBase):
    """Content of a .zst file; Arrow, which is there for Parquet, unpacks it."""

    def __init__(self, stored: BinaryIO):
        self._stored = stored
        self._at = 0
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Begin again; there is no other place to go to."""
        import pyarrow

        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("a .zst file is read from its start")
        self._stored.seek(0)
        self._at = 0
        # What closes a file of Arrow closes what it reads.
        self._stream = pyarrow.CompressedInputStream(
            pyarrow.PythonFile(io.FileIO(self._stored.fileno(), closefd=False)), "zstd"
        )
        return 0

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def parquet_rows(stored: BinaryIO, column: str, start: Place) -> Records:
    """Rows as objects with one column; row groups before a place are not read."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(stored)
        names = file.schema_arrow.names
        if column not in names:
            raise UnreadableError(f"no field {column!r} (it has: {', '.join(names)})")
        if names.count(column) > 1:
            raise UnreadableError(f"two fields {column!r}")
        kind = file.schema_arrow.field(column).type
        if str(getattr(kind, "value_type", kind)) not in _STRINGS:
            raise UnreadableError(f"field {column!r} is not a string ({kind})")
        size = stored.seek(0, io.SEEK_END)
        row = 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            n_rows = about.num_rows
            if row + n_rows <= start.line:
                row += n_rows
                continue
            most = min(_ROWS, MAX_RECORD * n_rows // max(1, about.total_byte_size))
            for batch in file.iter_batches(
                max(1, most), row_groups=[group], columns=[column]
            ):
                for value in batch.column(0):
                    row += 1
                    if row > start.line:
                        done = size * row // max(1, file.metadata.num_rows)
                        yield row, _parquet_value(value, column), Place(row, done)
    except (pyarrow.ArrowException, OSError) as e:
        raise UnreadableError(f"not a readable .parquet file ({e})") from e


def _parquet_value(value: Any, column: str) -> object:
    try:
        return {column: value.as_py()}
    except UnicodeDecodeError:
        return Refusal("not UTF-8")


def warc_records(stream: BinaryIO, stored: BinaryIO, start: Place) -> Records:
    """Texts of a WARC or WET file: conversions, and pages without their marks.

    Requests, metadata, and what is neither text nor HTML are passed over.
    """
    stream.seek(0)
    record = 0
    while version := stream.readline(BLOCK):
        if not version.strip():
            continue
        if not version.startswith(b"WARC/"):
            raise UnreadableError(f"no WARC record ({version[:20]!r})")
        record += 1
        fields = _fields(stream)
        length = fields.get("content-length", "")
        if not (length.isdecimal() and len(length) < 20):
            raise UnreadableError(f"record {record}: no Content-Length")
        left = int(length)
        kind = fields.get("warc-type")
        is_read = record > start.line and kind in ("response", "conversion", "resource")
        value: object = None
        if is_read and left <= MAX_RECORD:
            body = stream.read(left)
            left -= len(body)
            value = _page(fields, body)
        elif is_read:
            value = Refusal(f"longer than {MAX_RECORD >> 20} MiB")
        while left > 0:
            data = stream.read(min(left, BLOCK))
            if not data:
                raise UnreadableError(f"record {record}: the file ends in it")
            left -= len(data)
        if value is not None:
            yield record, value, Place(record, stored.tell())


def _fields(stream: BinaryIO) -> dict[str, str]:
    """`_FIELDS` of a header, up to a blank line."""
    fields = {}
    while (line := stream.readline(BLOCK)).strip():
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if (name := name.strip().lower()) in _FIELDS:
            fields[name] = value.strip()
    return fields


def _page(fields: dict[str, str], body: bytes) -> object:
    """Text of a record; None where it has none."""
    if fields.get("warc-type") == "response":
        if not body.startswith(b"HTTP/"):
            return None
        inside = io.BytesIO(body)
        inside.readline()
        fields = _fields(inside)
        found = _unpacked_body(fields, inside.read())
        if isinstance(found, Refusal):
            return found
        body = found
    kind = fields.get("content-type", "text/plain").lower()
    if not kind.startswith(("text/", "application/xhtml")):
        return None
    if "html" in kind and len(body) > _MAX_PAGE:
        return Refusal(f"a page longer than {_MAX_PAGE >> 20} MiB")
    charset = _CHARSET.search(kind)
    if charset is None and "html" in kind:
        charset = _CHARSET.search(body[:_HEAD].decode("latin-1"))
    try:
        codec = codecs.lookup(charset[1] if charset else "utf-8").name
        codec = "utf-8" if codec in _NO_CHARSETS else _WIDER.get(codec, codec)
        text = body.decode(codec, "replace")
    except (LookupError, UnicodeError):
        text = body.decode("utf-8", "replace")
    if "html" not in kind:
        return text
    page = _Text()
    # A tag at its end: a word with an ampersand would wait for what follows.
    page.feed(f"{text}</p>")
    return "".join(page.parts)


def _unpacked_body(fields: dict[str, str], body: bytes) -> bytes | Refusal:
    """Body of a response as its server meant it; crawlers may have unpacked it."""
    if "chunked" in fields.get("transfer-encoding", "").lower():
        joined = _joined_chunks(body)
        if joined is None:
            return Refusal("a page in chunks of other sizes than they say")
        body = joined
    packing = fields.get("content-encoding", "identity").lower()
    if packing in ("identity", ""):
        return body
    if packing not in ("gzip", "x-gzip", "deflate"):
        return Refusal(f"a page packed by {packing}")
    if packing != "deflate" and not body.startswith(_GZIP):
        return body
    # A header of gzip or zlib, or none.
    for bits in (32 + zlib.MAX_WBITS, -zlib.MAX_WBITS):
        try:
            found = zlib.decompressobj(bits).decompress(body, _MAX_PAGE + 1)
        except zlib.error:
            continue
        if len(found) > _MAX_PAGE:
            return Refusal(f"a page longer than {_MAX_PAGE >> 20} MiB")
        return found
    return Refusal(f"a page damaged in its {packing}")


def _joined_chunks(body: bytes) -> bytes | None:
    """Chunks joined; the last may be cut short. None if they do not fit."""
    joined = bytearray()
    at = 0
    while found := _CHUNK.match(body, at):
        size, begin = int(found[1], 16), found.end()
        if not size:
            return bytes(joined)
        joined += body[begin : begin + size]
        at = begin + size
    if not at:
        return body
    return None if body[at:].strip() else bytes(joined)


class _Text(html.parser.HTMLParser):
    """Text of a page as a reader sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._n_unseen = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._n_unseen += tag in _UNSEEN
        self._part(tag)

    def handle_endtag(self, tag: str) -> None:
        self._n_unseen = max(0, self._n_unseen - (tag in _UNSEEN))
        self._part(tag)

    def handle_data(self, data: str) -> None:
        if not self._n_unseen:
            self.parts.append(data)

    def parse_html_declaration(self, i: int) -> int:
        """Pass over what is no comment; for some words Python's own raises."""
        is_comment = self.rawdata.startswith("<!--", i)
        return self.parse_comment(i) if is_comment else self.parse_bogus_comment(i)

    def _part(self, tag: str) -> None:
        if tag not in _INLINE:
            self.parts.append("\n")
