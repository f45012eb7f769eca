"""Sequences of ids in, log-probabilities out: windows, batches, one host copy."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxcontam.scoring.batching import Batch, plan_batches
from jaxcontam.scoring.rows import SUMS, TOKENS, Kept, Row, fill, rows_of
from jaxcontam.scoring.store import ScoreStore

Progress = Callable[[int, int], None]
"""Called with the target tokens done and the target tokens in all."""

Forward = Callable[[np.ndarray, np.ndarray], Sequence]
"""(inputs_BS, targets_BS) int32 -> logprobs_BS, and means and variances or None."""

# Batches in flight: the host prepares one while the device works on another.
_AHEAD = 1


class NonFiniteScoreError(ArithmeticError):
    """The model gave a log-probability that is not finite.

    Attributes:
        sequence: Index of the sequence.
        position: Index of the id within it.
    """

    def __init__(self, sequence: int, position: int):
        super().__init__(f"sequence {sequence}, id {position}: not finite")
        self.sequence = sequence
        self.position = position


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SequenceSums:
    """Log-probabilities of sequences, summed in float64, in nats.

    Attributes:
        loglik: (n_sequences,) over all ids after the first.
        first: (n_sequences,) over the first `FIRST_K` of these, or as many of them as
            the first window holds.
        n_cached: Target tokens in all whose scores the store held.
    """

    loglik: np.ndarray
    first: np.ndarray
    n_cached: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Started:
    """A batch on its way: its keys, and what the store or else the device gives."""

    batch: Batch
    keys: list[bytes]
    stored: list[bytes] | None
    scores: Sequence | None


class Scorer:
    """Scores sequences with one forward function and one rule of windows."""

    def __init__(
        self,
        forward: Forward,
        *,
        context: int,
        batch_tokens: int,
        n_devices: int = 1,
        store: ScoreStore | None = None,
    ):
        """Wrap a forward function.

        Args:
            forward: See `Forward`; called with few shapes.
            context: Most input positions of a row.
            batch_tokens: Tokens of a batch on one device.
            n_devices: Devices that share a batch's rows evenly.
            store: Where scores of this very function are kept.
        """
        self.forward = forward
        self.context = context
        self.batch_tokens = batch_tokens
        self.n_devices = n_devices
        self.store = store

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """Sum of the log-probabilities of all ids after each sequence's first.

        Returns:
            (n_sequences,) float64, nats; summed in float64.

        Raises:
            NonFiniteScoreError: Names the sequence and the id.
        """
        return self.sums(sequences, progress).loglik

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sums of each sequence's log-probabilities, and where they came from.

        Raises:
            NonFiniteScoreError: Names the sequence and the id.
        """
        loglik, first = np.zeros(len(sequences)), np.zeros(len(sequences))
        n_cached = 0
        for row, (whole, start), cached in self._rows(sequences, SUMS, progress):
            loglik[row.sequence] += whole[0]
            if row.window.start == 0:
                first[row.sequence] = start[0]
            n_cached += cached * row.n_targets
        return SequenceSums(loglik, first, n_cached)

    def tokens(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """Scores of every id after each sequence's first.

        Returns:
            One float32 array a sequence, (n_scores, n_ids - 1): log-probabilities
            and, if the forward function gives them, means and variances.

        Raises:
            NonFiniteScoreError: Names the sequence and the id.
        """
        parts: list[list[tuple[int, np.ndarray]]] = [[] for _ in sequences]
        for row, scores, _ in self._rows(sequences, TOKENS, progress):
            parts[row.sequence].append((row.window.first_target, scores))
        return [
            np.concatenate(
                [scores for _, scores in sorted(found, key=lambda part: part[0])],
                axis=1,
            )
            for found in parts
        ]

    def _rows(
        self, sequences: Sequence[np.ndarray], kept: Kept, progress: Progress | None
    ) -> Iterator[tuple[Row, np.ndarray, bool]]:
        """Each row, what is kept of it, and whether the store held it."""
        rows, batches = self.plan(sequences)
        total, done = n_targets(sequences), 0
        waiting: collections.deque[_Started] = collections.deque()
        for batch in [*batches, None]:
            if batch is not None:
                waiting.append(self._start(batch, rows, sequences, kept))
            while waiting and (batch is None or len(waiting) > _AHEAD):
                started = waiting.popleft()
                values = self._finish(started, rows, kept)
                for index, value in zip(started.batch.rows, values, strict=True):
                    done += rows[index].n_targets
                    yield rows[index], value, started.stored is not None
                if progress is not None:
                    progress(done, total)

    def plan(self, sequences: Sequence[np.ndarray]) -> tuple[list[Row], list[Batch]]:
        """Rows and batches; they follow from the sequences, not from the store."""
        rows = rows_of(sequences, self.context)
        batches = plan_batches(
            [row.length for row in rows],
            context=self.context,
            batch_tokens=self.batch_tokens,
            n_devices=self.n_devices,
        )
        return rows, batches

    def _start(
        self,
        batch: Batch,
        rows: Sequence[Row],
        sequences: Sequence[np.ndarray],
        kept: Kept,
    ) -> _Started:
        """Ask the store and, if a row is missing, the device for the whole batch."""
        keys, stored, scores = [], None, None
        if self.store is not None:
            keys = batch_keys(self.store, batch, rows, sequences, kept)
            stored = self.store.values(keys)
        if stored is None:
            scores = self.forward(*fill(batch, rows, sequences))
        return _Started(batch, keys, stored, scores)

    def _finish(
        self, started: _Started, rows: Sequence[Row], kept: Kept
    ) -> list[np.ndarray]:
        """Kept values of a batch's rows; those of the device go into the store.

        Raises:
            NonFiniteScoreError: Before anything of the batch is stored.
        """
        if started.scores is None:
            assert started.stored is not None
            assert self.store is not None
            n_scores = 3 if self.store.identity.moments else 1
            return [kept.from_bytes(data, n_scores=n_scores) for data in started.stored]
        host = [np.asarray(part) for part in started.scores if part is not None]
        values = []
        for i, index in enumerate(started.batch.rows):
            row = rows[index]
            own = np.stack([part[i, row.first : row.length] for part in host])
            bad = np.flatnonzero(~np.isfinite(own).all(axis=0))
            if len(bad):
                target = row.window.first_target + int(bad[0])
                raise NonFiniteScoreError(row.sequence, target)
            values.append(kept.reduce(own))
        if self.store is not None:
            data = [kept.to_bytes(value) for value in values]
            self.store.commit(list(zip(started.keys, data, strict=True)))
        return values


def batch_keys(
    store: ScoreStore,
    batch: Batch,
    rows: Sequence[Row],
    sequences: Sequence[np.ndarray],
    kept: Kept,
) -> list[bytes]:
    """Key of each row of a batch."""
    shape = (batch.n_rows, batch.length)
    return [
        store.row_key(kept.name, shape, rows[i].first, rows[i].ids(sequences))
        for i in batch.rows
    ]


def n_targets(sequences: Sequence[np.ndarray]) -> int:
    """Target tokens of a list of sequences."""
    return sum(len(ids) - 1 for ids in sequences)
