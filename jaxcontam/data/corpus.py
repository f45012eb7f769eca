"""A training corpus as a stream of documents, in bounded memory.

Documents are the lines of .jsonl, the elements of a .json array (a .json file that
starts with anything else is read as .jsonl), the rows of .csv and .tsv, whole .txt
files, the pages of .warc and .wet files; each also as .gz or .zst; and rows of .parquet
files. What cannot be read is skipped, and named by a `Fault`.
"""

import codecs
import dataclasses
import gzip
import html.parser
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from jaxcontam.data.files import check_file
from jaxcontam.data.ngrams import last_break
from jaxcontam.data.records import (
    BLOCK,
    MAX_RECORD,
    Records,
    Refusal,
    UnreadableError,
    csv_rows,
    escaped_byte,
    is_array,
    json_elements,
    json_lines,
)
from jaxcontam.errors import InputError
from jaxcontam.terminal_text import printable

PARQUET = ".parquet"
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".warc", ".wet", PARQUET)
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Characters of a .txt file that make one document, and that the next one repeats.
_TEXT, _REPEATED = 16 << 20, 1 << 16

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


@dataclasses.dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file of a corpus at the time it was listed.

    Attributes:
        name: Path below the corpus, with forward slashes.
        modified: Nanoseconds.
    """

    path: Path
    name: str
    size: int
    modified: int


class Document(NamedTuple):
    """A text of a corpus and its place.

    Attributes:
        file: Name of its file, or what else tells it from others.
        line: Line, row or element of a .json array where it begins, from 1.
        has_lines: Each of its lines is one of the file.
        n_read: Bytes of the file that were read with it, for progress.
    """

    text: str
    file: str = ""
    line: int = 1
    has_lines: bool = False
    n_read: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A part of a corpus that was skipped."""

    file: str
    line: int
    reason: str


def list_corpus(
    corpus: Path,
    *,
    leave_out: Path | None,
    also: Sequence[str] = (),
    missing_hint: str = "",
) -> tuple[list[CorpusFile], list[str]]:
    """Files of a corpus in sorted order, and the names of those of other kinds.

    A folder is searched with the folders in it, but for names that start with a dot and
    `leave_out`, the output of this very run. `also` holds suffixes of files that the
    caller reads by itself; these have no packed form.
    """
    kinds = f"{', '.join(SUFFIXES)}, also with .gz or .zst"
    kinds = ", or ".join([kinds, *also])
    try:
        if corpus.is_file():
            if not _is_read(corpus, also):
                raise InputError(
                    f"{corpus}: unknown suffix {corpus.suffix!r}",
                    hint=f"one of {kinds}, or a folder",
                )
            return [_listed(corpus, printable(corpus.name))], []
        if not corpus.is_dir():
            if corpus.exists():
                check_file(corpus, SUFFIXES)
            raise InputError(f"{corpus}: no such file or folder", hint=missing_hint)
        files, others = [], []
        for folder, folders, names in os.walk(corpus, onerror=_refuse):
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".")
                and (
                    leave_out is None
                    or os.path.realpath(Path(folder, name))
                    != os.path.realpath(leave_out)
                )
            ]
            for path in (Path(folder, n) for n in names if not n.startswith(".")):
                name = printable(path.relative_to(corpus).as_posix())
                # Who opens a pipe waits for ever, and a device has no end.
                if _is_read(path, also) and path.is_file():
                    files.append(_listed(path, name))
                else:
                    others.append(name)
    except OSError as e:
        raise InputError(f"{e.filename}: not readable ({e.strerror})") from e
    if not files:
        raise InputError(f"{corpus}: no file of the kinds {kinds}")
    return sorted(files, key=lambda file: file.name), sorted(others)


def read_documents(
    path: Path, *, text_field: str, name: str = ""
) -> Iterator[Document | Fault]:
    """Documents of a file, their lines ascending; a record may be a plain string.

    A .txt file is one document; of a longer one each 16 MiB are, which repeat the last
    64 KiB before them. `name` stands for the file.
    """
    suffix, packing = _suffixes(path)
    line = 0
    try:
        with open(path, "rb") as stored:
            stream: Any = unpacked(stored, packing)
            if suffix == PARQUET:
                found = parquet_rows(stored, text_field)
            elif suffix in (".warc", ".wet"):
                found = warc_records(stream)
            elif suffix in _DELIMITERS:
                found = csv_rows(stream, _DELIMITERS[suffix])
            elif suffix == ".json" and is_array(stream):
                found = json_elements(stream)
            elif suffix == ".txt":
                found = _text_lines(stream)
            else:
                found = json_lines(stream)
            for line, value in found:
                text = value if isinstance(value, str) else _text_of(value, text_field)
                if isinstance(text, Refusal):
                    yield Fault(name, line, text.reason)
                else:
                    n_read = stored.tell()
                    yield Document(text, name, line, suffix == ".txt", n_read)
    except (OSError, EOFError, zlib.error, UnreadableError) as e:
        yield Fault(name, line + 1, _no_more(e))


def _refuse(error: OSError) -> None:
    raise error


def _is_read(path: Path, also: Sequence[str]) -> bool:
    suffix, packing = _suffixes(path)
    # A Parquet file is read from its end, and packs its own columns.
    packed = tuple(suffix for suffix in SUFFIXES if suffix != PARQUET)
    return suffix in (packed if packing else (*SUFFIXES, *also))


def _suffixes(path: Path) -> tuple[str, str]:
    """Suffix below what it is packed in, and that, or ""."""
    name = Path(path.name.lower())
    packing = name.suffix if name.suffix in PACKINGS else ""
    return Path(name.name.removesuffix(packing)).suffix, packing


def _listed(path: Path, name: str) -> CorpusFile:
    status = path.stat()
    return CorpusFile(path, name, status.st_size, status.st_mtime_ns)


def _text_of(value: object, field: str) -> str | Refusal:
    if isinstance(value, Refusal):
        return value
    if not isinstance(value, dict):
        return Refusal(f"neither an object nor a string ({type(value).__name__})")
    if field not in value:
        names = ", ".join(map(str, value)) or "nothing"
        return Refusal(f"no field {field!r} (it has: {names[:200]})")
    text = value[field]
    if not isinstance(text, str):
        return Refusal(f"field {field!r} is not a string ({type(text).__name__})")
    return text


def _text_lines(stream: BinaryIO) -> Records:
    """Lines of a .txt file joined, up to one that is damaged or `_TEXT` characters."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    held, begin, line, n_new, is_damaged = io.StringIO(), 1, 1, 0, False
    fault: Exception | None = None
    while True:
        try:
            data = stream.readline(BLOCK)
        except (OSError, EOFError, zlib.error) as e:
            data, fault = b"", e
        is_end = data.endswith(b"\n") or len(data) < BLOCK
        text = decoder.decode(data, is_end)
        byte = escaped_byte(text)
        is_first_fault = byte is not None and not is_damaged
        is_damaged |= is_first_fault
        if not is_damaged:
            n_new += held.write(text)
        if n_new and (held.tell() >= _TEXT or is_first_fault or not data):
            whole = held.getvalue()
            yield begin, whole
            n_whole, n_new, held = len(whole), 0, io.StringIO()
            cut = last_break(whole, n_whole - 2 * _REPEATED, n_whole - _REPEATED)
            begin += whole.count("\n", 0, cut)
            held.write(whole[cut:])
        if is_first_fault:
            held, n_new = io.StringIO(), 0
            yield line, Refusal(f"not UTF-8 ({byte:#04x})")
        if not data:
            break
        if is_end:
            line, is_damaged = line + 1, False
        if not held.tell():
            begin = line
    if fault is not None:
        yield line, Refusal(_no_more(fault))


def _no_more(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return f"nothing from here on is readable ({reason})"


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


def parquet_rows(stored: BinaryIO, column: str) -> Records:
    """Texts of one column."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(stored)
        if reason := _wrong_column(file.schema_arrow, column):
            yield 1, Refusal(reason)
            return
        row = 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            n_rows = about.num_rows
            most = min(_ROWS, MAX_RECORD * n_rows // max(1, about.total_byte_size))
            for batch in file.iter_batches(
                max(1, most), row_groups=[group], columns=[column]
            ):
                for value in _column_values(batch.column(0), column):
                    row += 1
                    yield row, value
    except (pyarrow.ArrowException, OSError) as e:
        raise UnreadableError(f"not a readable .parquet file ({e})") from e


def _wrong_column(schema: Any, column: str) -> str | None:
    """Why a column holds no texts; None if it does."""
    if column not in schema.names:
        return f"no field {column!r} (it has: {', '.join(schema.names)})"
    if schema.names.count(column) > 1:
        return f"two fields {column!r}"
    kind = schema.field(column).type
    if str(getattr(kind, "value_type", kind)) not in _STRINGS:
        return f"field {column!r} is not a string ({kind})"
    return None


def _column_values(values: Any, column: str) -> Iterator[object]:
    try:
        texts = values.to_pylist()
    except UnicodeDecodeError:
        texts = map(_column_value, values)
    null = Refusal(f"field {column!r} is not a string (NoneType)")
    for text in texts:
        yield null if text is None else text


def _column_value(value: Any) -> object:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return Refusal("not UTF-8")


def warc_records(stream: BinaryIO) -> Records:
    """Texts of a WARC or WET file: conversions, and pages without their marks.

    Requests, metadata, and what is neither text nor HTML are passed over.
    """
    stream.seek(0)
    record = 0
    while version := stream.readline(BLOCK):
        if not version.strip():
            continue
        if not version.startswith(b"WARC/"):
            raise UnreadableError(f"not a WARC record ({version[:20]!r})")
        record += 1
        fields = _fields(stream)
        length = fields.get("content-length", "")
        if not (length.isdecimal() and len(length) < 20):
            raise UnreadableError(f"record {record}: no Content-Length")
        left = int(length)
        kind = fields.get("warc-type")
        is_read = kind in ("response", "conversion", "resource")
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
            yield record, value


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
            return Refusal("a page whose chunks have the wrong sizes")
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
