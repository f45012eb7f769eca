"""Scorers that count what a detector has the model read, and stop it in time.

A token is counted each time that the model reads it: in every window, after every
prefix, and once for a prefix that many texts share. What one detector asked before
another one is not computed again, and is charged to both. Answers are
read-only, so that no detector changes what the next one is told.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from jaxcontam.scoring.opened import PairSource
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import rows_of
from jaxcontam.scoring.scorer import Scorer, SequenceSums, TokenTable
from jaxcontam.scoring.stored import Progress

_T = TypeVar("_T")

Known = dict[bytes, Any]
"""Answers of one model to the calls of all detectors."""


class OverBudgetError(Exception):
    """A detector asked for more tokens than it had left."""


class Budget:
    """Tokens that one detector may have read of one set."""

    def __init__(self, tokens: int, *, pass_tokens: int):
        """Start to count.

        Args:
            tokens: The most that may be read.
            pass_tokens: Tokens of the set: what one pass over it costs.
        """
        self.tokens = tokens
        self.pass_tokens = pass_tokens
        self.spent = 0

    @property
    def left(self) -> int:
        """Tokens that may still be read."""
        return self.tokens - self.spent

    @property
    def passes(self) -> float:
        """What was read, in passes over the set."""
        return self.spent / self.pass_tokens

    def spend(self, tokens: int) -> None:
        """Charge a call before it is made.

        Raises:
            OverBudgetError: If it costs more than there is left.
        """
        if not self.tokens:
            raise OverBudgetError("asked for a model, which its `needs` do not name")
        if tokens > self.left:
            wanted = (self.spent + tokens) / self.pass_tokens
            raise OverBudgetError(
                f"asked for {wanted:.1f} passes, "
                f"{self.tokens / self.pass_tokens:.1f} allowed"
            )
        self.spent += tokens


class MeteredScorer:
    """A scorer of one model that charges a budget; a `SequenceScorer`."""

    store = None

    def __init__(self, scorer: Scorer, budget: Budget, known: Known):
        """Wrap a scorer.

        Args:
            scorer: Of the model.
            budget: What is charged.
            known: Answers of this very scorer to earlier calls; grows.
        """
        self._scorer, self._budget, self._known = scorer, budget, known
        self.pairs: PairSource | None = None
        if scorer.pairs is not None:
            self.pairs = MeteredPairs(scorer.pairs, budget, known)

    @property
    def context(self) -> int:
        """Ids that are read at once."""
        return self._scorer.context

    def cost(self, sequences: Sequence[np.ndarray]) -> int:
        """Tokens that the model reads to score sequences."""
        return sum(row.length for row in rows_of(sequences, self.context))

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """See `Scorer.sums`.

        Raises:
            OverBudgetError: If it costs more than there is left.
        """
        self._budget.spend(self.cost(sequences))
        key = _digest("sums", sequences)
        return _once(self._known, key, lambda: self._scorer.sums(sequences, progress))

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """See `Scorer.token_table`.

        Raises:
            OverBudgetError: If it costs more than there is left.
        """
        self._budget.spend(self.cost(sequences))
        key = _digest("tokens", sequences)
        return _once(
            self._known, key, lambda: self._scorer.token_table(sequences, progress)
        )

    def tokens(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """See `Scorer.tokens`; raises as `token_table` does."""
        return self.token_table(sequences, progress).scores

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """See `Scorer.log_likelihoods`; raises as `sums` does."""
        return self.sums(sequences, progress).loglik


class MeteredPairs:
    """Scores continuations of prefixes and charges a budget; a `PairSource`."""

    def __init__(self, pairs: PairSource, budget: Budget, known: Known):
        """See `MeteredScorer`."""
        self._pairs, self._budget, self._known = pairs, budget, known

    @property
    def has_tokens(self) -> bool:
        """Whether each id has a number."""
        return self._pairs.has_tokens

    def cost(self, groups: Sequence[PairGroup]) -> int:
        """Tokens that the model reads to score groups."""
        return sum(len(group.prefix) + group.n_targets for group in groups)

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """See `PairScorer.logprobs`; a prefix is charged once.

        Raises:
            OverBudgetError: If it costs more than there is left.
        """
        self._budget.spend(self.cost(groups))
        ids = (part for g in groups for part in (g.prefix, *g.continuations))
        # Where one group ends is part of what was asked.
        sizes = np.array([len(g.continuations) for g in groups], np.int32)
        key = _digest("pairs", (sizes, *ids))
        return _once(self._known, key, lambda: self._pairs.logprobs(groups, progress))


def read_only(found: _T) -> _T:
    """The same with lists of its own, in all of whose arrays nothing can be written."""
    value: Any = found
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, list | tuple):
        return type(value)(map(read_only, value))  # type: ignore[return-value]
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        parts = {name: read_only(getattr(value, name)) for name in names}
        return dataclasses.replace(value, **parts)  # type: ignore[type-var]
    return found


def _once(known: Known, key: bytes, call: Callable[[], Any]) -> Any:
    if key not in known:
        known[key] = call()
    return read_only(known[key])


def _digest(kind: str, arrays: Iterable[np.ndarray]) -> bytes:
    """Of a call; lengths are part of it, so that no two calls look alike."""
    found = hashlib.sha256(kind.encode())
    for array in arrays:
        ids = array.astype(np.int32, copy=False)
        found.update(len(ids).to_bytes(8, "little") + ids.tobytes())
    return found.digest()
