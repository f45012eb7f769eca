"""Rows of different lengths as one matrix, for archives.

Dimension key
    K  rows
    M  columns of the longest row
"""

from collections.abc import Sequence

import numpy as np


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """(K, longest) float64, short rows filled up with NaN: how archives keep them."""
    matrix_KM = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        matrix_KM[k, : len(row)] = row
    return matrix_KM


def unpadded(matrix_KM: np.ndarray) -> list[np.ndarray]:
    """Undo `padded`.

    Raises:
        ValueError: If a row has a hole.
    """
    rows = []
    for row in matrix_KM:
        length = int(np.count_nonzero(~np.isnan(row)))
        if np.isnan(row[:length]).any():
            raise ValueError("a row of scores has a hole")
        rows.append(row[:length])
    return rows
