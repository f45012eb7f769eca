"""When planted copies are trained on: rows that leave the random order of the others.

Rows that hold a target of something timed stand together from its time on. With
eight rows, of which b, f and g hold targets of a copy whose time is one half:

    in random order     a b c d e f g h
    in time             a c d e b f g h      (place 8 / 2 = 4, counted from 0)

What would begin within something else, or end after training does, moves just far
enough. A row that two of them hold goes to the one named first.

Dimension key
    C  spans: stretches of ids
    R  training rows
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


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
