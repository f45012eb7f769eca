"""Pairs in, log-probabilities of every continuation out: batches, store, one host copy.

Dimension key
    G  groups
    I  prefixes of a batch
    P  ids of a prefix
    K  continuations of each prefix
    T  ids of a continuation
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxcontam.progress import Progress
from jaxcontam.scoring.pair_plan import GroupSizes, PairGroup
from jaxcontam.scoring.run_batches import (
    NonFiniteScoreError,
    Work,
    bucket_lengths,
    by_bucket,
    parts,
)
from jaxcontam.scoring.shares import Division, Together, divided_batches
from jaxcontam.scoring.store import RowKeys, ScoreStore

# Padded lengths are multiples of it, so that other files have the same shapes; those of
# accelerators are as long as their tiles.
_ALIGNED, _ALIGNED_ACCELERATOR = 8, 16
# Steps of a batch at most, which share the overhead of a device call.
_STEPS = 4
# Full batches that are worth compiling a program for, on a CPU.
_MANY = 8

PairForward = Callable[..., Any]
"""(prefixes_IP, lengths_I, continuations_IKT, at_once) -> logprobs_IKT."""


@dataclasses.dataclass(frozen=True, slots=True)
class PairBatch:
    """Groups that are scored together, of which a device takes `at_once` side by side.

    `n_rows` is I, `n_prefix` P and `length` T, padding included.
    """

    groups: tuple[int, ...]
    n_rows: int
    n_continuations: int
    n_prefix: int
    length: int
    at_once: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape that tells its compiled program from others: (I, K, P, T, at_once)."""
        sizes = (self.n_rows, self.n_continuations, self.n_prefix, self.length)
        return (*sizes, self.at_once)

    def __str__(self) -> str:
        n = self.at_once * self.n_continuations
        return f"{n} rows of {self.length} ids after prefixes of {self.n_prefix}"

    def halves(self) -> list["PairBatch"]:
        """The same groups with half as many side by side; none where one is alone."""
        if self.at_once == 1:
            return []
        at_once = -(-self.at_once // 2)
        n_rows = self.n_rows // self.at_once * at_once
        one = dataclasses.replace(self, n_rows=n_rows, at_once=at_once)
        return [
            dataclasses.replace(one, groups=groups)
            for groups in parts(self.groups, n_rows)
        ]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairScores:
    """Scores of groups.

    Attributes:
        logprobs: For each group and continuation one float32 array, nats an id; or
            one sum where the model gives no more.
        n_cached: Target tokens whose scores the store held.
        n_scored: Tokens of each continuation that have a score; None where each id has.
    """

    logprobs: list[list[np.ndarray]]
    n_cached: int
    n_scored: list[list[int]] | None = None


@dataclasses.dataclass(eq=False)
class PairScorer:
    """Scores continuations of shared prefixes; attributes are as for `Scorer`."""

    forward: PairForward
    _: dataclasses.KW_ONLY
    context: int
    batch_tokens: int
    n_devices: int = 1
    store: ScoreStore | None = None
    division: Division | Together | None = None
    few_shapes: bool = False
    _no_room: set[str] = dataclasses.field(default_factory=set, init=False)

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Log-probability of every id of every continuation after its prefix.

        The two together fit the context; NonFiniteScoreError names the group and the
        continuation.
        """
        total, done = sum(group.n_targets for group in groups), 0
        work = Work[PairBatch, np.ndarray](
            keys=lambda batch, store: pair_keys(store, batch, groups),
            start=lambda batch: self.forward(
                *pair_inputs(batch, groups), batch.at_once
            ),
            finish=lambda batch, scores: pair_values(batch, scores, groups),
            to_bytes=lambda value: value.astype("<f4", copy=False).tobytes(),
            from_bytes=lambda _, __, data: np.frombuffer(data, "<f4"),
            halves=PairBatch.halves,
            no_room=self._no_room,
        )
        found: dict[int, list[np.ndarray]] = {}
        n_cached = 0
        for batch, values, cached in divided_batches(
            self.plan(groups), work, self.store, self.division
        ):
            for index, value in zip(batch.groups, values, strict=True):
                found[index] = by_continuation(groups[index], value)
                done += groups[index].n_targets
                n_cached += cached * groups[index].n_targets
            if progress is not None:
                progress(done, total)
        return PairScores([found[i] for i in range(len(groups))], n_cached)

    def plan(self, groups: Sequence[PairGroup]) -> list[PairBatch]:
        """Batches of few shapes; they follow from the groups, not from the store."""
        return [
            PairBatch(some, *shape)
            for shape, members in self._shapes(sizes_of(groups))
            for some in parts(members, shape[0])
        ]

    def n_batches(self, sizes: GroupSizes) -> dict[tuple[int, ...], int]:
        """Number of batches of each shape in a `plan` of groups of these sizes."""
        found: collections.Counter[tuple[int, ...]] = collections.Counter()
        for shape, members in self._shapes(sizes):
            found[shape] += -(-len(members) // shape[0])
        return dict(found)

    def _shapes(self, sizes: GroupSizes) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """`PairBatch.shape` without its groups, and the groups that have it."""
        buckets = bucket_lengths(self.context, few_shapes=self.few_shapes)
        for bucket, members in groups_by_length(sizes, buckets).items():
            P, T = padded_lengths(sizes, bucket, few_shapes=self.few_shapes)
            if self.few_shapes:
                K = int(sizes.n_continuations.max())
                yield self._shape(K, P, T, len(members)), members
                continue
            # Padding is computed as well; many groups are worth a program of their own.
            waiting: list[int] = []
            numbers = sizes.n_continuations[members]
            for K in np.unique(numbers).tolist():
                waiting += np.array(members)[numbers == K].tolist()
                at_once = max(1, self.batch_tokens // (P + K * T))
                is_many = len(waiting) > _MANY * self.n_devices * _STEPS * at_once
                if is_many or not (numbers > K).any():
                    yield self._shape(K, P, T, len(waiting)), sorted(waiting)
                    waiting = []

    def _shape(
        self, K: int, P: int, T: int, n_groups: int
    ) -> tuple[int, int, int, int, int]:
        """`PairBatch.shape` of groups.

        On a CPU as many steps as leave the fewest padding groups, which are scored as
        well; `at_once` does not follow the number of groups beyond a power of two, so
        that files of other sizes need few programs more.
        """
        at_once, steps = max(1, self.batch_tokens // (P + K * T)), _STEPS
        if not self.few_shapes:
            n = -(-n_groups // self.n_devices)
            at_once = min(at_once, 1 << (n - 1).bit_length())
            steps = min(range(_STEPS, 0, -1), key=lambda s: -(-n // (s * at_once)) * s)
        return self.n_devices * steps * at_once, K, P, T, at_once


def sizes_of(groups: Sequence[PairGroup]) -> GroupSizes:
    """Sizes of laid-out groups, in their order."""
    lengths = [[len(ids) for ids in group.continuations] for group in groups]
    for i, (group, own) in enumerate(zip(groups, lengths, strict=True)):
        if not len(group.prefix) or not min(own, default=0):
            raise ValueError(f"group {i}: its prefix or a continuation is empty")
    return GroupSizes(
        prefix=np.array([len(group.prefix) for group in groups], np.int64),
        longest=np.array([max(own) for own in lengths], np.int64),
        n_continuations=np.array([len(own) for own in lengths], np.int64),
        n_targets=np.array([sum(own) for own in lengths], np.int64),
    )


def groups_by_length(sizes: GroupSizes, buckets: Sequence[int]) -> dict[int, list[int]]:
    """Buckets of the longer of prefix and continuations, and the groups of each.

    The last bucket is the context, which a prefix and a continuation together may not
    exceed.
    """
    context = buckets[-1]
    too_long = np.flatnonzero(sizes.prefix + sizes.longest > context + 1)
    if len(too_long):
        i = int(too_long[0])
        raise ValueError(
            f"group {i}: {sizes.prefix[i]} + {sizes.longest[i]} ids exceed the context "
            f"of {context}"
        )
    longest_G = np.minimum(np.maximum(sizes.prefix, sizes.longest), context)
    return by_bucket(longest_G, buckets)


def padded_lengths(
    sizes: GroupSizes, bucket: int, *, few_shapes: bool = False
) -> tuple[int, int]:
    """P and T of groups of a bucket: no longer than any prefix, or continuation, is.

    The buckets hold the longest of either, so P and T are at most a bucket.
    """
    step = _ALIGNED_ACCELERATOR if few_shapes else _ALIGNED
    longest = (int(sizes.prefix.max()), int(sizes.longest.max()))
    P, T = (min(bucket, -(-n // step) * step) for n in longest)
    return P, T


def by_continuation(group: PairGroup, scores_T: np.ndarray) -> list[np.ndarray]:
    """Scores of a group, taken apart again."""
    return _parts(scores_T, [len(ids) for ids in group.continuations])


def pair_keys(
    store: RowKeys, batch: PairBatch, groups: Sequence[PairGroup]
) -> list[bytes]:
    """Key of each group of a batch."""
    keys = []
    for index in batch.groups:
        ids = [groups[index].prefix, *groups[index].continuations]
        shape = (*batch.shape, *map(len, ids))
        keys.append(store.row_key("pairs", shape, 0, np.concatenate(ids)))
    return keys


def pair_inputs(
    batch: PairBatch, groups: Sequence[PairGroup]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of a batch; zeros pad the ends, where nothing looks back."""
    prefixes_IP = np.zeros((batch.n_rows, batch.n_prefix), np.int32)
    lengths_I = np.ones(batch.n_rows, np.int32)
    ids_IKT = np.zeros((batch.n_rows, batch.n_continuations, batch.length), np.int32)
    for row, index in enumerate(batch.groups):
        prefix = groups[index].prefix
        prefixes_IP[row, : len(prefix)] = prefix
        lengths_I[row] = len(prefix)
        for k, ids in enumerate(groups[index].continuations):
            ids_IKT[row, k, : len(ids)] = ids
    return prefixes_IP, lengths_I, ids_IKT


def pair_values(
    batch: PairBatch, scores: Any, groups: Sequence[PairGroup]
) -> list[np.ndarray]:
    """Scores of each group, its continuations one after the other."""
    n_ids_IK = np.zeros((len(batch.groups), batch.n_continuations), np.int64)
    for row, index in enumerate(batch.groups):
        lengths = [len(ids) for ids in groups[index].continuations]
        n_ids_IK[row, : len(lengths)] = lengths
    logprobs_IKT = np.asarray(scores)[: len(n_ids_IK)]
    is_scored_IKT = np.arange(logprobs_IKT.shape[-1]) < n_ids_IK[..., None]
    # Groups, continuations and ids in this order: all groups of a batch in one copy.
    flat = logprobs_IKT[is_scored_IKT].astype(np.float32, copy=False)
    if not np.isfinite(flat).all():
        bad_IKT = is_scored_IKT & ~np.isfinite(logprobs_IKT)
        row, k, _ = np.argwhere(bad_IKT)[0].tolist()
        raise NonFiniteScoreError(batch.groups[row], k)
    return _parts(flat, n_ids_IK.sum(axis=1).tolist())


def _parts(flat: np.ndarray, lengths: Sequence[int]) -> list[np.ndarray]:
    """Parts of an array, as views; `np.split` takes ten times as long."""
    stops = list(itertools.accumulate(lengths))
    return [flat[stop - n : stop] for stop, n in zip(stops, lengths, strict=True)]
