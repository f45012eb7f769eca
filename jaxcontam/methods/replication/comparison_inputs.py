"""What a method of `--compare` asks about: else than for the second piece."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.issues import Issue
from jaxcontam.data.options import Item
from jaxcontam.methods.replication.instance import Completer, Instance
from jaxcontam.methods.replication.questions import Names
from jaxcontam.results.replication import ComparisonResult

Tokenize = Callable[[str], Sequence[Hashable]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparisonInputs:
    """What such a method may ask about, and with what.

    Attributes:
        benchmark: The partition.
        names: What questions and results call it.
        completer: The model.
        instances: Those drawn of it.
        prompts: One per instance, which does not hold the second piece.
        items: Its multiple-choice items.
        issues: Its issues, whose file is asked for.
        control_issues: Those of the control.
        tokenize: The model's tokenizer, or None.
        n_samples: Of each instance, for `cdd`.
        max_tokens: Of an answer.
        stop: Texts that end a completion.
        seed: The run's seed.
    """

    benchmark: Benchmark
    names: Names
    completer: Completer
    instances: tuple[Instance, ...] = ()
    prompts: Sequence[str] = ()
    items: tuple[Item, ...] = ()
    issues: tuple[Issue, ...] = ()
    control_issues: tuple[Issue, ...] = ()
    tokenize: Tokenize | None = None
    n_samples: int = 20
    max_tokens: int = 500
    stop: tuple[str, ...] = ()
    seed: int = 0


Found = tuple[ComparisonResult, list[dict[str, Any]]]
"""A result, and a row of `texts.jsonl` for each answer."""
