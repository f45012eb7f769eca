"""Batches of a run divided among processes.

By **shares**: each process plans the same batches, scores its own into a store, and
ends. A run without a share names the shares that the store lacks, and scores those
batches itself. Where one copy of the weights spans processes, these score every batch
**together**.
"""

import dataclasses
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from jaxcontam.errors import InputError, StorageError
from jaxcontam.processes import gather, is_first, process_count
from jaxcontam.scoring.parts import MeshShape, Share, ShareScored, spans_processes
from jaxcontam.scoring.run_batches import Work, scored_batches
from jaxcontam.scoring.store import SUFFIX, RowKeys, ScoreStore
from jaxcontam.terminal_text import printable

if TYPE_CHECKING:
    from jax.sharding import Mesh

BatchT = TypeVar("BatchT")
ValueT = TypeVar("ValueT")
T = TypeVar("T")
Batches: TypeAlias = Iterator[tuple[BatchT, list[ValueT], bool]]
"""As of `scored_batches`."""


class SharesMissingError(StorageError):
    """Not all shares of a run are in its store, and they were not to be scored here."""


class Division:
    """A run's batches, each the work of one share.

    Batches are dealt out in the order in which they are planned, over all calls of a
    run; one that is planned again has the owner it had.
    """

    def __init__(self, share: Share | None = None, *, merges: bool = False):
        """Score a share, or if None what the store lacks; `merges` scores nothing."""
        self.share, self.merges = share, merges
        self._owners: dict[bytes, int] = {}
        self._n_own = self._n = 0
        self._missing: set[int] = set()

    def batches(
        self,
        batches: Sequence[BatchT],
        work: Work[BatchT, ValueT],
        store: ScoreStore | None,
    ) -> Batches[BatchT, ValueT]:
        """`scored_batches` of all, or of this process's share, and then ShareScored."""
        if self.share is not None:
            yield from self._own(batches, work, store, self.share)
            return
        # Shares of the newest division that began in the folder.
        marks = [(0, 0)]
        for path in () if store is None else store.directory.glob("shard-*"):
            if found := re.fullmatch(r"shard-\d+-of-(\d+)", path.name):
                marks.append((path.stat().st_mtime_ns, int(found[1])))
        count = max(marks)[1]
        if store is not None and count:
            self._look(batches, work, store, count)
        elif self.merges:
            raise SharesMissingError(
                "no share is in the store",
                hint="score one with --shard I/N; see --store",
            )
        yield from scored_batches(batches, work, store)

    def _own(
        self,
        batches: Sequence[BatchT],
        work: Work[BatchT, ValueT],
        store: ScoreStore | None,
        share: Share,
    ) -> Batches[BatchT, ValueT]:
        """Score a share of the batches, and end."""
        if store is None:
            raise InputError(
                "--shard: a share is kept in a store, but there is none",
                hint="leave out --store none",
            )
        # From these names a later run knows how many shares there are.
        store.directory.mkdir(parents=True, exist_ok=True)
        (store.directory / f"shard-{share.index}-of-{share.count}").touch()
        owned = self._owned(batches, work, store, share.count)
        mine = [batch for batch, owner in owned if owner == share.index]
        yield from scored_batches(mine, work, store)
        self._n += len(batches)
        self._n_own += len(mine)
        raise ShareScored(
            f"share {share.index} of {share.count}: its {self._n_own} of {self._n} "
            f"batches are in {printable(store.directory)}"
        )

    def _look(
        self,
        batches: Sequence[BatchT],
        work: Work[BatchT, ValueT],
        store: ScoreStore,
        count: int,
    ) -> None:
        """Name the shares whose batches the store lacks, once."""
        missing = {
            owner
            for batch, owner in self._owned(batches, work, store, count)
            if not _is_stored(batch, work, store)
        }
        is_known = missing <= self._missing
        self._missing |= missing
        words = f"{len(self._missing)} of {count} shares are missing: "
        words += ", ".join(map(str, sorted(self._missing)))
        names = [path.name for path in store.directory.glob(f"*{SUFFIX}")]
        own = store.identity.digest.hex()[:16]
        if names and not any(name.startswith(own) for name in names):
            words += "; the store holds scores of another model, machine or version"
        if missing and self.merges:
            raise SharesMissingError(
                words,
                hint="score them with --shard I/N, or all missing ones without "
                "--shard; --store must be a folder that all hosts see",
            )
        if not is_known:
            words = f"jaxcontam: warning: {words}; they are scored here"
            print(words, file=sys.stderr)

    def _owned(
        self,
        batches: Sequence[BatchT],
        work: Work[BatchT, ValueT],
        store: RowKeys,
        count: int,
    ) -> list[tuple[BatchT, int]]:
        """Each batch and the index of its share."""
        found = []
        for batch in batches:
            digest = hashlib.sha256(b"".join(work.keys(batch, store))).digest()
            owner = self._owners.setdefault(digest, len(self._owners))
            found.append((batch, owner % count))
        return found


class Together:
    """Processes that hold one copy of the weights, each with parts of it."""

    share = None

    def batches(
        self,
        batches: Sequence[BatchT],
        work: Work[BatchT, ValueT],
        store: ScoreStore | None,
    ) -> Batches[BatchT, ValueT]:
        """`scored_batches`, in step with the other processes; all receive all values.

        A batch counts as stored where every process sees it; process 0 stores.
        """
        keys = [work.keys(batch, store or RowKeys(b"")) for batch in batches]
        digest = hashlib.sha256(b"".join(key for of_batch in keys for key in of_batch))
        told = gather(np.frombuffer(digest.digest(), np.uint8))
        if (told != told[0]).any():
            raise InputError(
                "some processes score different rows from process 0",
                hint="run the same command on the same model and files on every host",
            )
        # No halves: a process alone may lack the memory, and all take the same shapes.
        work = dataclasses.replace(work, halves=lambda batch: [])
        if store is None:
            yield from scored_batches(batches, work, None)
            return
        values = [store.values(of_batch) for of_batch in keys]
        held_PB = gather(np.array([found is not None for found in values], bool))
        seen = {
            tuple(of_batch): found
            for b, (of_batch, found) in enumerate(zip(keys, values, strict=True))
            if found is not None and held_PB[:, b].all()
        }
        yield from scored_batches(batches, work, _SeenByAll(store, seen))


class _SeenByAll(ScoreStore):
    """View of a store that all processes share; process 0 alone writes."""

    def __init__(
        self, store: ScoreStore, seen: Mapping[tuple[bytes, ...], list[bytes]]
    ):
        RowKeys.__init__(self, store.identity.digest)
        self._store, self._seen = store, seen

    def values(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Values of the share, as `ScoreStore.values`."""
        return self._seen.get(tuple(keys))

    def commit(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Commit the share, as `ScoreStore.commit`."""
        if is_first():
            self._store.commit(rows)


def divided_batches(
    batches: Sequence[BatchT],
    work: Work[BatchT, ValueT],
    store: ScoreStore | None,
    division: Division | Together | None,
) -> Batches[BatchT, ValueT]:
    """`scored_batches`, divided among processes if there are others."""
    if division is None:
        return scored_batches(batches, work, store)
    return division.batches(batches, work, store)


def each_scored(calls: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Results of calls that score; a share makes them all, and has none.

    ShareScored or SharesMissingError, where there is one, is raised after the last.
    """
    over = None
    for call in calls:
        try:
            found = call()
        except (ShareScored, SharesMissingError) as e:
            over = e
        else:
            yield found
    if over is not None:
        raise over


def mesh_here(shape: MeshShape) -> "Mesh":
    """This process's devices; those of all processes where a copy spans them."""
    import jax

    from jaxcontam.scoring.mesh import device_mesh

    spans = process_count() > 1 and spans_processes(shape)
    return device_mesh(shape, jax.devices() if spans else jax.local_devices())


def division_on(
    mesh: "Mesh", division: Division | Together | None
) -> Division | Together | None:
    """Division of batches on a mesh: together where it spans processes."""
    return Together() if mesh.is_multi_process else division


def _is_stored(batch: BatchT, work: Work[BatchT, ValueT], store: ScoreStore) -> bool:
    """True if a store holds a batch, whole or in halves."""
    if store.holds(work.keys(batch, store)):
        return True
    halves = work.halves(batch)
    return bool(halves) and all(_is_stored(half, work, store) for half in halves)
