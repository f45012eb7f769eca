"""Sequences of ids in, log-probabilities out: windows, batches, one host copy."""

import collections
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxcontam.scoring.batching import Batch, plan_batches
from jaxcontam.scoring.windows import Window, windows

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


class Scorer:
    """Scores sequences with one forward function and one rule of windows."""

    def __init__(
        self, forward: Forward, *, context: int, batch_tokens: int, n_devices: int = 1
    ):
        """Wrap a forward function.

        Args:
            forward: See `Forward`; called with few shapes.
            context: Most input positions of a row.
            batch_tokens: Tokens of a batch on one device.
            n_devices: Devices that share a batch's rows evenly.
        """
        self._forward = forward
        self.context = context
        self.batch_tokens = batch_tokens
        self.n_devices = n_devices

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """Sum of the log-probabilities of all ids after each sequence's first.

        Returns:
            (n_sequences,) float64, nats; summed in float64.

        Raises:
            NonFiniteScoreError: Names the sequence and the id.
        """
        sums = np.zeros(len(sequences))
        for sequence, _, scores in self._rows(sequences, progress):
            sums[sequence] += scores[0].sum(dtype=np.float64)
        return sums

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
        for sequence, window, scores in self._rows(sequences, progress):
            parts[sequence].append((window.first_target, scores))
        return [
            np.concatenate(
                [scores for _, scores in sorted(found, key=lambda part: part[0])],
                axis=1,
            )
            for found in parts
        ]

    def _rows(
        self, sequences: Sequence[np.ndarray], progress: Progress | None
    ) -> Iterator[tuple[int, Window, np.ndarray]]:
        """Each window's (sequence, window, scores of its own targets)."""
        # A row of `context` inputs has context + 1 tokens, but the plan's sequences
        # hold at most `context`, and windows of that size keep one rule for all.
        rows = [
            (sequence, window)
            for sequence, ids in enumerate(sequences)
            for window in windows(len(ids), self.context)
        ]
        batches = plan_batches(
            [window.stop - window.start - 1 for _, window in rows],
            context=self.context,
            batch_tokens=self.batch_tokens,
            n_devices=self.n_devices,
        )
        total = sum(len(ids) - 1 for ids in sequences)
        done = 0
        waiting: collections.deque[tuple[Batch, Sequence]] = collections.deque()
        for batch in [*batches, None]:
            if batch is not None:
                waiting.append((batch, self._forward(*_fill(batch, rows, sequences))))
            while waiting and (batch is None or len(waiting) > _AHEAD):
                finished, scores = waiting.popleft()
                host = [np.asarray(part) for part in scores if part is not None]
                for i, row in enumerate(finished.rows):
                    sequence, window = rows[row]
                    first = window.first_target - window.start - 1
                    last = window.stop - window.start - 1
                    own = np.stack([part[i, first:last] for part in host])
                    bad = np.flatnonzero(~np.isfinite(own).all(axis=0))
                    if len(bad):
                        raise NonFiniteScoreError(
                            sequence, window.first_target + int(bad[0])
                        )
                    done += own.shape[1]
                    yield sequence, window, own
                if progress is not None:
                    progress(done, total)


def n_targets(sequences: Sequence[np.ndarray]) -> int:
    """Target tokens of a list of sequences."""
    return sum(len(ids) - 1 for ids in sequences)


def _fill(
    batch: Batch,
    rows: Sequence[tuple[int, Window]],
    sequences: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a batch; zeros pad the end, where nothing looks back."""
    inputs_BS = np.zeros((batch.n_rows, batch.length), np.int32)
    targets_BS = np.zeros((batch.n_rows, batch.length), np.int32)
    for i, row in enumerate(batch.rows):
        sequence, window = rows[row]
        ids = sequences[sequence][window.start : window.stop]
        inputs_BS[i, : len(ids) - 1] = ids[:-1]
        targets_BS[i, : len(ids) - 1] = ids[1:]
    return inputs_BS, targets_BS
