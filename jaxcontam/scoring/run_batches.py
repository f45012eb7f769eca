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

BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Rows scored together; fewer than `n_rows` in the last ones of a length."""

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
        return [Batch(rows, n_rows, self.length) for rows in parts(self.rows, n_rows)]


def parts(rows: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """Rows in their order, `n` at a time."""
    return (tuple(rows[start : start + n]) for start in range(0, len(rows), n))


def bucket_lengths(context: int, *, few_shapes: bool = False) -> list[int]:
    """Padded lengths: powers of two and their halves more, up to the context.

    At most a third of a row of 16 ids or more is padding. Where shapes are to be few,
    powers of two from 64 on: at most half of a row of 64 or more.
    """
    lengths, power = [], 64 if few_shapes else 16
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
    where they are few an even split, so that texts of many lengths are not mostly
    scored as padding. An accelerator scores the padding in less time than it takes to
    compile another shape: there all batches are full.

    Rows have at most `context` positions; a batch has `batch_tokens` on each device, at
    least one row.
    """
    batches = []
    buckets = bucket_lengths(context, few_shapes=few_shapes)
    for bucket, rows in by_bucket(lengths, buckets).items():
        n_rows = max(1, batch_tokens // bucket)
        if not few_shapes:
            n = -(-len(rows) // n_devices)
            n_batches = -(-n // n_rows)
            # Padding rows of the last of many batches hardly count, and all plans share
            # one shape, which is compiled once and finds its scores in a store.
            n_rows = n_rows if n_batches > 8 else -(-n // n_batches)
        n_rows *= n_devices
        batches += [Batch(some, n_rows, bucket) for some in parts(rows, n_rows)]
    return batches


def by_bucket(
    lengths: Sequence[int] | np.ndarray, buckets: Sequence[int]
) -> dict[int, list[int]]:
    """Padded lengths, ascending, and the rows of each."""
    found: dict[int, list[int]] = {}
    for row, at in enumerate(np.searchsorted(buckets, lengths).tolist()):
        found.setdefault(buckets[at], []).append(row)
    return dict(sorted(found.items()))


class NoRoomError(InputError):
    """The device has no memory for a batch; the scorer retries with half batches."""


@contextlib.contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn a device's out-of-memory error, which holds its arrays, into NoRoomError."""
    try:
        yield
    except RuntimeError as e:
        # Status of XLA on every platform, when a program is loaded or run.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        raise NoRoomError(
            f"the device has no memory for {what}",
            hint="--dtype bfloat16 or --mesh fsdp=N needs less; or cut the longest "
            "examples with --max-example-tokens",
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
    """The scoring of batches of one kind.

    `finish` gives values of its rows, from what the device gives; `from_bytes` takes
    the batch and the row's place in it; `no_room` holds sizes, in words, for which the
    device has had no memory.
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
    has no memory for it, it is scored in halves, kept as rows of another shape.
    """
    waiting: collections.deque[tuple[BatchT, _Begun[ValueT]]] = collections.deque()
    for batch in [*batches, None]:
        if batch is not None:
            waiting.append((batch, _begun(batch, work, store)))
        # The host prepares one batch while the device works on another.
        while waiting and (batch is None or len(waiting) > 1):
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
