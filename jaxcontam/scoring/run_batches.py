"""Rows of many lengths to batches of few shapes, past a store and through a device.

No row is scored twice; where the device has no room for a batch, it takes halves.
"""

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.scoring.store import RowKeys, ScoreStore

# Status of XLA on every platform, when a program is loaded or run.
_EXHAUSTED = "RESOURCE_EXHAUSTED"
# Batches in flight: the host prepares one while the device works on another.
_AHEAD = 1
BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")


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


class NoRoomError(InputError):
    """The device has no memory for a batch; the scorer retries with half batches."""


@contextlib.contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn a device's out-of-memory error, which holds its arrays, into NoRoomError."""
    try:
        yield
    except RuntimeError as e:
        if _EXHAUSTED not in str(e):
            raise
        raise NoRoomError(
            f"the device has no memory for {what}",
            hint="a smaller --batch-tokens, --dtype bfloat16 or --mesh model=N needs "
            "less; or the longest examples cut with --max-example-tokens",
        ) from None


class NonFiniteScoreError(ArithmeticError):
    """The model gave a log-probability that is not finite.

    `sequence` may be a group of pairs; `position` is then the continuation.
    """

    def __init__(self, sequence: int, position: int):
        super().__init__(f"sequence {sequence}, id {position}: not finite")
        self.sequence = sequence
        self.position = position


# Without slots, which a generic class cannot have in Python 3.11.
@dataclasses.dataclass(frozen=True)
class Work(Generic[BatchT, ValueT]):
    """How batches of one kind are scored.

    Attributes:
        finish: Values of its rows, from what the device gives; may raise.
        from_bytes: Undoes it, to the bit; takes the batch and the row's place in it.
        halves: Smaller batches of the same rows, for a device without memory for the
            whole.
        no_room: Sizes, in words, for which the device has had no memory.
    """

    keys: Callable[[BatchT, RowKeys], list[bytes]]
    start: Callable[[BatchT], Any]
    finish: Callable[[BatchT, Any], list[ValueT]]
    to_bytes: Callable[[ValueT], bytes]
    from_bytes: Callable[[BatchT, int, bytes], ValueT]
    words: Callable[[BatchT], str] = str
    halves: Callable[[BatchT], list[BatchT]] = lambda batch: []
    no_room: set[str] = dataclasses.field(default_factory=set)


def scored_batches(
    batches: Sequence[BatchT], work: Work[BatchT, ValueT], store: ScoreStore | None
) -> Iterator[tuple[BatchT, list[ValueT], bool]]:
    """Each batch with the values of its rows, and whether the store held them.

    A batch with a row that the store lacks is scored whole, so that its shape is that
    of the plan; it is stored whole or, if `finish` raises, not at all. Where the device
    has no memory for it, it is scored in halves, which the store keeps as what they
    are: rows of another shape. With several processes see `divided_batches`.
    """
    waiting: collections.deque[tuple[BatchT, _Begun[ValueT]]] = collections.deque()
    for batch in [*batches, None]:
        if batch is not None:
            waiting.append((batch, _begun(batch, work, store)))
        while waiting and (batch is None or len(waiting) > _AHEAD):
            done, begun = waiting.popleft()
            yield done, _ended(done, begun, work, store), begun.stored is not None


@dataclasses.dataclass(frozen=True)
class _Begun(Generic[ValueT]):
    """A batch that the store holds, or else what the device was asked for."""

    keys: list[bytes]
    stored: list[ValueT] | None
    started: Any


def _begun(
    batch: BatchT, work: Work[BatchT, ValueT], store: ScoreStore | None
) -> _Begun[ValueT]:
    """A batch, sent to the device unless it is stored or there is no room."""
    keys = [] if store is None else work.keys(batch, store)
    stored = None if store is None else store.values(keys)
    if stored is not None:
        values = [work.from_bytes(batch, i, data) for i, data in enumerate(stored)]
        return _Begun(keys, values, None)
    started = None
    if work.words(batch) not in work.no_room:
        # What is on the device already may be what takes the room: this batch is sent
        # again when its own turn comes.
        with contextlib.suppress(NoRoomError), room_for(work.words(batch)):
            started = work.start(batch)
    return _Begun(keys, None, started)


def _ended(
    batch: BatchT,
    begun: _Begun[ValueT],
    work: Work[BatchT, ValueT],
    store: ScoreStore | None,
) -> list[ValueT]:
    """Values of a batch's rows, once they are stored."""
    if begun.stored is not None:
        return begun.stored
    words, halves = work.words(batch), work.halves(batch)
    values = None
    if words not in work.no_room:
        try:
            with room_for(words):
                started = begun.started
                values = work.finish(
                    batch, work.start(batch) if started is None else started
                )
        except NoRoomError as e:
            if not halves:
                raise
            work.no_room.add(words)
            print(
                f"jaxcontam: warning: {e}; it takes half of them at once",
                file=sys.stderr,
            )
    if values is None:
        of_halves = [_ended(h, _begun(h, work, store), work, store) for h in halves]
        return [value for values in of_halves for value in values]
    if store is not None:
        data = map(work.to_bytes, values)
        store.commit(list(zip(begun.keys, data, strict=True)))
    return values


@contextlib.contextmanager
def finite_scores(place: Callable[[int], str]) -> Iterator[None]:
    """Refuse a score that is not finite; `place` names that of an index."""
    try:
        yield
    except NonFiniteScoreError as e:
        raise InputError(
            f"{place(e.sequence)} is not finite",
            hint="check the checkpoint: its weights may hold NaN or be truncated",
        ) from e
