"""Evidence of a report's numbers: arrays and texts in files beside it.

Entry `r/name` of `orders.npz` and `p_values.npz` belongs to row r of the report's
results; see `Evidence` for names. `texts.jsonl` has one row a text.
"""

import dataclasses
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.reports.read import read_result
from jaxcontam.terminal_text import json_text

ARCHIVE_NAME = "orders.npz"
P_VALUES_NAME = "p_values.npz"

# What NumPy raises for bytes that are no archive and no array: its header is Python
# text, of which it takes any, and a shape of any size.
DAMAGED_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError),
)


T = TypeVar("T")
TEXTS_NAME = "texts.jsonl"
SCORED: Mapping[str, type] = {"scores": dict, "text": str}
"""Fields of a row of scores."""
ASKED: Mapping[str, type] = {"benchmark": str, "arm": str}
"""Fields of a row of completions."""


def archive_bytes(rows: Sequence[Any]) -> bytes:
    """The archive of a run, from a dataclass of arrays a result, or None."""
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


def read_arrays(path: Path, n_results: int, kind: type[T]) -> list[T | None]:
    """Read the arrays of each result as a dataclass; None where it has none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as e:
        raise InputError(f"{path}: not readable ({e})") from e
    except DAMAGED_ARRAY as e:
        raise InputError(f"{path}: damaged ({e})") from e
    names = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    known = {f"{r}/{name}" for r in range(n_results) for name in names}
    if strange := sorted(set(arrays) - known):
        raise InputError(f"{path}: {strange[0]!r} belongs to no result")
    rows = [
        {name: arrays[f"{r}/{name}"] for name in names if f"{r}/{name}" in arrays}
        for r in range(n_results)
    ]
    return [kind(**row) if row else None for row in rows]


def number_or_none(value: float) -> float | None:
    """A number as rows of `texts.jsonl` hold it; None where there is none."""
    return float(value) if np.isfinite(value) else None


def texts_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The content of `texts.jsonl`, one JSON value a line."""
    lines = [json_text(row, indent=None, allow_nan=False) for row in rows]
    return "".join(line + "\n" for line in lines).encode()


def read_text_rows(
    directory: Path, fields: Mapping[str, type] = SCORED
) -> list[dict[str, Any]]:
    """The rows of `texts.jsonl` in a folder, each with these fields."""
    path = directory / TEXTS_NAME
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(
            f"{path}: not readable ({e})", hint="keep it in the folder of the report"
        ) from e
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
            sound = all(isinstance(row[name], kind) for name, kind in fields.items())
        except (ValueError, RecursionError, KeyError, TypeError) as e:
            raise InputError(f"{path}: line {number}: not such a row ({e})") from e
        if not sound:
            raise InputError(f"{path}: line {number}: not such a row")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: no rows")
    return rows


def typed_rows(rows: Sequence[Mapping[str, Any]], kind: type[T]) -> list[T]:
    """Rows of `texts.jsonl`, without what the kind does not hold."""
    return [
        read_result(kind, row, f"{TEXTS_NAME}: row {i}", more=True)
        for i, row in enumerate(rows)
    ]
