"""The methods of `--compare`, which ask for something else than the second piece."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxcontam.data.benchmark import Benchmark, fingerprint
from jaxcontam.data.options import Item
from jaxcontam.methods.replication.cdd import Tokenize, cdd
from jaxcontam.methods.replication.file_path import Issue, file_path
from jaxcontam.methods.replication.first_instances import first_instances
from jaxcontam.methods.replication.instance import Completer, Instance
from jaxcontam.methods.replication.questions import Names
from jaxcontam.methods.replication.ts_guessing import (
    ts_guessing_option,
    ts_guessing_word,
)
from jaxcontam.progress import Progress
from jaxcontam.results.replication import ComparisonResult

# Most tokens of an answer to each method that has short ones.
_CDD_TOKENS, _WORD_TOKENS, _OPTION_TOKENS = 100, 20, 50


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparisonInputs:
    """What such a method may ask about, and with what.

    Attributes:
        benchmark: The partition.
        names: What questions and results call it.
        instances: Those drawn of it.
        prompts: One per instance, which does not hold the second piece.
        items: Its multiple-choice items.
        issues: Its issues, whose file is asked for.
        control_issues: Those of the control.
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
    issues: tuple[Issue, ...]
    control_issues: tuple[Issue, ...]
    completer: Completer
    tokenize: Tokenize | None
    n_samples: int
    max_tokens: int
    stop: tuple[str, ...]
    seed: int


Found = tuple[ComparisonResult, list[dict[str, Any]]]
"""A result, and a row of `texts.jsonl` for each answer."""


def _first_instances(asked: ComparisonInputs, progress: Progress | None) -> Found:
    return first_instances(
        asked.benchmark,
        asked.completer,
        dataset=asked.names.dataset,
        split=asked.names.split,
        max_tokens=asked.max_tokens,
        seed=asked.seed,
        progress=progress,
    )


def _cdd(asked: ComparisonInputs, progress: Progress | None) -> Found:
    return cdd(
        asked.instances,
        asked.prompts,
        asked.completer,
        benchmark=asked.names.benchmark,
        fingerprint=asked.names.fingerprint,
        tokenize=asked.tokenize,
        n_samples=asked.n_samples,
        max_tokens=min(_CDD_TOKENS, asked.max_tokens),
        stop=asked.stop,
        seed=asked.seed,
        progress=progress,
    )


def _ts_guessing_word(asked: ComparisonInputs, progress: Progress | None) -> Found:
    return ts_guessing_word(
        asked.instances,
        asked.completer,
        asked.names,
        max_tokens=min(_WORD_TOKENS, asked.max_tokens),
        seed=asked.seed,
        progress=progress,
    )


def _ts_guessing_option(asked: ComparisonInputs, progress: Progress | None) -> Found:
    texts = [one.text(range(len(one.options))) for one in asked.items]
    return ts_guessing_option(
        asked.items,
        asked.completer,
        dataclasses.replace(asked.names, fingerprint=fingerprint(texts)),
        max_tokens=min(_OPTION_TOKENS, asked.max_tokens),
        seed=asked.seed,
        progress=progress,
    )


def _file_path(asked: ComparisonInputs, progress: Progress | None) -> Found:
    texts = [f"{one.text}\n{one.file}" for one in asked.issues]
    return file_path(
        asked.issues,
        asked.control_issues,
        asked.completer,
        dataclasses.replace(asked.names, fingerprint=fingerprint(texts)),
        max_tokens=min(_OPTION_TOKENS, asked.max_tokens),
        seed=asked.seed,
        progress=progress,
    )


COMPARISONS: Mapping[str, Callable[[ComparisonInputs, Progress | None], Found]] = {
    "first_instances": _first_instances,
    "cdd": _cdd,
    "ts_guessing_word": _ts_guessing_word,
    "ts_guessing_option": _ts_guessing_option,
    "file_path": _file_path,
}
"""By the name in `REPLICATION_METHODS`."""
