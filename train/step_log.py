"""Logs of a run that can be resumed: JSON lines with a step, in ascending order.

A killed run may have written more steps than its last checkpoint has, and half of a
line. Opened at the step of the checkpoint, a log forgets both, so that the resumed run
writes each step once.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError

Row = Mapping[str, Any]


def read_rows(path: Path, *, last_step: int | None = None) -> list[dict[str, Any]]:
    """Rows of a log, without what an interrupted write left at its end.

    Raises:
        InputError: If a whole line is no row or the steps fall; names the line.
    """
    return _read(path, last_step)[0]


def cut_rows(path: Path, *, last_step: int) -> list[dict[str, Any]]:
    """As `read_rows`, and cuts what it leaves out off the file.

    Raises:
        InputError: As `read_rows`; the file is then as it was.
    """
    rows, n_bytes = _read(path, last_step)
    if path.is_file() and path.stat().st_size > n_bytes:
        with path.open("rb+") as file:
            file.truncate(n_bytes)
    return rows


def row_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as JSON lines."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()


def _read(path: Path, last_step: int | None) -> tuple[list[dict[str, Any]], int]:
    """Rows up to a step, and the bytes that they take."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    rows: list[dict[str, Any]] = []
    n_bytes = 0
    # What follows the last line end is a write that never came to its end.
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            step = row["step"]
            if not isinstance(step, int):
                raise TypeError("a step is a whole number")
        except (ValueError, RecursionError, KeyError, TypeError) as e:
            raise InputError(
                f"{path}:{number}: not a row with a step",
                hint="the file was changed; move it away to start it anew",
            ) from e
        if rows and step < rows[-1]["step"]:
            raise InputError(
                f"{path}:{number}: step {step} after step {rows[-1]['step']}",
                hint="two runs wrote into one folder; give each an --out of its own",
            )
        if last_step is not None and step > last_step:
            break
        rows.append(row)
        n_bytes += len(line) + 1
    return rows, n_bytes
