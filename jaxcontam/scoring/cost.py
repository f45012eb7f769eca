"""Cost of scoring, before anything is scored."""

import collections
import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jaxcontam.scoring.pair_plan import PairGroup, PairPlan
from jaxcontam.scoring.pair_scorer import pair_keys
from jaxcontam.scoring.rows import SUMS
from jaxcontam.scoring.scorer import Scorer, batch_keys, n_targets
from jaxcontam.scoring.store import ScoreStore, row_size

if TYPE_CHECKING:
    from jaxcontam.scoring.remote import RemoteScorer


@dataclasses.dataclass(frozen=True, slots=True)
class ScoringCost:
    """Cost of scoring a plan.

    Attributes:
        n_cached: In whole batches that are stored, or that earlier plans will store.
        positions: To be scored, with padding, by shape: (B, S), or `PairBatch.shape`.
    """

    n_targets: int
    n_cached: int
    positions: collections.Counter[tuple[int, ...]]
    store_bytes: int


Costed: TypeAlias = "Scorer | RemoteScorer"
"""Scorers that tell their cost; a remote one of a dry run counts its requests."""


def sequence_cost(
    scorer: Costed, sequences: Sequence[np.ndarray], planned: set[bytes] | None
) -> ScoringCost:
    """Cost of `Scorer.sums` of sequences; asks no model.

    `planned` holds keys that plans before this one put into the store, and grows; it is
    None where no other plan can ask for the same.
    """
    planned = set() if planned is None else planned
    if not isinstance(scorer, Scorer):
        return _counted(n_targets(sequences), scorer.sums(sequences).n_cached)
    rows, batches = scorer.plan(sequences)
    value_size, store = len(SUMS.to_bytes(np.zeros((2, 1)))), scorer.store
    asked = [
        _Asked(
            shape=(batch.n_rows, batch.length),
            n_targets=sum(rows[i].n_targets for i in batch.rows),
            keys=None
            if store is None
            else batch_keys(store, batch, rows, sequences, SUMS),
            value_bytes=[value_size] * len(batch.rows),
        )
        for batch in batches
    ]
    return _cost(store, asked, n_targets(sequences), planned)


def pair_cost(
    scorer: Costed, plan: PairPlan, planned: set[bytes] | None
) -> ScoringCost:
    """Cost of `PairScorer.logprobs` of a plan's groups; arguments as above.

    Where nothing can be there already, sizes say it all and no group is laid out.
    """
    is_alone = planned is None
    planned = set() if planned is None else planned
    if not isinstance(scorer, Scorer):
        return groups_cost(scorer, plan.groups, planned)
    pairs = scorer.pairs
    assert pairs is not None
    store = pairs.store
    if store is not None and not (is_alone and store.is_empty and not plan.has_repeats):
        return groups_cost(scorer, plan.groups, planned)
    sizes = plan.sizes
    shapes = pairs.n_batches(sizes).items()
    positions = {shape: n * n_positions(shape) for shape, n in shapes}
    store_bytes = 0
    if store is not None:
        store_bytes = sum(row_size(4 * n) for n in sizes.n_targets.tolist())
    return ScoringCost(plan.n_targets, 0, collections.Counter(positions), store_bytes)


def groups_cost(
    scorer: Costed, groups: Sequence[PairGroup], planned: set[bytes]
) -> ScoringCost:
    """Cost of `PairScorer.logprobs` of groups; arguments as above."""
    if not isinstance(scorer, Scorer):
        total = sum(group.n_targets for group in groups)
        return _counted(total, scorer.logprobs(groups).n_cached)
    pairs = scorer.pairs
    assert pairs is not None
    asked = [
        _Asked(
            shape=batch.shape,
            n_targets=sum(groups[i].n_targets for i in batch.groups),
            keys=None if pairs.store is None else pair_keys(pairs.store, batch, groups),
            value_bytes=[4 * groups[i].n_targets for i in batch.groups],
        )
        for batch in pairs.plan(groups)
    ]
    total = sum(group.n_targets for group in groups)
    return _cost(pairs.store, asked, total, planned)


def _counted(n_targets: int, n_cached: int) -> ScoringCost:
    return ScoringCost(n_targets, n_cached, collections.Counter(), store_bytes=0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """A batch of a plan; `keys` is None without a store."""

    shape: tuple[int, ...]
    n_targets: int
    keys: list[bytes] | None
    value_bytes: list[int]


def _cost(
    store: ScoreStore | None,
    asked: Sequence[_Asked],
    n_targets_in_all: int,
    planned: set[bytes],
) -> ScoringCost:
    n_cached = store_bytes = 0
    positions: collections.Counter[tuple[int, ...]] = collections.Counter()
    for batch in asked:
        if batch.keys is None or store is None:
            positions[batch.shape] += n_positions(batch.shape)
            continue
        fresh = {
            key: size
            for key, size in zip(batch.keys, batch.value_bytes, strict=True)
            if key not in planned and key not in store
        }
        if not fresh:
            n_cached += batch.n_targets
            continue
        positions[batch.shape] += n_positions(batch.shape)
        planned.update(fresh)
        store_bytes += sum(map(row_size, fresh.values()))
    return ScoringCost(n_targets_in_all, n_cached, positions, store_bytes)


def n_positions(shape: tuple[int, ...]) -> int:
    """Input positions of a batch, from its shape; see `ScoringCost.positions`."""
    if len(shape) == 2:
        return math.prod(shape)
    n_rows, K, P, T, _ = shape
    return n_rows * (P + K * T)


def batch_seconds(scorer: Scorer, shape: tuple[int, ...]) -> float:
    """Median time of three batches of zeros, after one that compiles."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        if len(shape) == 2:
            ids_BS = np.zeros(shape, np.int32)
            np.asarray(scorer.forward(ids_BS, ids_BS)[0])
        else:
            assert scorer.pairs is not None
            n_rows, K, P, T, at_once = shape
            lengths_I = np.full(n_rows, P, np.int32)
            prefixes_IP = np.zeros((n_rows, P), np.int32)
            ids_IKT = np.zeros((n_rows, K, T), np.int32)
            np.asarray(scorer.pairs.forward(prefixes_IP, lengths_I, ids_IKT, at_once))
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def scoring_seconds(scorer: Scorer, positions: Mapping[tuple[int, ...], int]) -> float:
    """Time of batches at the speed of the commonest shape of each kind."""
    seconds = 0.0
    for rank in {len(shape) for shape in positions}:
        own = {shape: n for shape, n in positions.items() if len(shape) == rank}
        shape = max(own, key=lambda shape: own[shape])
        n_batches = sum(own.values()) / n_positions(shape)
        seconds += n_batches * batch_seconds(scorer, shape)
    return seconds
