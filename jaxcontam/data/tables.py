"""Rows of .parquet files: records as parsed JSON would give them."""

import datetime
import decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.errors import InputError

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"


def is_table(path: Path) -> bool:
    """Whether a file is one that `read_table` reads, by its name."""
    return path.suffix.lower() == SUFFIX


def read_table(path: Path, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The first rows of a file, in its order.

    Columns of bytes, such as images, are left out; dates and decimal numbers become
    text, since JSON has neither.

    Args:
        path: A .parquet file.
        limit: Read no more rows than these; None reads all.

    Raises:
        InputError: If there is no such file, it cannot be read, or it has no rows.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    import pyarrow
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            fields = file.schema_arrow
            kept = [field.name for field in fields if not _has_bytes(field.type)]
            for batch in file.iter_batches():
                missing = batch.num_rows if limit is None else limit - len(rows)
                if missing <= 0:
                    break
                rows += batch.select(kept).slice(0, missing).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as e:
        line = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise InputError(f"{path}: not a readable .parquet file ({line})") from e
    if not rows:
        raise InputError(f"{path}: no examples", hint="nothing to test in this file")
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _has_bytes(kind: "pyarrow.DataType") -> bool:
    """Whether values of a column hold bytes at any depth."""
    import pyarrow.types

    is_bytes = (
        pyarrow.types.is_binary,
        pyarrow.types.is_large_binary,
        pyarrow.types.is_fixed_size_binary,
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
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    return value
