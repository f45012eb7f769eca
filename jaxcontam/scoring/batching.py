"""Rows of many lengths to batches of few shapes."""

import dataclasses
from collections.abc import Sequence

import numpy as np

# From this many on, padding rows of a length's last batch hardly count, and all plans
# share one shape, which is compiled once and finds its scores in a store.
_MANY_BATCHES = 8
# The shortest padded length where shapes are to be few.
_SHORTEST = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are scored together.

    Attributes:
        rows: Indices of the rows; fewer than `n_rows` in the last ones of a length.
        n_rows: B of the batch, padding rows included.
        length: S of the batch.
    """

    rows: tuple[int, ...]
    n_rows: int
    length: int

    def __str__(self) -> str:
        return f"{self.n_rows} rows of {self.length} ids"

    def halves(self, n_devices: int = 1) -> list["Batch"]:
        """The same rows in batches of half as many; none where a device has one row."""
        if self.n_rows <= n_devices:
            return []
        n_rows = n_devices * -(-self.n_rows // n_devices // 2)
        return [
            Batch(self.rows[start : start + n_rows], n_rows, self.length)
            for start in range(0, len(self.rows), n_rows)
        ]


def bucket_lengths(context: int, *, few_shapes: bool = False) -> list[int]:
    """Padded lengths: powers of two and their halves more, up to the context.

    At most a third of a row of 16 ids or more is padding; a context of 2,048 has 15.
    Where shapes are to be few, powers of two from 64 on: 6 of them, and at most half of
    a row of 64 or more.
    """
    lengths, power = [], _SHORTEST if few_shapes else 16
    while power < context:
        lengths += [power] if few_shapes else [power, power + power // 2]
        power *= 2
    return [length for length in lengths if length < context] + [context]


def plan_batches(
    lengths: Sequence[int],
    *,
    context: int,
    batch_tokens: int,
    n_devices: int = 1,
    few_shapes: bool = False,
) -> list[Batch]:
    """Group rows by padded length, in the order given.

    A function of the rows' lengths alone, so the same plan has the same batches. All
    rows of one padded length have one shape: full batches where they are many, and
    where they are few an even split, so that texts of many lengths, a few of each, are
    not mostly scored as padding. An accelerator scores the padding in less time than it
    takes to compile another shape: there all batches are full, and no shape depends on
    how many rows there are.

    Rows have at most `context` positions; a batch has `batch_tokens` on each device, at
    least one row.
    """
    buckets = bucket_lengths(context, few_shapes=few_shapes)
    of_bucket: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        bucket = buckets[int(np.searchsorted(buckets, length))]
        of_bucket.setdefault(bucket, []).append(row)
    batches = []
    for bucket, rows in sorted(of_bucket.items()):
        n_rows = most = max(1, batch_tokens // bucket)
        if not few_shapes:
            n_rows = _rows_of_a_batch(-(-len(rows) // n_devices), most)
        n_rows *= n_devices
        batches += [
            Batch(tuple(rows[start : start + n_rows]), n_rows, bucket)
            for start in range(0, len(rows), n_rows)
        ]
    return batches


def _rows_of_a_batch(n: int, most: int) -> int:
    """Rows of each batch of `n` in all, at most `most`."""
    n_batches = -(-n // most)
    return most if n_batches > _MANY_BATCHES else -(-n // n_batches)
