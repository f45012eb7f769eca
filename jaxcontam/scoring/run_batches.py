"""Batches through a device, if it has room, past a store: none is scored twice."""

import collections
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from jaxcontam.errors import InputError
from jaxcontam.scoring.store import RowKeys, ScoreStore

# Status of XLA on every platform, when a program is loaded or run.
_EXHAUSTED = "RESOURCE_EXHAUSTED"


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


# Batches in flight: the host prepares one while the device works on another.
_AHEAD = 1

BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")


class NonFiniteScoreError(ArithmeticError):
    """The model gave a log-probability that is not finite.

    Attributes:
        sequence: Index of the sequence, or of the group of pairs.
        position: Index of the id within it, or of the continuation.
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
        keys: Keys of a batch's rows in the store.
        start: Sends a batch to the device.
        finish: Values of its rows, from what the device gives; may raise.
        to_bytes: A row's value as the store holds it.
        from_bytes: Undoes it, to the bit; takes the batch and the row's place in it.
        words: A batch's size, for messages.
        halves: Smaller batches of the same rows in their order, for a device without
            memory for the whole one; none where it has no halves.
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
    batches: Sequence[BatchT],
    work: Work[BatchT, ValueT],
    store: ScoreStore | None,
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
