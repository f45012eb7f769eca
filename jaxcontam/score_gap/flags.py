"""Flags of `jaxcontam inflation`, and the design of its comparison.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from tyro.conf import Positional

from jaxcontam.arguments import words_of
from jaxcontam.data.templates import QuestionFields
from jaxcontam.errors import InputError
from jaxcontam.reports.flags import (
    DeviceFlags,
    Flags,
    ReportFlags,
    check_device_flags,
    check_positive,
    in_order,
)

MIN_POINTS = 5.0
"""Inflation that matters unless a user says otherwise."""

NEW_TOKENS = 32
"""Most tokens of a written answer."""

NAME_ONCE = "name each model once, and not MODEL itself as a reference"
"""The remedy for a model that stands twice: it hides how much models differ."""


# No slots: the command joins these fields to those of devices.
@dataclasses.dataclass(frozen=True, kw_only=True)
class InflationDesign(QuestionFields):
    """Design of a comparison of two sides; its fields are flags of `inflation`.

    Raises:
        InputError: If a field is out of range; names the flag.
    """

    unpaired: bool = False
    """--against is another split, not rewrites in pairs."""
    equally_hard: bool = False
    """Vouch that --against is as hard, such as a split drawn at random: required for a
    verdict without --references."""
    scored: bool = False
    """The files are .csv with a column item and one column of scores in [0, 1] per
    model."""
    per_byte: bool = False
    """Divide the log-probability of a choice by its length."""
    new_tokens: int = NEW_TOKENS
    """Most tokens of a written answer."""
    min_points: float = MIN_POINTS
    """Smallest inflation that matters, in points."""
    sample: int | None = None
    """Take N items of each file, drawn by their content; pairs stay whole."""
    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "sample", "new_tokens")
        if not (math.isfinite(self.min_points) and self.min_points > 0):
            raise InputError(f"--min-points must be positive, got {self.min_points}")

    @property
    def paired(self) -> bool:
        """True if the other items are rewrites of the published ones."""
        return not self.unpaired

    @property
    def words(self) -> tuple[str, ...]:
        """The flags that decide a verdict beside the scores, as they are typed."""
        vouched = words_of(self, ("unpaired", "equally_hard", "min_points"))
        document = self.named("document")
        return vouched + (("--fields", f"document={document}") if document else ())

    @classmethod
    def said(cls, words: Sequence[str], seed: int = 0) -> "InflationDesign":
        """The design that the words of a command ask for, as far as it judges."""
        given = dict(itertools.pairwise(words))
        # --group-field of earlier versions.
        document = f"document={given.get('--group-field', '')}"
        rest = itertools.dropwhile(lambda word: word != "--fields", words)
        own = itertools.takewhile(lambda word: not word.startswith("--"), [*rest][1:])
        named = [*(word for word in own if word.startswith("document=")), document]
        return cls(
            unpaired="--unpaired" in words,
            equally_hard="--equally-hard" in words,
            min_points=float(given.get("--min-points", MIN_POINTS)),
            fields=tuple(word for word in named[:1] if word != "document="),
            seed=seed,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Compared(Flags):
    """Models and files; a base, so that flags keep their order."""

    model: Positional[str]
    """Model directory, hub name, or api:URL#NAME; with --scored a column or a file."""
    benchmark: Positional[str | None] = None
    """Published items, or hf:ORG/NAME:SPLIT: multiple choice, or with an answer."""
    against: str | None = None
    """Items that cannot have been seen: rewrites, or another split."""
    references: tuple[str, ...] = ()
    """Models that saw neither, two or better five, slightly weaker and slightly
    stronger than MODEL, of different families: relatives differ too little."""


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Inflation(InflationDesign, DeviceFlags, ReportFlags, QuestionFields, _Compared):
    """Estimate the points that a model's score gains by having seen the items.

    Examples:
        # rewrites, with the ids of their originals or in their order
        jaxcontam inflation MODEL test.jsonl --against new.jsonl --references A B
        # another split, drawn at random
        jaxcontam inflation DIR a.jsonl --against b.jsonl --unpaired --equally-hard
        # your own scores, one column per model
        jaxcontam inflation NAME test.csv --against new.csv --scored --references B
        # or one file per model, with columns item, published, other
        jaxcontam inflation model.csv --scored --references a.csv b.csv
    """

    dry_run: bool = False
    """Print what would be sent, and the time it takes; send nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.benchmark is None) != (self.against is None):
            raise InputError("BENCHMARK and --against go together")
        if self.against is not None and self.against == self.benchmark:
            raise InputError(f"--against {self.against}: the published items again")
        if len({self.model, *self.references}) <= len(self.references):
            raise InputError(
                "--references names a model twice, or MODEL itself", hint=NAME_ONCE
            )
        if self.scored:
            if self.dry_run:
                raise InputError("--scored uses no model: leave out --dry-run")
            return
        if self.benchmark is None:
            raise InputError(
                "no items to compare", hint="BENCHMARK --against OTHER, or --scored"
            )
        check_device_flags(self, self.model)

    def run(self) -> dict[str, Any] | None:
        """Ask, judge, write and print; the report, or None for a dry run."""
        from jaxcontam.score_gap.command import estimate

        return estimate(self)
