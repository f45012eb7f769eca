"""Detectors: their inputs, what they may read, and their findings.

A token is counted each time that the model reads it: in every window, after every
prefix, and once for a prefix that many texts share. What one detector asked before
another one is not computed again, and is charged to both. Answers are read-only, so
that no detector changes what the next one is told. docs/how_to/own_method.md has a
whole example.
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.members.passes import TextModel
from jaxcontam.progress import Progress
from jaxcontam.scoring.opened import PairSource, SequenceScorer
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import rows_of
from jaxcontam.scoring.scorer import SequenceSums, TokenTable

_T = TypeVar("_T")

Known = dict[bytes, Any]
"""Answers of one model to the calls of all detectors."""


class OverBudgetError(Exception):
    """A detector asked for more tokens than it had left."""


class Budget:
    """Tokens that one detector may have read of one set."""

    def __init__(self, tokens: int, *, pass_tokens: int):
        """Start to count; one pass over the set costs `pass_tokens`."""
        self.tokens, self.pass_tokens, self.spent = tokens, pass_tokens, 0

    @property
    def left(self) -> int:
        """Tokens that may still be read."""
        return self.tokens - self.spent

    @property
    def passes(self) -> float:
        """Tokens read, in passes over the set."""
        return self.spent / self.pass_tokens

    def spend(self, tokens: int) -> None:
        """Charge a call before it is made; raises if it costs more than is left."""
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
    """A scorer of one model that charges a budget; a `SequenceScorer`.

    Each call raises `OverBudgetError` if it costs more than there is left.
    """

    store = None

    def __init__(self, scorer: SequenceScorer, budget: Budget, known: Known):
        """Charge `budget` for what is asked of `scorer`, whose `known` answers grow."""
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
        """Sum each sequence, as `Scorer.sums`."""
        return self._charged("sums", sequences, progress)

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Score every token, as `Scorer.token_table`."""
        return self._charged("token_table", sequences, progress)

    def tokens(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """Score tokens, as `Scorer.tokens`."""
        return self.token_table(sequences, progress).scores

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """Sum whole sequences, as `Scorer.log_likelihoods`."""
        return self.sums(sequences, progress).loglik

    def _charged(
        self, name: str, sequences: Sequence[np.ndarray], progress: Progress | None
    ) -> Any:
        self._budget.spend(self.cost(sequences))
        ask = getattr(self._scorer, name)
        key = _digest(name, sequences)
        return _once(self._known, key, lambda: ask(sequences, progress))


class MeteredPairs:
    """Scores continuations of prefixes, as `MeteredScorer` does; a `PairSource`."""

    def __init__(self, pairs: PairSource, budget: Budget, known: Known):
        """Charge `budget` for all that `pairs` score."""
        self._pairs, self._budget, self._known = pairs, budget, known

    def cost(self, groups: Sequence[PairGroup]) -> int:
        """Tokens that the model reads to score groups."""
        return sum(len(group.prefix) + group.n_targets for group in groups)

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score as `PairScorer.logprobs`, each prefix charged once."""
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
    """Digest of a call; lengths are part of it, so that no two calls look alike."""
    found = hashlib.sha256(kind.encode())
    for array in arrays:
        ids = array.astype(np.int32, copy=False)
        found.update(len(ids).to_bytes(8, "little") + ids.tobytes())
    return found.digest()


Gives = Literal["p-value", "score"]
Family = Literal["order", "membership", "replication", "inflation", "blind", "other"]
Need = Literal[
    "log-probabilities", "distributions", "unseen texts", "reference model", "corpus"
]

# What a model says, for which tokens are spent.
_OF_A_MODEL: tuple[Need, ...] = ("distributions", "reference model")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Largest -log10 p; what lies deeper is as sure.
_DEEPEST = 300.0
# By which log10 of a p-value of 1 may miss 0.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A score, higher = more likely trained on; a p-value from detectors that test."""

    score: float
    p_value: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise ValueError(f"score must be finite, got {self.score}")
        if self.p_value is not None and not 0 < self.p_value <= 1:
            raise ValueError(f"p_value must be in (0, 1], got {self.p_value}")


def finding_of_p(log10_p: float) -> Finding:
    """A p-value that ranks by itself, from its logarithm."""
    if not (math.isfinite(log10_p) and log10_p <= _ROUNDING):
        raise ValueError(f"log10_p must be finite and at most 0, got {log10_p}")
    depth = min(max(0.0, -log10_p), _DEEPEST)
    return Finding(score=depth, p_value=10.0**-depth)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """One set and one model, as an auditor meets them: the truth is not here.

    Attributes:
        benchmark: The examples in their published order.
        encoded: Their ids, each with the separator that follows it.
        model: Scores texts and sequences of ids, and charges the budget for it.
        budget: What may still be read.
        seed: Seeds what the detector draws; another one for each set and no seed of
            the study, so that draws are independent of the sets' own.
        unseen: Texts of the same kind that the model never saw, if the entry needs
            `unseen texts`; else none.
        reference: A model of the same shape that saw none of the sets, if the entry
            needs `reference model`; what it reads is charged too.
        corpus_counts: (V,) int64, tokens of the background by id, if the entry needs
            `corpus`.
    """

    benchmark: Benchmark
    encoded: Encoded
    model: TextModel
    budget: Budget
    seed: int
    unseen: tuple[str, ...] = ()
    reference: TextModel | None = None
    corpus_counts: np.ndarray | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The examples as text, without separators."""
        return self.benchmark.texts

    @property
    def scorer(self) -> SequenceScorer:
        """Log-probabilities of sequences of ids."""
        return self.model.plain

    @property
    def prefix_id(self) -> int | None:
        """Id that stands before each document in training."""
        return self.model.model.prefix_id


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A detector and what the table says of it; it sees what it `needs`, no more."""

    name: str
    detect: Callable[[Subject], Finding]
    gives: Gives
    family: Family
    needs: tuple[Need, ...] = ("log-probabilities",)
    about: str
    source: str

    def __post_init__(self) -> None:
        """Refuse what the table cannot show."""
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"entry {self.name!r}: a name is small letters, digits and underscores"
            )
        words = (
            ("gives", (self.gives,), get_args(Gives)),
            ("family", (self.family,), get_args(Family)),
            ("needs", self.needs, get_args(Need)),
        )
        for field, given, choices in words:
            for word in given:
                if word not in choices:
                    raise InputError(
                        f"entry {self.name}: {field} cannot be {word!r}",
                        hint=f"choices: {', '.join(choices)}",
                    )
        for need in _OF_A_MODEL:
            if need in self.needs and "log-probabilities" not in self.needs:
                raise InputError(
                    f"entry {self.name}: needs {need!r} without 'log-probabilities'",
                    hint="without these an entry gets no token of any model",
                )
