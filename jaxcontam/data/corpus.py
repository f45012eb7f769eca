"""A training corpus as a resumable stream of texts, in bounded memory.

Documents are the lines of .jsonl, the elements of a .json array (a .json file that
starts with anything else is read as .jsonl), the rows of .csv and .tsv, whole .txt
files, the pages of .warc and .wet files; each also as .gz or .zst; and rows of .parquet
files. What cannot be read is skipped, and named by a `Fault`.
"""

import codecs
import dataclasses
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from jaxcontam.data.archives import PACKINGS, parquet_rows, unpacked, warc_records
from jaxcontam.data.files import check_file
from jaxcontam.data.ngrams import last_break
from jaxcontam.data.records import (
    BLOCK,
    Place,
    Refusal,
    UnreadableError,
    csv_rows,
    escaped_byte,
    is_array,
    json_elements,
    json_lines,
)
from jaxcontam.errors import InputError
from jaxcontam.terminal import printable

PARQUET = ".parquet"
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".warc", ".wet", PARQUET)
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PIECE = 1 << 16  # characters


@dataclasses.dataclass(frozen=True, slots=True)
class CorpusFile:
    """A file of a corpus at the time it was listed.

    Attributes:
        name: Name in results: path below the corpus, with forward slashes.
        size: Bytes as stored.
        modified: Nanoseconds.
    """

    path: Path
    name: str
    size: int
    modified: int


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A document, or a part of one that ends at a word boundary.

    Attributes:
        line: Line, or element of a .json array, from 1.
        joins: Whether it continues the document of the segment before it.
        after: Place to continue from once it is processed; None within a record.
    """

    text: str
    line: int
    joins: bool
    after: Place | None


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A part that was skipped.

    Attributes:
        line: Where it begins, as in `Segment`.
        after: Place to continue from; None if nothing after it can be read.
    """

    line: int
    reason: str
    after: Place | None


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


def read_segments(
    path: Path, *, text_field: str, start: Place | None = None
) -> Iterator[Segment | Fault]:
    """Texts of a file from a place on, in order; a record may be a plain string.

    `start` is `after` of the last item that was processed. Segments have some 10^5
    characters at most; a fault after which nothing can be read is the last of its file.
    """
    start = start or Place()
    suffix, packing = _suffixes(path)
    reached = start
    try:
        with open(path, "rb") as stored:
            stream: Any = unpacked(stored, packing)
            if suffix == PARQUET:
                found = parquet_rows(stored, text_field, start)
            elif suffix in (".warc", ".wet"):
                found = warc_records(stream, stored, start)
            elif suffix in _DELIMITERS:
                found = csv_rows(stream, stored, _DELIMITERS[suffix], start)
            elif suffix == ".json" and is_array(stream):
                found = json_elements(stream, stored, start)
            elif suffix == ".txt":
                for item in _text_lines(stream, stored, start):
                    reached = item.after or reached
                    yield item
                return
            else:
                found = json_lines(stream, stored, start)
            for line, value, after in found:
                reached = after
                text = value if isinstance(value, str) else _text_of(value, text_field)
                if isinstance(text, Refusal):
                    yield Fault(line, text.reason, after)
                else:
                    yield from text_segments(text, line, after)
    except (OSError, EOFError, zlib.error, UnreadableError) as e:
        reason = f"nothing from here on is readable ({getattr(e, 'strerror', 0) or e})"
        yield Fault(reached.line + 1, reason, None)


def text_segments(
    text: str, line: int, after: Place | None, *, joins: bool = False
) -> Iterator[Segment]:
    """A text in parts of at most `_PIECE` characters, cut between words."""
    begin = 0
    while len(text) - begin > _PIECE:
        end = last_break(text, begin, begin + _PIECE)
        yield Segment(text[begin:end], line, joins, None)
        begin, joins = end, True
    yield Segment(text[begin:], line, joins, after)


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


def _text_lines(
    stream: BinaryIO, stored: BinaryIO, start: Place
) -> Iterator[Segment | Fault]:
    """Lines of a .txt file, which are one document; long ones in parts."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    line, joins, held, fault = 0, start.joins, b"", ""
    while data := held + stream.readline(BLOCK - len(held)):
        is_end, held = data.endswith(b"\n") or len(data) < BLOCK, b""
        if not is_end:
            end = data.rfind(b" ") + 1 or len(data)
            data, held = data[:end], data[end:]
        text = decoder.decode(data, is_end)
        byte = escaped_byte(text)
        fault = fault or ("" if byte is None else f"not UTF-8 ({byte:#04x})")
        after = Place(line + 1, stored.tell(), joins=not fault) if is_end else None
        if line >= start.line and not fault:
            yield from text_segments(text, line + 1, after, joins=joins)
            joins = True
        elif line >= start.line and is_end:
            yield Fault(line + 1, fault, after)
            joins = False
        if is_end:
            line, fault = line + 1, ""
