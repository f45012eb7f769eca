"""Rows of .parquet files, with values as in parsed JSON, and of .csv and .tsv."""

import datetime
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.data.files import check_file
from jaxcontam.errors import InputError

if TYPE_CHECKING:
    import pyarrow

import csv
import io
from collections.abc import Iterator, Sequence

SUFFIX = ".parquet"

_BATCH_ROWS = 65536
# A year above 9999 overflows, and an unknown time zone is a missing key.
_NO_TIME = (OverflowError, KeyError)
# Values of 16 bytes that are read as numbers with their own spelling.
_SPELLED_BYTES = ("arrow.uuid",)


def is_table(path: Path) -> bool:
    """Whether a file is one that `read_table` reads, by its name."""
    return path.suffix.lower() == SUFFIX


def read_table(path: Path, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows of a file, in order.

    Columns of bytes, such as images, are not read; types that JSON lacks, such as
    dates, decimal numbers and UUIDs, become strings.

    Raises:
        InputError: If there is no such file, it cannot be read, two columns have one
            name, or it has no rows or only columns of bytes.
    """
    check_file(path, (SUFFIX,))
    import pyarrow
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            kept = _columns(path, file.schema_arrow)
            batches = file.iter_batches(
                min(limit or _BATCH_ROWS, _BATCH_ROWS), columns=kept
            )
            for batch in batches:
                missing = None if limit is None else limit - len(rows)
                # Asked for a column `a`, parquet gives `a.b` too.
                rows += batch.select(kept).slice(0, missing).to_pylist()
                if len(rows) == limit:
                    break
    except MemoryError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, *_NO_TIME) as e:
        line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise InputError(f"{path}: not a readable .parquet file ({line})") from e
    if not rows:
        raise InputError(f"{path}: no examples", hint="nothing to test in this file")
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _columns(path: Path, fields: "pyarrow.Schema") -> list[str]:
    """Names of the columns that are kept, each once."""
    count = Counter(fields.names)
    if repeated := [name for name, n in count.items() if n > 1]:
        raise InputError(f"{path}: two columns named {repeated[0]!r}")
    kept = [field.name for field in fields if not _has_bytes(field.type)]
    if fields.names and not kept:
        raise InputError(
            f"{path}: all columns are binary ({', '.join(fields.names)})",
            hint="texts must be in columns of strings",
        )
    return kept


def _has_bytes(kind: "pyarrow.DataType") -> bool:
    """Whether values of a column hold bytes at any depth."""
    import pyarrow
    import pyarrow.types

    if isinstance(kind, pyarrow.BaseExtensionType):
        is_spelled = kind.extension_name in _SPELLED_BYTES
        return not is_spelled and _has_bytes(kind.storage_type)
    if pyarrow.types.is_dictionary(kind):
        return _has_bytes(kind.value_type)
    is_bytes = (
        pyarrow.types.is_binary,
        pyarrow.types.is_large_binary,
        pyarrow.types.is_fixed_size_binary,
        pyarrow.types.is_binary_view,
    )
    if any(asked(kind) for asked in is_bytes):
        return True
    return any(_has_bytes(kind.field(i).type) for i in range(kind.num_fields))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


CsvRow = tuple[str, str, dict[str, object] | None]
"""Place of a row in its file, its raw text, and its cells by column."""


def csv_rows(path: Path, text: str, delimiter: str) -> Iterator[CsvRow]:
    """Rows below the header; the raw text may span lines inside quotes.

    Raises:
        InputError: If a row has other columns than the header, or the first row holds
            data; names the line.
    """
    taken: list[str] = []
    n_equal: Counter[int] = Counter()

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for values in reader:
            raw = "".join(taken).rstrip("\r\n")
            taken.clear()
            where = f"{path}:{reader.line_num}"
            if not values:
                continue
            if header is None:
                header = values
                if data := next(filter(_is_sentence, header), None):
                    raise _no_header(where, header, data, delimiter)
                if repeated := {name for name in header if header.count(name) > 1}:
                    raise InputError(f"{where}: two columns named {min(repeated)!r}")
                continue
            if len(values) != len(header):
                raise InputError(
                    f"{where}: {len(values)} columns (the header has {len(header)})"
                )
            # A letter of an answer, say: no name of a column stands in it twice, but
            # where a header is repeated as a whole.
            if values != header:
                n_equal.update(i for i, name in enumerate(header) if values[i] == name)
            if again := [header[i] for i, n in n_equal.items() if n > 1]:
                raise _no_header(f"{path}:1", header, again[0], delimiter)
            yield where, raw, dict(zip(header, values, strict=True))
    except csv.Error as e:
        raise InputError(f"{path}:{reader.line_num}: not {path.suffix} ({e})") from e


def _no_header(
    where: str, header: Sequence[str], data: str, delimiter: str
) -> InputError:
    names = delimiter.join(["question", *"abcdefgh"][: len(header)])
    return InputError(
        f"{where}: the first row has no names of columns, but data ({_begin(data)!r})",
        hint=f"put a line with {len(header)} names above it, such as {names}",
    )


def _is_sentence(name: str) -> bool:
    """Whether a cell is too long for the name of a column."""
    return len(name) > 80 or len(name.split()) > 7


def _begin(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
