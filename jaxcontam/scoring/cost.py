"""What scoring would cost, before anything is scored."""

import collections
import dataclasses
import statistics
import time
from collections.abc import Sequence

import numpy as np

from jaxcontam.scoring.records import record_size
from jaxcontam.scoring.rows import SUMS
from jaxcontam.scoring.scorer import Scorer, batch_keys, n_targets


@dataclasses.dataclass(frozen=True, slots=True)
class ScoringCost:
    """What the sums of sequences would cost.

    Attributes:
        n_targets: Target tokens.
        n_cached: Of these, how many are in whole batches that the store holds, or
            that plans before this one put there.
        positions: Input positions still to be scored, padding included, by (B, S).
        store_bytes: What scoring them adds to the store.
    """

    n_targets: int
    n_cached: int
    positions: collections.Counter[tuple[int, int]]
    store_bytes: int


def scoring_costs(
    scorer: Scorer, plans: Sequence[Sequence[np.ndarray]]
) -> list[ScoringCost]:
    """What `Scorer.sums` of each plan's sequences would cost; asks no model."""
    planned: set[bytes] = set()
    return [_cost(scorer, sequences, planned) for sequences in plans]


def _cost(
    scorer: Scorer, sequences: Sequence[np.ndarray], planned: set[bytes]
) -> ScoringCost:
    """Cost of one plan, whose keys are added to those of the plans before it."""
    rows, batches = scorer.plan(sequences)
    store, value_size = scorer.store, len(SUMS.to_bytes(np.zeros((2, 1))))
    n_cached = store_bytes = 0
    positions: collections.Counter[tuple[int, int]] = collections.Counter()
    for batch in batches:
        fresh: set[bytes] | None = None
        if store is not None:
            keys = batch_keys(store, batch, rows, sequences, SUMS)
            fresh = {k for k in keys if k not in planned and not store.holds([k])}
        if fresh is not None and not fresh:
            n_cached += sum(rows[i].n_targets for i in batch.rows)
            continue
        positions[batch.n_rows, batch.length] += batch.n_rows * batch.length
        if fresh is not None:
            planned |= fresh
            store_bytes += record_size(len(fresh), len(fresh) * value_size)
    return ScoringCost(n_targets(sequences), n_cached, positions, store_bytes)


def batch_seconds(scorer: Scorer, shape: tuple[int, int], *, rounds: int = 3) -> float:
    """Median time of a batch of zeros, after one that compiles."""
    ids_BS = np.zeros(shape, np.int32)
    times = []
    for _ in range(1 + rounds):
        start = time.perf_counter()
        np.asarray(scorer.forward(ids_BS, ids_BS)[0])
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
