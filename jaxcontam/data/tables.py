"""Rows of .parquet files, with values as in parsed JSON, and of .csv and .tsv."""

import contextlib
import csv
import datetime
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxcontam.data.files import check_file
from jaxcontam.errors import InputError

if TYPE_CHECKING:
    import _csv

    import pyarrow

SUFFIX = ".parquet"

Record = tuple[str, str, dict[str, object] | None]
"""Place of an example in its file, its raw text, and its parsed fields."""

SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
"""First line of a table, by which a spreadsheet knows how it is separated."""

_BATCH_ROWS = 65536
# A year above 9999 overflows, and an unknown time zone is a missing key.
_NO_TIME = (OverflowError, KeyError)
# Values of 16 bytes that are read as numbers with their own spelling.
_SPELLED_BYTES = ("arrow.uuid",)


def is_table(path: Path) -> bool:
    """True if a file is one that `read_table` reads, by its name."""
    return path.suffix.lower() == SUFFIX


def read_table(path: Path, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows of a file, in order.

    Columns of bytes, such as images, are not read; types that JSON lacks, such as
    dates, decimal numbers and UUIDs, become strings.
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
            hint="store texts in columns of strings",
        )
    return kept


def _has_bytes(kind: "pyarrow.DataType") -> bool:
    """True if values of a column hold bytes at any depth."""
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


class CsvTable:
    """Rows of a .csv or .tsv file below its header.

    Quotes enclose cells; in a .tsv they may be characters: whichever reads every row to
    the width of the header. Columns without a name, which spreadsheets write, are none
    as long as they are blank; a first line such as `sep=,` is no row.

    Attributes:
        n_blank: Blank lines outside quotes, and empty rows, above a row that was read.
        span: First and last column, once a row was read.
        notes: Which of two readings was taken, where rows or cells would differ; how
            many blank columns are left out.
    """

    def __init__(
        self, path: Path, text: str, delimiter: str, *, no_header: bool = False
    ):
        """Reads nothing; without a header columns are `column_1`, `column_2`, ..."""
        self._path, self._text, self._delimiter = path, text, delimiter
        self._no_header = no_header
        self.n_blank = 0
        self.span = ""
        self.notes: tuple[str, ...] = ()

    def rows(self) -> Iterator[Record]:
        """Place, raw text, which may span lines inside quotes, and cells."""
        taken: list[str] = []
        n_equal: Counter[int] = Counter()
        path, blank = self._path, 0
        start = _after_separator(path, self._text, self._delimiter)
        csv.field_size_limit(max(csv.field_size_limit(), len(self._text) + 1))
        text = self._text[start:]
        is_bare, self.notes = self._quoting(text)

        def lines() -> Iterator[str]:
            for line in io.StringIO(text, newline=""):
                taken.append(line)
                yield line

        reader = self._reader(lines(), is_bare=is_bare)
        written: list[str] | None = None
        header: list[str] = []
        kept: list[int] = []
        try:
            for values in reader:
                raw = "".join(taken).rstrip("\r\n")
                taken.clear()
                where = f"{path}:{reader.line_num + (start > 0)}"
                if not any(value.strip() for value in values):
                    blank += 1
                    continue
                self.n_blank = blank
                if written is None:
                    written = values
                    header = self._header(values)
                    blank_columns = self._blank_columns(text, header, is_bare=is_bare)
                    kept = [i for i in range(len(header)) if i not in blank_columns]
                    if not self._no_header:
                        self._check_names([(i, header[i]) for i in kept], where)
                    if n_blank := len(values) - len(kept):
                        self.notes += (_blank_words(n_blank),)
                    self.span = f"{header[kept[0]]} to {header[kept[-1]]}"
                    if not self._no_header:
                        continue
                if (cells := fitting_cells(values, header, written)) is None:
                    says = "first row" if self._no_header else "header"
                    raise InputError(
                        f"{where}: {len(values)} columns (the {says} has {len(header)})"
                    )
                # A letter of an answer, say: no name of a column stands in it twice,
                # but where a header is repeated as a whole.
                if cells != header:
                    pairs = enumerate(zip(header, cells, strict=True))
                    n_equal.update(i for i, (name, cell) in pairs if name == cell != "")
                if again := [header[i] for i, n in n_equal.items() if n > 1]:
                    raise self._refusal(f"{path}:1", header, again[0])
                yield where, raw, {header[i]: cells[i] for i in kept}
        except csv.Error as e:
            raise InputError(
                f"{path}:{reader.line_num + (start > 0)}: not {path.suffix} ({e})"
            ) from e

    def _reader(self, lines: Iterable[str], *, is_bare: bool) -> "_csv.Reader":
        quoting = csv.QUOTE_NONE if is_bare else csv.QUOTE_MINIMAL
        return csv.reader(
            lines, delimiter=self._delimiter, quoting=quoting, strict=True
        )

    def _quoting(self, text: str) -> tuple[bool, tuple[str, ...]]:
        """True if quotes are characters, and notes on it."""
        if '"' not in text:
            return False, ()
        quoted, bare = (self._reading(text, is_bare=way) for way in (False, True))
        is_tsv = self._delimiter == "\t"
        if bare.n_lines != quoted.n_lines:
            is_bare = is_tsv and bare.n_lines > quoted.n_lines
            line = f"line {quoted.n_lines + 1} cannot be read with cells in quotes"
            why = f" ({line})" if is_bare else None
        elif bare.n_rows != quoted.n_rows:
            # Lines of a cell that have as many tabs as a row would be a coincidence.
            is_bare = is_tsv and bare.width > 1
            n_rows = [bare.n_rows, quoted.n_rows][:: 1 if is_bare else -1]
            says = " ({} rows, {} the other way)".format(*n_rows)
            why = says if is_tsv or bare.width > 1 else None
        else:
            # Who puts cells in quotes does so with each that holds one.
            is_bare = is_tsv and bare.has_inner
            why = "" if is_tsv else None
        note = f"quotes {'are characters' if is_bare else 'enclose cells'}"
        return is_bare, () if why is None else (note + why,)

    def _reading(self, text: str, *, is_bare: bool) -> "_Reading":
        """Read a text in one way, as far as it goes."""
        reader = self._reader(io.StringIO(text, newline=""), is_bare=is_bare)
        written: list[str] = []
        header: list[str] = []
        n_rows, n_lines, has_inner = -(not self._no_header), 0, False
        try:
            for values in reader:
                if not any(map(str.strip, values)):
                    continue
                if not written:
                    written = values
                    header = values if self._no_header else without_blank_end(values)
                if fitting_cells(values, header, written) is None:
                    break
                n_rows, n_lines = n_rows + 1, reader.line_num
                has_inner = has_inner or any(value.find('"') > 0 for value in values)
            else:
                n_lines = reader.line_num
        except csv.Error:
            pass
        return _Reading(n_rows, n_lines, len(header), has_inner)

    def _header(self, values: list[str]) -> list[str]:
        """Names of the columns, from the first row or from their positions."""
        if self._no_header:
            return [f"column_{i}" for i in range(1, len(values) + 1)]
        return without_blank_end(values)

    def _blank_columns(
        self, text: str, header: Sequence[str], *, is_bare: bool
    ) -> set[int]:
        """Columns without a name and without a cell, as far as rows can be read."""
        blank = {i for i, name in enumerate(header) if not name}
        reader = self._reader(io.StringIO(text, newline=""), is_bare=is_bare)
        with contextlib.suppress(csv.Error):
            for values in reader if blank else ():
                blank -= {i for i in blank if values[i : i + 1] and values[i].strip()}
                if not blank:
                    break
        return blank

    def _check_names(self, names: Sequence[tuple[int, str]], where: str) -> None:
        """Refuse the names of columns, each with its place, that tell none apart."""
        values = [name for _, name in names]
        if data := next(filter(_is_sentence, values), None):
            raise self._refusal(where, values, data)
        nameless = [str(i + 1) for i, name in names if not name]
        if len(nameless) > 1:
            raise InputError(
                f"{where}: columns {', '.join(nameless)} have no name",
                hint="give each column a name of its own",
            )
        if repeated := {name for name in values if values.count(name) > 1}:
            if number := next(filter(is_number, repeated), None):
                raise self._refusal(where, values, number)
            raise InputError(f"{where}: two columns named {min(repeated)!r}")

    def _refusal(self, where: str, header: Sequence[str], data: str) -> InputError:
        names = self._delimiter.join(["question", *"abcdefgh"][: len(header)])
        return InputError(
            f"{where}: the first row holds data, not names of columns "
            f"({_begin(data)!r})",
            hint=f"put a line with {len(header)} names above it, such as {names}, or "
            "pass --no-header to audit, membership, calibrate, score or release",
        )


class _Reading(NamedTuple):
    """Rows and lines up to the first that does not fit, columns, and stray quotes."""

    n_rows: int
    n_lines: int
    width: int
    has_inner: bool


def without_blank_end(header: list[str]) -> list[str]:
    """Names of columns without blank ones at the end."""
    end = next((i for i in range(len(header), 0, -1) if header[i - 1].strip()), 0)
    return header[:end]


def fitting_cells(
    values: list[str], header: list[str], written: list[str]
) -> list[str] | None:
    """Cells of a row below a header; None if there are others than it names.

    `written` has blank names at the end besides, which blank cells may stand below.
    """
    n = len(header)
    if len(values) == n:
        return values
    if n < len(values) <= len(written) and not any(map(str.strip, values[n:])):
        return values[:n]
    return None


def _blank_words(n: int) -> str:
    columns = "columns" if n > 1 else "column"
    is_field = "are no fields" if n > 1 else "is no field"
    return f"{n} empty {columns} without a name {is_field}"


def _after_separator(path: Path, text: str, delimiter: str) -> int:
    """Start of a table after the line `sep=,` of a spreadsheet."""
    if (found := SEPARATOR.match(text)) is None:
        return 0
    if found[1] != delimiter:
        raise InputError(
            f"{path}:1: cells are separated by {found[1]!r}",
            hint=f"separate them with {delimiter!r} in a {path.suffix} file",
        )
    return found.end()


def is_number(name: str) -> bool:
    """True if a cell is a number, and no name."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def _is_sentence(name: str) -> bool:
    """True if a cell is too long for the name of a column."""
    return len(name) > 80 or len(name.split()) > 7


def _begin(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
