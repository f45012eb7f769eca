"""Rows: the windows of sequences that go through the model, and what is kept of them.

Dimension key
    B  rows of a batch
    S  input positions
    R  scores of a target: its log-probability and, if asked, mean, variance and top
    T  own targets of a row
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.scoring.run_batches import Batch

FIRST_K = 8
"""Targets of a sequence's start that are summed apart."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a sequence that goes through the model at once.

    `first_target` is the first token that it scores.
    """

    start: int
    stop: int
    first_target: int


def windows(n_tokens: int, context: int) -> list[Window]:
    """Cover tokens 1..n-1 as targets, each once.

    Up to `context` tokens make one window. Longer sequences move on by half a context,
    and each window scores only what the one before it did not, so that every target
    has at least half a context before it. The last window ends with the sequence. A
    function of the length alone: all orders of the same examples are treated alike.
    """
    if n_tokens <= context:
        return [Window(0, n_tokens, 1)]
    found = [Window(0, context, 1)]
    while found[-1].stop < n_tokens:
        stop = min(found[-1].stop + max(1, context // 2), n_tokens)
        found.append(Window(stop - context, stop, found[-1].stop))
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One window of the sequence of an index."""

    sequence: int
    window: Window

    @property
    def length(self) -> int:
        """Input positions."""
        return self.window.stop - self.window.start - 1

    @property
    def first(self) -> int:
        """First input position that predicts a target of this row's own."""
        return self.window.first_target - self.window.start - 1

    @property
    def n_targets(self) -> int:
        """Targets whose scores are this row's own."""
        return self.length - self.first

    def ids(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """Its inputs and, last, its last target."""
        return sequences[self.sequence][self.window.start : self.window.stop]


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Values kept of a row's scores, (R, T) float32.

    `n_values` is the rows of the kept values; None is one per score.
    """

    name: str
    dtype: str
    reduce: Callable[[np.ndarray], np.ndarray]
    n_values: int | None

    def to_bytes(self, values_RT: np.ndarray) -> bytes:
        """Kept values as the store holds them."""
        return values_RT.astype(self.dtype, copy=False).tobytes()

    def from_bytes(self, data: bytes, *, n_scores: int) -> np.ndarray:
        """Undo `to_bytes`, to the bit."""
        values = np.frombuffer(data, self.dtype)
        return values.reshape(self.n_values or n_scores, -1)


def _sums(own_RT: np.ndarray) -> np.ndarray:
    """(2, 1) float64: log-probabilities summed over all own targets and the first."""
    parts = own_RT[0], own_RT[0, :FIRST_K]
    return np.array([[part.sum(dtype=np.float64)] for part in parts])


SUMS = Kept(f"sums{FIRST_K}", "<f8", _sums, n_values=2)
"""For order tests: float64 sums, 16 bytes a row."""

TOKENS = Kept("tokens", "<f4", lambda own_RT: own_RT, n_values=None)
"""For membership scores: every score, 4 bytes each."""


def rows_of(sequences: Sequence[np.ndarray], context: int) -> list[Row]:
    """Rows of all sequences, in their order."""
    # A row of `context` inputs has context + 1 tokens, but the plan's sequences
    # hold at most `context`, and windows of that size keep one rule for all.
    return [
        Row(sequence, window)
        for sequence, ids in enumerate(sequences)
        for window in windows(len(ids), context)
    ]


def fill(
    batch: Batch, rows: Sequence[Row], sequences: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a batch; zeros pad the end, where nothing looks back."""
    inputs_BS, targets_BS = np.zeros((2, batch.n_rows, batch.length), np.int32)
    for i, index in enumerate(batch.rows):
        ids = rows[index].ids(sequences)
        inputs_BS[i, : len(ids) - 1] = ids[:-1]
        targets_BS[i, : len(ids) - 1] = ids[1:]
    return inputs_BS, targets_BS
