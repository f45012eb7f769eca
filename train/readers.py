"""Texts of one file, in its order and in bounded memory; damage raises.

Records of text files are read as `jaxcontam overlap` reads them, by
`jaxcontam.data.corpus`; here are .txt, whole, and Parquet, array_record and TFRecord.
A search may pass over a damaged record and count it. Training may not: the manifest
says what was trained on.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxcontam.data.corpus import SUFFIXES, Fault, read_documents
from jaxcontam.errors import InputError
from jaxcontam.models.hub import file_state

BINARY_SUFFIXES = (".array_record",)
KINDS = (*SUFFIXES, *BINARY_SUFFIXES)
"""Suffixes of the files that `read_texts` reads; those of text also packed."""

MAX_DOCUMENT = 16 << 20
"""Longest document, in bytes of UTF-8: tokenised whole, one takes 130 times as many."""

# Rows that are held at once: small, as one row may be a book.
_ROWS = 256
_FIELD_HINT = "name the field with --text-field"
_DAMAGE_HINT = "mend or remove it: no training text is passed over in silence"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a corpus, or a split of a data set.

    Attributes:
        name: What messages call it.
        identity: Another text has another identity; of a file its path, size and
            times, so that nothing has to be read.
        n_bytes: Size as stored, for progress; 0 if that is not known.
        read: Opens it and yields its documents.
    """

    name: str
    identity: str
    n_bytes: int
    read: Callable[[], Iterator[str]] = field(repr=False, compare=False)


def file_part(
    path: Path, read: Callable[[], Iterator[str]], *, taken: Sequence[str | int]
) -> Part:
    """A file whose documents `read` yields; it must not change while it is read."""
    state = file_state(path)

    def documents() -> Iterator[str]:
        yield from read()
        if file_state(path) != state:
            raise InputError(
                f"{path}: changed while it was read", hint="wait until it is written"
            )

    return Part(
        name=str(path),
        identity=json.dumps(["file", state, *taken]),
        n_bytes=path.stat().st_size,
        read=documents,
    )


def read_texts(path: Path, field: str) -> Iterator[str]:
    """Documents of a file of a kind in `SUFFIXES` or `BINARY_SUFFIXES`.

    Raises:
        InputError: At the first record without a text, by file and line (row of a
            .parquet, record of an .array_record, from 1).
    """
    if path.suffix.lower() == ".parquet":
        return _parquet_texts(path, field)
    if path.suffix.lower() == ".array_record":
        return _array_record_texts(path, field)
    if path.name.lower().removesuffix(".gz").endswith(".txt"):
        return _whole_text(path)
    return _record_texts(path, field)


def text_of(value: object, where: str) -> str:
    """A text from a str or UTF-8 bytes.

    Raises:
        InputError: If it is something else or too long; names `where`.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as e:
            raise _damaged(where, f"not UTF-8 (byte {e.start})") from e
    if not isinstance(value, str):
        raise _damaged(where, f"no text ({type(value).__name__})")
    try:
        # JSON can spell half of a surrogate pair, which no UTF-8 file can hold.
        n_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError as e:
        raise _damaged(where, f"no Unicode text (sign {e.start})") from e
    if n_bytes > MAX_DOCUMENT:
        raise _too_long(where)
    return value


def _whole_text(path: Path) -> Iterator[str]:
    """The one document of a .txt; none if it is nothing but space."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except (OSError, EOFError, zlib.error) as e:
        raise _unreadable(path, 0, e) from e
    if len(data) > MAX_DOCUMENT:
        raise _too_long(str(path))
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise _damaged(f"{path}:{line}", f"not UTF-8 ({data[e.start]:#04x})") from e
    if text.strip():
        yield text


def _record_texts(path: Path, field: str) -> Iterator[str]:
    for item in read_documents(path, text_field=field):
        where = f"{path}:{item.line}"
        if isinstance(item, Fault):
            if item.reason.startswith("no field"):
                raise InputError(f"{where}: {item.reason}", hint=_FIELD_HINT)
            raise _damaged(where, item.reason)
        yield text_of(item.text, where)


def _parquet_texts(path: Path, field: str) -> Iterator[str]:
    for row, value in enumerate(parquet_column(path, field, holds_text=True), 1):
        yield text_of(value, f"{path}:{row}")


def parquet_column(path: Path, name: str, *, holds_text: bool = False) -> Iterator[Any]:
    """Values of one column of a .parquet.

    Raises:
        InputError: If there is no such column, it is not text where `holds_text` asks
            for it, or the file is damaged.
    """
    from pyarrow import ArrowException, types
    from pyarrow.parquet import ParquetFile

    row = 0
    try:
        with ParquetFile(path) as file:
            schema = file.schema_arrow
            if name not in schema.names:
                raise _no_field(str(path), name, schema.names)
            kind = schema.field(name).type
            if types.is_dictionary(kind):
                kind = kind.value_type
            is_text = types.is_string(kind) or types.is_large_string(kind)
            if holds_text and not is_text:
                raise _damaged(str(path), f"field {name!r} is no text ({kind})")
            for batch in file.iter_batches(batch_size=_ROWS, columns=[name]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield value
    except (OSError, ArrowException) as e:
        raise _unreadable(path, row, e) from e


def array_records(path: Path) -> Iterator[bytes]:
    """Records of an .array_record.

    Raises:
        InputError: If it is damaged or holds none: the library calls a file whose end
            is missing empty, and says no more.
    """
    from array_record.python.array_record_module import ArrayRecordReader

    row = 0
    try:
        reader = ArrayRecordReader(str(path))
        n_records = reader.num_records()
        if not n_records:
            raise _damaged(str(path), "no records, or no whole .array_record")
        while row < n_records:
            records = reader.read(row, min(row + _ROWS, n_records))
            yield from records
            row += len(records)
        reader.close()
    except (OSError, RuntimeError, IndexError) as e:
        raise _unreadable(path, row, e) from e


def tf_records(path: Path) -> Iterator[bytes]:
    """Records of a TFRecord file; their lengths are checked, their sums are not."""
    from grain.experimental import TFRecordIterDataset

    row = 0
    try:
        for record in TFRecordIterDataset(str(path)):
            yield record
            row += 1
    except (OSError, ValueError, OverflowError, MemoryError) as e:
        raise _unreadable(path, row, e) from e


def _array_record_texts(path: Path, field: str) -> Iterator[str]:
    """Texts of records: JSON objects if the first one is, else plain text."""
    holds_json = None
    for number, record in enumerate(array_records(path), 1):
        where = f"{path}:{number}"
        if holds_json is None:
            holds_json = isinstance(_json_of(record), dict)
        if not holds_json:
            yield text_of(record, where)
            continue
        fields = _json_of(record)
        if not isinstance(fields, dict):
            raise _damaged(where, "no JSON object, as the records before it are")
        if field not in fields:
            raise _no_field(where, field, fields)
        yield text_of(fields[field], where)


def _json_of(record: bytes) -> object:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None


def _no_field(where: str, field: str, names) -> InputError:
    found = ", ".join(map(str, names))[:200] or "nothing"
    return InputError(
        f"{where}: no field {field!r} (it has: {found})", hint=_FIELD_HINT
    )


def _damaged(where: str, reason: str) -> InputError:
    return InputError(f"{where}: {reason}", hint=_DAMAGE_HINT)


def _too_long(where: str) -> InputError:
    return InputError(
        f"{where}: one document of over {MAX_DOCUMENT >> 20} MiB",
        hint="cut it into the documents of a .jsonl; a .txt is one document",
    )


def _unreadable(path: Path, n_read: int, error: Exception) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _damaged(f"{path}:{n_read + 1}", f"not readable from here on ({reason})")
