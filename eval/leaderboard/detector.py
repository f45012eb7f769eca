"""What a detector is, what it sees of a set, and what it says of it.

`docs/leaderboard.md` has a whole example.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from eval.leaderboard.budget import Budget
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.scoring.opened import SequenceScorer

Gives = Literal["p-value", "score"]
Family = Literal["order", "membership", "replication", "blind", "other"]
Need = Literal[
    "log-probabilities",
    "distributions",
    "unseen texts",
    "reference model",
    "corpus",
]

# What a model says, for which tokens are spent.
_OF_A_MODEL: tuple[Need, ...] = ("distributions", "reference model")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Of -log10 p; what lies deeper is as sure.
_DEEPEST = 300.0
# By which log10 of a p-value of 1 may miss 0.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a detector says of one set.

    Attributes:
        score: Ranks sets: higher = more likely trained on. Finite.
        p_value: Probability, if the set was never seen, of a finding as strong as this
            one; in (0, 1]. None from a detector that gives scores alone.
    """

    score: float
    p_value: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be ranked.

        Raises:
            ValueError: If the score is not finite or the p-value outside (0, 1].
        """
        if not math.isfinite(self.score):
            raise ValueError(f"score must be finite, got {self.score}")
        if self.p_value is not None and not 0 < self.p_value <= 1:
            raise ValueError(f"p_value must be in (0, 1], got {self.p_value}")


def finding_of_p(log10_p: float) -> Finding:
    """A p-value that ranks by itself.

    Args:
        log10_p: At most 0, but for rounding.

    Raises:
        ValueError: If it is no logarithm of a p-value.
    """
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
        seed: Of what the detector draws; another one for each set, and no seed of the
            study, so that draws are independent of the sets' own.
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
    """A detector and what the table says of it.

    Attributes:
        name: Small letters, digits and underscores.
        detect: What it says of a set.
        gives: Whether `detect` gives p-values, by which it is held to their level.
        family: What kind of evidence it reads.
        needs: What it gets to see; nothing else is there.
        about: One line: what it does.
        source: Paper.
    """

    name: str
    detect: Callable[[Subject], Finding]
    gives: Gives
    family: Family
    needs: tuple[Need, ...] = ("log-probabilities",)
    about: str
    source: str

    def __post_init__(self) -> None:
        """Refuse what the table cannot show.

        Raises:
            InputError: If the name or a word of the others is none of those allowed, or
                a model is needed and no log-probabilities.
        """
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
