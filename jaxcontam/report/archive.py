"""`orders.npz` and `p_values.npz`: the arrays that every p-value was computed from.

Entry `r/name` belongs to row r of the report's results; see `Evidence` for names.
"""

import dataclasses
import io
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.results import Evidence
from jaxcontam.results.calibration import DrawnPValues

ARCHIVE_NAME = "orders.npz"
P_VALUES_NAME = "p_values.npz"

# What NumPy raises for bytes that are no archive and no array: its header is Python
# text, of which it takes any, and a shape of any size.
DAMAGED_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError),
)


def archive_bytes(rows: Sequence[Evidence | DrawnPValues | None]) -> bytes:
    """The archive of a run; the same evidence gives the same bytes."""
    arrays = {
        f"{r}/{field.name}": value
        for r, row in enumerate(rows)
        if row is not None
        for field in dataclasses.fields(row)
        if (value := getattr(row, field.name)) is not None
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def read_archive(path: Path, n_results: int) -> list[Evidence | None]:
    """Read the evidence of each result; None where a result has none.

    Raises:
        InputError: If the file is missing or damaged.
    """
    rows = _read_rows(path, n_results, Evidence)
    return [Evidence(**row) if row else None for row in rows]


def read_p_values(path: Path, n_results: int) -> list[DrawnPValues]:
    """Read the p-values of each row of a calibration.

    Raises:
        InputError: If the file is missing, damaged or of another report.
    """
    rows = _read_rows(path, n_results, DrawnPValues)
    if not all("p_value" in row for row in rows):
        raise InputError(f"{path}: not the p-values of this report")
    return [DrawnPValues(**row) for row in rows]


def _read_rows(path: Path, n_results: int, kind: type[Any]) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as e:
        raise InputError(f"{path}: not readable ({e})") from e
    except DAMAGED_ARRAY as e:
        raise InputError(f"{path}: damaged ({e})") from e
    names = [field.name for field in dataclasses.fields(kind)]
    known = {f"{r}/{name}" for r in range(n_results) for name in names}
    if strange := sorted(set(arrays) - known):
        raise InputError(f"{path}: {strange[0]!r} belongs to no result")
    return [
        {name: arrays[f"{r}/{name}"] for name in names if f"{r}/{name}" in arrays}
        for r in range(n_results)
    ]
