"""Batches through a device, past a store: nothing is scored twice."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from jaxcontam.scoring.shares import ALONE, Share, shared_batches
from jaxcontam.scoring.store import RowKeys, ScoreStore

# Batches in flight: the host prepares one while the device works on another.
_AHEAD = 1

Progress = Callable[[int, int], None]
"""Called with the target tokens done and the target tokens in all."""

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
    """

    keys: Callable[[BatchT, RowKeys], list[bytes]]
    start: Callable[[BatchT], Any]
    finish: Callable[[BatchT, Any], list[ValueT]]
    to_bytes: Callable[[ValueT], bytes]
    from_bytes: Callable[[BatchT, int, bytes], ValueT]


def scored_batches(
    batches: Sequence[BatchT],
    work: Work[BatchT, ValueT],
    store: ScoreStore | None,
    share: Share = ALONE,
) -> Iterator[tuple[BatchT, list[ValueT], bool]]:
    """Each batch with the values of its rows, and whether the store held them.

    A batch with a row that the store lacks is scored whole, so that its shape is that
    of the plan; it is stored whole or, if `finish` raises, not at all. With several
    processes see `shared_batches`.
    """
    if share != ALONE:
        yield from shared_batches(batches, work, store, share)
        return
    waiting: collections.deque[tuple[BatchT, list[bytes], list[bytes] | None, Any]]
    waiting = collections.deque()
    for batch in [*batches, None]:
        if batch is not None:
            keys = [] if store is None else work.keys(batch, store)
            stored = None if store is None else store.values(keys)
            started = () if stored is not None else work.start(batch)
            waiting.append((batch, keys, stored, started))
        while waiting and (batch is None or len(waiting) > _AHEAD):
            done, keys, stored, started = waiting.popleft()
            if stored is not None:
                values = [work.from_bytes(done, i, d) for i, d in enumerate(stored)]
            else:
                values = work.finish(done, started)
                if store is not None:
                    data = map(work.to_bytes, values)
                    store.commit(list(zip(keys, data, strict=True)))
            yield done, values, stored is not None
