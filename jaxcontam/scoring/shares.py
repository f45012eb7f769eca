"""Batches divided among processes; every process receives every batch's values.

Shares, not devices, divide the batches: no device waits for one of another share, so
scoring needs no collective. A share is a process with its own devices, or, where one
copy of the weights is larger than these, a group of processes that hold it together.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jaxcontam.errors import InputError
from jaxcontam.hosts import gather_bytes, process_count, process_index
from jaxcontam.hosts.link import packed, unpacked
from jaxcontam.scoring.memory import room_for
from jaxcontam.scoring.store import RowKeys, ScoreStore

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from jaxcontam.scoring.identity import ScoreIdentity
    from jaxcontam.scoring.mesh_shape import MeshShape
    from jaxcontam.scoring.stored import Work

# Batches of a share between two exchanges: few enough for progress to be seen and
# memory to stay small, many enough for a late process to cost little.
_A_ROUND = 16
# Batches in flight: the host prepares one while the device works on another.
_AHEAD = 1
_DIGEST_BYTES = 32

BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """Which batches this process scores.

    Attributes:
        index: Of this share.
        count: Shares in all.
        leads: Whether this process stores and sends what its share scores; one does.
    """

    index: int = 0
    count: int = 1
    leads: bool = True


ALONE = Share()
"""All batches; no other process is asked."""


def share_mesh(shape: "MeshShape") -> "Mesh":
    """The mesh of this process's share of the work.

    Args:
        shape: Of all devices of all processes, as the user says it.

    Raises:
        InputError: If the devices do not make this shape, or a copy of the weights
            would take parts of the devices of a process.
    """
    import jax

    from jaxcontam.scoring.mesh import device_mesh

    devices, n_local = jax.local_devices(), jax.local_device_count()
    if process_count() == 1:
        return device_mesh(shape, devices)
    if shape.data is not None:
        # Refuses what does not use all devices, before they are divided.
        device_mesh(shape, jax.devices())
    n_together = -(-shape.model // n_local)
    if (shape.model % n_local and n_together > 1) or process_count() % n_together:
        raise InputError(
            f"--mesh {shape}: {shape.model} devices are not those of whole processes "
            f"({process_count()} processes have {n_local} each)",
            hint=f"choose a divisor or a multiple of {n_local}",
        )
    if n_together > 1:
        own = jax.process_index() // n_together
        devices = [d for d in jax.devices() if d.process_index // n_together == own]
    return device_mesh(dataclasses.replace(shape, data=None), devices)


def share_of(mesh: "Mesh") -> Share:
    """The share that is scored on a mesh."""
    if process_count() == 1:
        return ALONE
    import jax

    processes = sorted({device.process_index for device in mesh.devices.flat})
    return Share(
        index=processes[0] // len(processes),
        count=process_count() // len(processes),
        leads=jax.process_index() == processes[0],
    )


def check_same_identity(identity: "ScoreIdentity") -> None:
    """Refuse processes whose scores depend on other things than those of process 0.

    Raises:
        InputError: Names them.
    """
    texts = gather_bytes(identity.text.encode(), name="the same model and machine")
    for process, text in enumerate(texts):
        if text != texts[0]:
            import json

            first, other = json.loads(texts[0]), json.loads(text)
            names = [name for name in first if first[name] != other.get(name)]
            raise InputError(
                f"--distributed: process {process} differs from process 0 in "
                f"{', '.join(names)}",
                hint="use the same model, software and kind of machine on every host",
            )


def shared_batches(
    batches: Sequence[BatchT],
    work: "Work[BatchT, ValueT]",
    store: ScoreStore | None,
    share: Share,
) -> Iterator[tuple[BatchT, list[ValueT], bool]]:
    """`scored_batches` of several processes; each yields every batch, in order.

    In rounds: all say which batches their stores hold; what none holds is divided
    among the shares; all send what they have. So no disk need be shared, and a rerun
    by another number of processes finds what was stored.

    Raises:
        InputError: If the processes do not score the same rows.
        LostProcessError: If a process is gone.
    """
    n = _A_ROUND * share.count
    for start in range(0, len(batches), n):
        yield from _round(batches[start : start + n], work, store, share)


def _round(
    batches: Sequence[BatchT],
    work: "Work[BatchT, ValueT]",
    store: ScoreStore | None,
    share: Share,
) -> Iterator[tuple[BatchT, list[ValueT], bool]]:
    keys = [work.keys(batch, store or RowKeys(b"")) for batch in batches]
    stored = [None if store is None else store.values(of_batch) for of_batch in keys]
    held = _held_by(keys, [data is not None for data in stored])

    has: dict[int, list[bytes]] = {}
    missing = [i for i, holders in enumerate(held) if not holders]
    mine = missing[share.index :: share.count]
    for i, values in _computed(batches, mine, work):
        data = [work.to_bytes(value) for value in values]
        if share.leads:
            if store is not None:
                store.commit(list(zip(keys[i], data, strict=True)))
            has[i] = data
    for i, data in enumerate(stored):
        # What every process holds need not be sent.
        is_known = len(held[i]) == process_count()
        if data is not None and not is_known and held[i][0] == process_index():
            has[i] = data

    sent = [b"%d" % i + b" " + packed(data) for i, data in has.items()]
    found: dict[int, list[bytes]] = {}
    for message in gather_bytes(packed(sent), name="scores"):
        for part in unpacked(message):
            index, _, data = part.partition(b" ")
            found[int(index)] = unpacked(data)
    for i, batch in enumerate(batches):
        data = found[i] if i in found else stored[i]
        assert data is not None
        values = [work.from_bytes(batch, row, one) for row, one in enumerate(data)]
        yield batch, values, bool(held[i])


def _held_by(keys: Sequence[list[bytes]], own: Sequence[bool]) -> list[list[int]]:
    """Of each batch the processes whose stores hold it.

    Raises:
        InputError: If the processes have other keys.
    """
    digest = hashlib.sha256(b"".join(key for of_batch in keys for key in of_batch))
    told = gather_bytes(digest.digest() + bytes(own), name="what is stored")
    for process, words in enumerate(told):
        if words[:_DIGEST_BYTES] != told[0][:_DIGEST_BYTES]:
            raise InputError(
                f"--distributed: process {process} scores other texts than process 0",
                hint="run the same command on the same files on every host",
            )
    return [
        [process for process, words in enumerate(told) if words[_DIGEST_BYTES + i]]
        for i in range(len(own))
    ]


def _computed(
    batches: Sequence[BatchT], mine: Sequence[int], work: "Work[BatchT, ValueT]"
) -> Iterator[tuple[int, list[ValueT]]]:
    """Index and values of each of my batches.

    Raises:
        NoRoomError: If the device has no memory for one.
    """
    waiting: collections.deque[tuple[int, Any]] = collections.deque()
    for i in mine:
        with room_for(work.words(batches[i])):
            waiting.append((i, work.start(batches[i])))
        if len(waiting) > _AHEAD:
            yield _finished(batches, waiting.popleft(), work)
    while waiting:
        yield _finished(batches, waiting.popleft(), work)


def _finished(
    batches: Sequence[BatchT], begun: tuple[int, Any], work: "Work[BatchT, ValueT]"
) -> tuple[int, list[ValueT]]:
    # No halves: the other shares have planned the whole batch, and know it by its key.
    i, started = begun
    with room_for(work.words(batches[i])):
        return i, work.finish(batches[i], started)
