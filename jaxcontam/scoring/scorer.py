"""Sequences of ids in, log-probabilities out: windows, batches, one host copy."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxcontam.progress import Progress
from jaxcontam.scoring.pair_scorer import PairScorer
from jaxcontam.scoring.rows import SUMS, TOKENS, Kept, Row, fill, rows_of
from jaxcontam.scoring.run_batches import Batch, NonFiniteScoreError, Work, plan_batches
from jaxcontam.scoring.shares import Division, Together, divided_batches
from jaxcontam.scoring.store import RowKeys, ScoreStore

Forward = Callable[[np.ndarray, np.ndarray], Sequence]
"""(inputs_BS, targets_BS) int32 -> logprobs_BS; means, variances and tops or None."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SequenceSums:
    """Log-probabilities of sequences, summed in float64, in nats.

    Attributes:
        loglik: (n_sequences,) over all ids after the first.
        first: (n_sequences,) over the first `FIRST_K` of these in the first window.
        n_cached: Target tokens whose scores the store held.
        n_scored: (n_sequences,) int64; None where each id after the first has a score.
    """

    loglik: np.ndarray
    first: np.ndarray
    n_cached: int
    n_scored: np.ndarray | None = None

    def means(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """(n_sequences,) float64, nats a scored token; NaN where there is none."""
        n_scored = self.n_scored
        if n_scored is None:
            n_scored = np.array([len(ids) - 1 for ids in sequences])
        n_scored = n_scored.astype(np.float64)
        n_scored[n_scored == 0] = np.nan
        return self.loglik / n_scored


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """Scores of every id after each sequence's first.

    Attributes:
        scores: One float32 array a sequence, (n_scores, n_ids - 1): log-probabilities
            and, if the forward function gives them, means, variances and tops.
        n_cached: Target tokens whose scores the store held.
        starts: Where ids are characters and scores are of longer tokens: of each
            sequence the index of the id at which each of its tokens begins; else None.
    """

    scores: list[np.ndarray]
    n_cached: int
    starts: list[np.ndarray] | None = None


@dataclasses.dataclass(eq=False)
class Scorer:
    """Scores sequences with one forward function and one rule of windows.

    NonFiniteScoreError names the sequence and the id. `batch_tokens` are of one device;
    `moments`: the forward function gives them, as a store says by itself.
    """

    forward: Forward
    _: dataclasses.KW_ONLY
    context: int
    batch_tokens: int
    n_devices: int = 1
    store: ScoreStore | None = None
    pairs: PairScorer | None = None
    division: Division | Together | None = None
    moments: bool = False
    few_shapes: bool = False
    # Sizes for which the device had no memory: no plan tries them twice.
    _no_room: set[str] = dataclasses.field(default_factory=set, init=False)

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """(n_sequences,) float64, nats, summed over all ids after the first."""
        return self.sums(sequences, progress).loglik

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sums of each sequence's log-probabilities, and where they came from."""
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
        """`scores` of `token_table`."""
        return self.token_table(sequences, progress).scores

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Scores of every id after each sequence's first, and where they came from."""
        n_cached = 0
        parts: list[list[tuple[int, np.ndarray]]] = [[] for _ in sequences]
        for row, scores, cached in self._rows(sequences, TOKENS, progress):
            parts[row.sequence].append((row.window.first_target, scores))
            n_cached += cached * row.n_targets
        for found in parts:
            found.sort(key=lambda part: part[0])
        whole = [np.concatenate([own for _, own in found], axis=1) for found in parts]
        return TokenTable(whole, n_cached)

    def _rows(
        self, sequences: Sequence[np.ndarray], kept: Kept, progress: Progress | None
    ) -> Iterator[tuple[Row, np.ndarray, bool]]:
        """Each row, what is kept of it, and whether the store held it."""
        rows, batches = self.plan(sequences)
        total, done = n_targets(sequences), 0
        has_moments = self.store is not None and self.store.identity.moments
        n_scores = 4 if has_moments or self.moments else 1
        work = Work[Batch, np.ndarray](
            keys=lambda batch, store: batch_keys(store, batch, rows, sequences, kept),
            start=lambda batch: self.forward(*fill(batch, rows, sequences)),
            finish=lambda batch, scores: _values(batch, scores, rows, kept),
            to_bytes=kept.to_bytes,
            from_bytes=lambda _, __, data: kept.from_bytes(data, n_scores=n_scores),
            halves=lambda batch: batch.halves(self.n_devices),
            no_room=self._no_room,
        )
        for batch, values, cached in divided_batches(
            batches, work, self.store, self.division
        ):
            for index, value in zip(batch.rows, values, strict=True):
                done += rows[index].n_targets
                yield rows[index], value, cached
            if progress is not None:
                progress(done, total)

    def plan(self, sequences: Sequence[np.ndarray]) -> tuple[list[Row], list[Batch]]:
        """Rows and batches; they follow from the sequences, not from the store."""
        rows = self.rows(sequences)
        batches = plan_batches(
            [row.length for row in rows],
            context=self.context,
            batch_tokens=self.batch_tokens,
            n_devices=self.n_devices,
            few_shapes=self.few_shapes,
        )
        return rows, batches

    def rows(self, sequences: Sequence[np.ndarray]) -> list[Row]:
        """Windows of each sequence."""
        return rows_of(sequences, self.context)


def _values(
    batch: Batch, scores: Sequence, rows: Sequence[Row], kept: Kept
) -> list[np.ndarray]:
    """Kept values of a batch's rows from the device's scores."""
    host = [np.asarray(part) for part in scores if part is not None]
    values = []
    for i, index in enumerate(batch.rows):
        row = rows[index]
        own = np.stack([part[i, row.first : row.length] for part in host])
        bad = np.flatnonzero(~np.isfinite(own).all(axis=0))
        if len(bad):
            at = row.window.first_target + int(bad[0])
            raise NonFiniteScoreError(row.sequence, at)
        values.append(kept.reduce(own))
    return values


def batch_keys(
    store: RowKeys,
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
