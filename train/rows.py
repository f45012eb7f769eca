"""Training rows: when planted copies are trained on, and resumable batches.

One batch a step, the same rows in the same place whatever the number of processes: a
process reads its own rows of each global batch, so that a run saved by two processes
resumes in four at the same step.

Rows that hold a target of something timed leave the random order of the others and
stand together from its time on. With eight rows, of which b, f and g hold targets of a
copy whose time is one half:

    in random order     a b c d e f g h
    in time             a c d e b f g h      (place 8 / 2 = 4, counted from 0)

What would begin within something else, or end after training does, moves just far
enough. A row that two of them hold goes to the one named first.

Dimension key
    N  ids of the stream
    C  spans: stretches of ids
    R  training rows
    B  rows of a batch
    T  targets a row
"""

import dataclasses
from collections.abc import Sequence

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

    def batch(step: int) -> np.ndarray:
        first = step * batch_rows
        own = range(first + process, first + batch_rows, n_processes)
        return np.stack([rows[row] for row in own])

    # Whole batches, since Grain calls Python several times an element: 8 rows of 512
    # ids, read ahead by two threads, took 236 us a step as single rows, 66 as a batch.
    batches = grain.MapDataset.range(n_steps).map(batch)
    options = grain.ReadOptions(
        num_threads=n_threads, prefetch_buffer_size=16 if n_threads else 0
    )
    return iter(batches.to_iter_dataset(options))


@dataclasses.dataclass(frozen=True, slots=True)
class Timed:
    """What to train on together, at one time.

    Attributes:
        fraction: When it begins, as a share of training in [0, 1]; None for a
            random time.
        spans: Place of the first id and number of ids of each stretch, in the order
            in which they are trained on.
    """

    fraction: float | None
    spans: tuple[tuple[int, int], ...]


def in_time(
    starts_R: np.ndarray,
    timed: Sequence[Timed],
    *,
    context: int,
    n_ids: int,
    seed: int,
    n_trained: int | None = None,
) -> np.ndarray:
    """Rows in the order of training, from rows in random order.

    Args:
        starts_R: Where each row starts in the stream, in random order.
        timed: What has its own time.
        context: T, targets a row.
        n_ids: N, the length of the stream.
        seed: Draws random times.
        n_trained: Rows that training will take of the R; None for all. Fractions are
            of these, and what is timed stands among them where it fits.

    Returns:
        starts_R in another order; rows that hold nothing timed keep theirs.
    """
    R = len(starts_R)
    n_trained = R if n_trained is None else min(n_trained, R)
    groups = _rows_of_each(timed, starts_R, context, n_ids)
    sizes = [len(rows) for rows in groups]
    rng = np.random.default_rng([seed, 4])
    wanted = [
        round(one.fraction * n_trained)
        if one.fraction is not None
        else int(rng.integers(max(0, n_trained - size) + 1))
        for one, size in zip(timed, sizes, strict=True)
    ]
    # Only where nothing else is left do the rows come in that no step takes.
    end = n_trained if sum(sizes) <= n_trained else R
    order_R = np.full(R, -1)
    for begin, rows in zip(_fitted(wanted, sizes, end), groups, strict=True):
        order_R[begin : begin + len(rows)] = rows
    is_timed_R = np.zeros(R, bool)
    is_timed_R[np.concatenate(groups)] = True
    order_R[order_R < 0] = np.flatnonzero(~is_timed_R)
    return starts_R[order_R]


def rows_of_spans(
    spans_C2: np.ndarray, *, starts_R: np.ndarray, context: int, n_ids_in_all: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that hold a target of any of many stretches; time barely grows with R.

    Args:
        spans_C2: Place of the first id, and number of ids, at least 1, of each.
        starts_R: From `training_order`.
        context: T.
        n_ids_in_all: N.

    Returns:
        (rows, spans): index of a row in the order of training, and the span of which
        it holds a target; span by span, the rows of one in the stream's order.
    """
    offsets_C, sizes_C = spans_C2.T
    by_start_R = np.argsort(starts_R)
    # Row targets are start + 1 .. start + T; a span is offset .. offset + size - 1. The
    # row with the span's first target starts before it, the last one that does.
    first_C = np.searchsorted(starts_R[by_start_R], (offsets_C - 1) % n_ids_in_all + 1)
    counts_C = np.minimum((sizes_C - 1) // context + 2, len(starts_R))
    spans = np.repeat(np.arange(len(spans_C2)), counts_C)
    within = np.arange(len(spans)) - np.repeat(np.cumsum(counts_C) - counts_C, counts_C)
    rows = by_start_R[(first_C[spans] - 1 + within) % max(1, len(starts_R))]
    gaps = (starts_R[rows] - (offsets_C[spans] - context)) % n_ids_in_all
    is_held = gaps <= sizes_C[spans] + context - 2
    return rows[is_held], spans[is_held]


def _rows_of_each(
    timed: Sequence[Timed], starts_R: np.ndarray, context: int, n_ids: int
) -> list[np.ndarray]:
    """The rows that each takes, in the order of its spans; no row is taken twice."""
    spans_C2 = np.array([span for one in timed for span in one.spans], np.int64)
    rows, spans = rows_of_spans(
        spans_C2.reshape(-1, 2),
        starts_R=starts_R,
        context=context,
        n_ids_in_all=n_ids,
    )
    _, firsts = np.unique(rows, return_index=True)
    firsts.sort()
    ends = np.cumsum([len(one.spans) for one in timed])
    cuts = np.searchsorted(spans[firsts], ends[:-1])
    return np.split(rows[firsts], cuts)


def _fitted(wanted: Sequence[int], sizes: Sequence[int], end: int) -> list[int]:
    """Where each begins so that none overlap and all end in time."""
    begins, after = list(wanted), 0
    in_time = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for i in in_time:
        begins[i] = max(begins[i], after)
        after = begins[i] + sizes[i]
    for i in reversed(in_time):
        begins[i] = min(begins[i], end - sizes[i])
        end = begins[i]
    return begins
