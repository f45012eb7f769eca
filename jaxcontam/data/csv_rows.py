"""Rows of a .csv or .tsv file below its header."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxcontam.errors import InputError

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
