"""What a method of `--compare` asks about: else than for the second piece."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jaxcontam.data.benchmark import Benchmark
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
        instances: Those drawn of it.
        prompts: One per instance, which does not hold the second piece.
        items: Its multiple-choice items.
        completer: The model.
        tokenize: The model's tokenizer, or None.
        n_samples: Of each instance, for `cdd`.
        max_tokens: Of an answer.
        stop: Texts that end a completion.
        seed: The run's seed.
    """

    benchmark: Benchmark
    names: Names
    instances: tuple[Instance, ...]
    prompts: list[str]
    items: tuple[Item, ...]
    completer: Completer
    tokenize: Tokenize | None
    n_samples: int
    max_tokens: int
    stop: tuple[str, ...]
    seed: int


Found = tuple[ComparisonResult, list[dict[str, Any]]]
"""A result, and a row of `texts.jsonl` for each answer."""
