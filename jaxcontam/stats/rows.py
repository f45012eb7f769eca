"""Rows of different lengths as one flat array: a (K, M) matrix whose M may vary.

Dimension key
    K  strata
    M  columns of a row
    N  values of all rows together
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

Matrix = np.ndarray | Sequence[np.ndarray]
"""A (K, M) array, or K one-dimensional arrays of any lengths of at least 2."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """K rows, one after another; column 0 of each is the published version.

    `flat` is (N,) float64, `sizes` (K,) int64 values per row, each at least 1.
    """

    flat: np.ndarray
    sizes: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """(K,) int64; where each row begins."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def first(self) -> np.ndarray:
        """(K,) column 0."""
        return self.flat[self.starts]

    def sums(self) -> np.ndarray:
        """(K,) sums of the rows."""
        return np.add.reduceat(self.flat, self.starts)

    def means(self) -> np.ndarray:
        """(K,) means of the rows."""
        return self.sums() / self.sizes

    def largest(self) -> np.ndarray:
        """(K,) largest value of each row."""
        return np.maximum.reduceat(self.flat, self.starts)

    def ranges(self) -> np.ndarray:
        """(K,) largest less smallest value of each row."""
        return self.largest() - np.minimum.reduceat(self.flat, self.starts)

    def variances(self) -> np.ndarray:
        """(K,) variances, divided by one less than the row's length; nan for one."""
        squares = Rows(self.minus(self.means()).flat ** 2, self.sizes).sums()
        return np.where(self.sizes > 1, squares / np.maximum(self.sizes - 1, 1), np.nan)

    def spread(self, values_K: np.ndarray) -> np.ndarray:
        """(N,) one number per row, repeated over its columns."""
        return np.repeat(values_K, self.sizes)

    def minus(self, values_K: np.ndarray) -> "Rows":
        """Each row less its own number."""
        return Rows(self.flat - self.spread(values_K), self.sizes)

    def others(self) -> "Rows":
        """The rows without column 0."""
        return Rows(np.delete(self.flat, self.starts), self.sizes - 1)

    def split(self) -> list[np.ndarray]:
        """K one-dimensional arrays (views)."""
        return np.split(self.flat, self.starts[1:])


def flat_rows(matrix: Matrix) -> Rows:
    """Rows of a (K, M) array or of a sequence of K arrays, each finite and M >= 2."""
    is_matrix = isinstance(matrix, np.ndarray) and matrix.ndim == 2
    for part in [matrix] if is_matrix else matrix:
        if np.ma.is_masked(part) or np.iscomplexobj(part):
            raise ValueError("matrix must hold real numbers, none of them masked")
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2:
        K, M = matrix.shape
        if K < 1 or M < 2:
            raise ValueError(
                f"matrix must have K >= 1 rows and 2 columns, got {(K, M)}"
            )
        rows = Rows(np.asarray(matrix, np.float64).ravel(), np.full(K, M))
    else:
        arrays = [np.asarray(row, np.float64) for row in matrix]
        if not arrays:
            raise ValueError("matrix must have K >= 1 rows, got none")
        for k, row in enumerate(arrays):
            if row.ndim != 1 or len(row) < 2:
                raise ValueError(
                    f"row {k} must be a list of at least 2 values, got {row.shape}"
                )
        rows = Rows(np.concatenate(arrays), np.array([len(row) for row in arrays]))
    if not np.isfinite(rows.flat).all():
        raise ValueError("log-likelihoods must be finite")
    return rows


def summed_rows(rows: Iterable[np.ndarray], limit: int) -> Iterator[np.ndarray]:
    """Rows whose neighbours are replaced by sums over all choices of their columns.

    A uniform column of such a row has the law of the sum of one uniform column of each
    row that went into it. Rows longer than `limit` columns pass as they are. Rows are
    read once.
    """
    sums = np.zeros(1)
    for row_M in rows:
        if len(sums) > 1 and len(sums) * len(row_M) > limit:
            yield sums
            sums = np.zeros(1)
        sums = np.add.outer(sums, row_M).ravel()
    yield sums


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """(K, longest) float64, short rows filled up with NaN: how archives keep them."""
    matrix_KM = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        matrix_KM[k, : len(row)] = row
    return matrix_KM


def unpadded(matrix_KM: np.ndarray) -> Matrix:
    """Undo `padded`; rows of one length stay a matrix. A hole is a ValueError."""
    if not np.isnan(matrix_KM).any():
        return matrix_KM
    rows = []
    for row in matrix_KM:
        length = int(np.count_nonzero(~np.isnan(row)))
        if np.isnan(row[:length]).any():
            raise ValueError("a row of scores has a hole")
        rows.append(row[:length])
    return rows
