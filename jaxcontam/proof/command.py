"""`jaxcontam prove`: p-values for a matrix that any engine filled."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxcontam.arguments import path_word
from jaxcontam.data.tables import is_number
from jaxcontam.errors import InputError, first_line
from jaxcontam.progress import log_of_large
from jaxcontam.proof.advice import p_of
from jaxcontam.proof.flags import Prove
from jaxcontam.proof.outcome import print_results
from jaxcontam.proof.prove import check_boundaries, check_cells, check_labels, prove
from jaxcontam.proof.publish import shown
from jaxcontam.reports.archive import DAMAGED_ARRAY
from jaxcontam.reports.flags import flags_of
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

# Most that a file holds, and that an .npz unpacks to.
_MOST_BYTES = 1 << 30
# Lines of a .csv that are read at once.
_LINES = 2**15
_WITHOUT_LABELS = "leave it out; in pandas: to_csv(header=False, index=False)"


def prove_matrix(command: Prove) -> dict:
    """Test, write the report, print; returns the report."""
    with log_of_large(
        command.matrix, f"reading {printable(command.matrix.name)}"
    ) as say:
        matrix_KM = read_matrix(command.matrix)
        K, M = matrix_KM.shape
        say(f"testing {K:,} rows of {M:,}")
        result = prove(
            matrix_KM,
            boundaries=_boundaries(command, K),
            statistic=command.statistic,
            min_effect=command.min_effect,
            seed=command.seed,
            name=printable(command.matrix.name),
            command=("prove", path_word(command.matrix), *flags_of(command)),
        )
    # The result holds its own.
    del matrix_KM
    (row,) = result.results
    out = command.report_folder(
        "prove", printable(command.matrix.stem), row.fingerprint
    )

    def write() -> tuple[dict, Path]:
        with log_of_large(command.matrix, f"writing {out}"):
            return result.written(out)

    def show(console: Terminal) -> None:
        print_results([row], console)
        console.print(
            f"\n{p_of(row)} by an exact test of {K} rows "
            f"(Monte Carlo {row.numbers.p_monte_carlo:.2g}, floor "
            f"{row.numbers.p_floor:.2g}), if every column was equally likely "
            "before the model was trained."
        )

    return shown(write, show, as_json=command.json)


def _boundaries(command: Prove, n_rows: int) -> np.ndarray | None:
    if command.boundaries is None:
        return None
    try:
        values = np.full(n_rows, float(command.boundaries))
    except ValueError:
        values = read_matrix(Path(command.boundaries), columns=1)[:, 0]
    return check_boundaries(values, n_rows, f"--boundaries {command.boundaries}")


def read_matrix(path: Path, *, columns: int | None = None) -> np.ndarray:
    """Read a (K, m + 1) float64 matrix from .csv, .npy, or an .npz of one array.

    The first line of a .csv may name its columns. It must have `columns`, or at least
    2.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {what}")
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes (at most {_MOST_BYTES:,})")
    is_array = path.suffix.lower() in (".npy", ".npz")
    if is_array:
        matrix = _read_array(path)
        if matrix.ndim == 1 and columns == 1:
            matrix = matrix[:, None]
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            raise InputError(
                f"{path}: expected a matrix of real numbers, got shape {matrix.shape} "
                f"of {matrix.dtype}"
            )
        matrix = matrix.astype(np.float64, copy=False)
    else:
        matrix = _read_csv(path)
    wanted = f"{columns}" if columns else "at least 2"
    n_columns = matrix.shape[1]
    if matrix.size == 0:
        raise InputError(f"{path}: no numbers", hint="the file is empty")
    if n_columns != columns if columns else n_columns < 2:
        raise InputError(f"{path}: {n_columns} columns (needs {wanted})")
    check_cells(matrix, str(path))
    if columns is None and not is_array:
        hint = f"{_WITHOUT_LABELS}; if these are scores, save them as .npy"
        check_labels(matrix, str(path), hint=hint)
    return matrix


def _read_array(path: Path) -> np.ndarray:
    """The array of a .npy, or the only one of an .npz; neither is unpickled."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            if len(names := loaded.files) != 1:
                raise InputError(
                    f"{path}: {len(names)} arrays ({', '.join(names)[:200]})",
                    hint="save the matrix alone, as .npy",
                )
            size = sum(member.file_size for member in loaded.zip.infolist())
            if size > _MOST_BYTES:
                raise InputError(
                    f"{path}: unpacks to {size:,} bytes (at most {_MOST_BYTES:,})"
                )
            return np.asarray(loaded[names[0]])
    except (OSError, *DAMAGED_ARRAY) as e:
        raise InputError(
            f"{path}: not a {path.suffix} array of numbers ({first_line(e)})"
        ) from e


def _read_csv(path: Path) -> np.ndarray:
    parts: list[np.ndarray] = []
    width, named, number = 0, False, 0
    for lines in _line_batches(path):
        if number == 0:
            first = _cells(lines[0])
            width, named = len(first), not any(map(is_number, first))
            if width > 1 and not first[0]:
                raise InputError(
                    f"{path}: row 1, column 1: blank, as in the column of an index",
                    hint=_WITHOUT_LABELS,
                )
            named = named and all(first)
            lines, number = lines[named:], int(named)
        parts.append(_numbers(lines, width, path, after=number))
        number += len(lines)
    if number == 0:
        raise InputError(f"{path}: no numbers", hint="the file is empty")
    return np.concatenate(parts)


def _line_batches(path: Path) -> Iterator[list[str]]:
    blank: list[str] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            while batch := list(itertools.islice(file, _LINES)):
                lines = blank + batch
                n = len(lines)
                while n and not lines[n - 1].strip():
                    n -= 1
                blank = lines[n:]
                if n:
                    yield lines[:n]
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {_first_fault(path)}: not UTF-8") from e


def _first_fault(path: Path) -> int:
    """The first byte of a file that is not UTF-8; readers count from their buffer."""
    try:
        path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        return e.start
    raise AssertionError("the file changed while it was read")


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.split(",")]


def _numbers(lines: Sequence[str], width: int, path: Path, *, after: int) -> np.ndarray:
    """(lines, width) float64; `after` lines of the file stand before them."""
    with contextlib.suppress(ValueError):
        # NumPy's reader skips blank lines, and warns where it finds no other.
        if lines and not lines[0].isspace():
            part = np.loadtxt(lines, delimiter=",", comments=None, ndmin=2)
            if part.shape == (len(lines), width):
                return part
    # Cell by cell: quoted numbers, and the place of what is wrong.
    rows = np.empty((len(lines), width))
    for i, line in enumerate(lines):
        number, cells = after + i + 1, _cells(line)
        if len(cells) != width:
            raise InputError(
                f"{path}: row {number}, column {min(len(cells), width) + 1}: "
                f"{len(cells)} cells (row 1 has {width})",
                hint="give a number in each cell: a row per stratum, the published "
                "order first",
            )
        for column, cell in enumerate(cells, 1):
            try:
                # float() takes 1_000 for 1000.
                rows[i, column - 1] = float(cell if "_" not in cell else "no number")
            except ValueError as e:
                what = "blank" if not cell else f"{cell!r} is not a number"
                raise InputError(
                    f"{path}: row {number}, column {column}: {what}",
                    hint=(
                        "give comma-separated numbers, with or without a first row of "
                        "column names"
                        if number <= 2 and i == 0
                        else ""
                    ),
                ) from e
    return rows
