"""`orders.npz`: the arrays that every p-value was computed from.

Entry `r/name` belongs to row r of the report's results; see `Evidence` for names.
"""

import dataclasses
import io
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.results import Evidence

# What NumPy raises for bytes that are no archive and no array: its header is Python
# text, of which it takes any, and a shape of any size.
DAMAGED_ARRAY = (
    *(ValueError, EOFError, SyntaxError, TypeError, MemoryError, OverflowError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError),
)
_NAMES = tuple(field.name for field in dataclasses.fields(Evidence))


def archive_bytes(evidence: Sequence[Evidence | None]) -> bytes:
    """The archive of a run; the same evidence gives the same bytes."""
    arrays = {
        f"{r}/{name}": getattr(row, name)
        for r, row in enumerate(evidence)
        if row is not None
        for name in _NAMES
        if getattr(row, name) is not None
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def read_archive(path: Path, n_results: int) -> list[Evidence | None]:
    """Read the evidence of each result; None where a result has none.

    Raises:
        InputError: If the file is missing or damaged, or holds what belongs to none.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as e:
        raise InputError(f"{path}: not readable ({e})") from e
    except DAMAGED_ARRAY as e:
        raise InputError(f"{path}: damaged ({e})") from e
    evidence: list[Evidence | None] = []
    for r in range(n_results):
        found = {
            name: arrays[f"{r}/{name}"] for name in _NAMES if f"{r}/{name}" in arrays
        }
        evidence.append(Evidence(**found) if found else None)
    known = {f"{r}/{name}" for r in range(n_results) for name in _NAMES}
    if strange := sorted(set(arrays) - known):
        raise InputError(f"{path}: {strange[0]!r} belongs to no result")
    return evidence
