"""Training rows of the stream, in resumable batches.

Dimension key
    N  ids of the stream
    R  training rows
    B  rows of a batch
    T  targets a row

One batch a step, the same rows in the same place whatever the number of processes: a
process reads its own rows of each global batch, so that a run saved by two processes
resumes in four at the same step.
"""

import dataclasses

import grain
import numpy as np


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of T + 1 ids in training order, cut from the stream when indexed.

    Attributes:
        ids: (N,) ids of any integer type, in memory or mapped from a file. The stream
            is a circle: what follows its last id is its first.
        starts: (R,) where each row begins.
        context: T.
    """

    ids: np.ndarray
    starts: np.ndarray
    context: int

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        """(T + 1,) int32; the last id is the first of the next row in the stream."""
        start, length = int(self.starts[index]), self.context + 1
        if start + length <= len(self.ids):
            return self.ids[start : start + length].astype(np.int32)
        places = np.arange(start, start + length) % len(self.ids)
        return self.ids[places].astype(np.int32)


def row_batches(
    rows: Rows,
    *,
    batch_rows: int,
    n_steps: int,
    process: int = 0,
    n_processes: int = 1,
    n_threads: int = 2,
) -> grain.DatasetIterator:
    """Batches of this process, (B / n_processes, T + 1) int32, one per step.

    The iterator's `get_state` and `set_state` resume at the exact next batch; its
    state is a step count, equal in all processes.

    Args:
        rows: All rows of the run.
        batch_rows: B, rows of a global batch.
        n_steps: Batches in all; every process gets as many, or a collective hangs.
        process: Which process this is; it gets rows process, process + n_processes, ...
            of each global batch.
        n_processes: Processes in all; divides B.
        n_threads: Threads that read ahead; 0 reads when asked.

    Raises:
        ValueError: If the counts do not fit together.
    """
    if batch_rows < 1 or batch_rows % n_processes:
        raise ValueError(
            f"batch_rows must be a multiple of the {n_processes} processes, "
            f"got {batch_rows}"
        )
    if not 0 <= process < n_processes:
        raise ValueError(f"process must be in [0, {n_processes}), got {process}")
    if not 0 <= n_steps <= len(rows) // batch_rows:
        raise ValueError(
            f"n_steps must be at most {len(rows) // batch_rows} for {len(rows)} rows "
            f"in batches of {batch_rows}, got {n_steps}"
        )
    batches = _Batches(rows, batch_rows, n_steps, process, n_processes)
    options = grain.ReadOptions(
        num_threads=n_threads, prefetch_buffer_size=16 if n_threads else 0
    )
    return iter(grain.MapDataset.source(batches).to_iter_dataset(options))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Batches:
    """Source of whole batches.

    Grain calls Python several times an element: 8 rows of 512 ids, read ahead by two
    threads, took 236 us a step as single rows and take 66 us as a batch.
    """

    rows: Rows
    batch_rows: int
    n_steps: int
    process: int
    n_processes: int

    def __len__(self) -> int:
        return self.n_steps

    def __getitem__(self, index: int) -> np.ndarray:
        first = index * self.batch_rows
        own = range(first + self.process, first + self.batch_rows, self.n_processes)
        return np.stack([self.rows[row] for row in own])
