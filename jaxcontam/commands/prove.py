"""`jaxcontam prove`: p-values for a matrix that any engine filled."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from jaxcontam.analyses.flag_words import path_word
from jaxcontam.analyses.prove import (
    check_boundaries,
    check_cells,
    check_labels,
    prove,
)
from jaxcontam.commands.flags import ReportFlags, check_min_effect, flags_of
from jaxcontam.commands.publish import shown
from jaxcontam.data.tables import is_number
from jaxcontam.errors import InputError, first_line
from jaxcontam.report.archive import DAMAGED_ARRAY
from jaxcontam.report.numbers import p_of
from jaxcontam.report.outcome import print_results
from jaxcontam.terminal import Terminal, printable
from jaxcontam.verdict import MIN_EFFECT

# Of a file, and of what an .npz unpacks to.
_MOST_BYTES = 1 << 30
_WITHOUT_LABELS = "leave it out, as pandas does: to_csv(header=False, index=False)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prove(ReportFlags):
    """Test a matrix of scores: rows are strata, column 0 the published version.

    Examples:
        # a row per stratum, the published version first
        jaxcontam prove matrix.csv
    """

    matrix: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MATRIX")]
    """A .csv, with names of columns or without, .npy or .npz: (K, m + 1) numbers."""
    scores: Literal["centred", "studentised", "auto"] = "centred"
    """How rows become scores."""
    boundaries: str | None = None
    """Boundaries a row, one number or a file of K, for an effect in nats each."""
    min_effect: float = MIN_EFFECT
    """Effect that `no evidence` must have been able to find, in the effect's unit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_min_effect(self.min_effect)

    def run(self) -> dict:
        """Test, write the report, print; returns the report."""
        matrix_KM = read_matrix(self.matrix)
        result = prove(
            matrix_KM,
            boundaries=self._boundaries(len(matrix_KM)),
            scores=self.scores,
            min_effect=self.min_effect,
            seed=self.seed,
            name=printable(self.matrix.name),
            command=("prove", path_word(self.matrix), *flags_of(self)),
        )
        (row,) = result.results
        out = self.report_folder("prove", printable(self.matrix.stem), row.fingerprint)

        def show(console: Terminal) -> None:
            print_results([row], console)
            console.print(
                f"\n{p_of(row)} by an exact test of {len(matrix_KM)} rows "
                f"(Monte Carlo {row.numbers.p_monte_carlo:.2g}, floor "
                f"{row.numbers.p_floor:.2g}), if every column was equally likely "
                "before the model was trained."
            )

        return shown(lambda: result.written(out), show, as_json=self.json)

    def _boundaries(self, n_rows: int) -> np.ndarray | None:
        if self.boundaries is None:
            return None
        try:
            values = np.full(n_rows, float(self.boundaries))
        except ValueError:
            values = read_matrix(Path(self.boundaries), columns=1)[:, 0]
        return check_boundaries(values, n_rows, f"--boundaries {self.boundaries}")


def read_matrix(path: Path, *, columns: int | None = None) -> np.ndarray:
    """Read a (K, m + 1) float64 matrix from .csv, .npy, or an .npz of one array.

    Args:
        path: The file; the first line of a .csv may name its columns.
        columns: Columns that it must have; None asks for at least 2.

    Raises:
        InputError: If a cell is blank, no number, NaN or infinite, or rows differ in
            length (names row and column, counted from 1); or if the first row or column
            of a .csv looks like labels.
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
        matrix = matrix.astype(np.float64)
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
        check_labels(
            matrix,
            str(path),
            hint=f"{_WITHOUT_LABELS}; if these are scores, save them as .npy",
        )
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
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e
    if lines == [""]:
        raise InputError(f"{path}: no numbers", hint="the file is empty")
    rows: list[np.ndarray] = []
    width, named = 0, False
    for number, line in enumerate(lines, 1):
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if number == 1:
            width, named = len(cells), not any(map(is_number, cells))
            if width > 1 and not cells[0]:
                raise InputError(
                    f"{path}: row 1, column 1: blank, as above an index",
                    hint=_WITHOUT_LABELS,
                )
            if named and all(cells):
                continue
        if len(cells) != width:
            raise InputError(
                f"{path}: row {number}, column {min(len(cells), width) + 1}: "
                f"{len(cells)} cells (row 1 has {width})"
            )
        rows.append(np.empty(width))
        for column, cell in enumerate(cells, 1):
            try:
                # float() takes 1_000 for 1000.
                rows[-1][column - 1] = float(cell if "_" not in cell else "no number")
            except ValueError as e:
                what = "blank" if not cell else f"{cell!r} is no number"
                raise InputError(
                    f"{path}: row {number}, column {column}: {what}",
                    hint="comma-separated numbers, below names of columns or alone"
                    * (number == 1 + named),
                ) from e
    return np.array(rows).reshape(len(rows), width)
