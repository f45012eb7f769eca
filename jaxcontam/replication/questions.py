"""Questions of the methods of `--compare`, and how answers are read.

They ask for something else than the second piece.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.options import Item
from jaxcontam.replication.instance import Completer, Instance
from jaxcontam.replication.issues import Issue
from jaxcontam.replication.result import ComparisonResult

FIRST_INSTANCES = (
    "Write down the first {count} instances of the {split} split of the {dataset} "
    "dataset, word for word as they stand in its published file and in their order. "
    "Give every field of each instance in the file's own format. Write nothing else."
)
MASKED_WORD = (
    "One word of the text below, which is from the {split} split of the {dataset} "
    "dataset, is hidden behind {mask}. Answer with that one word alone.\n\n"
    "Text: {text}\n\nWord:"
)
MASKED_OPTION = (
    "Below stands a multiple-choice item from the {split} split of the {dataset} "
    "dataset. One of its wrong options is hidden behind {mask}. Answer with the text "
    "of that option alone, word for word as the dataset has it.\n\n"
    "{text}\n\nHidden option:"
)
FILE_PATH = (
    "Below stands an issue of a software project. Which one file has to be changed to "
    "resolve it? Answer with its path from the root of the repository alone.\n\n"
    "{text}\n\nFile:"
)
MASK = "[MASK]"

_PLACE = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of what is asked about, for results and for questions."""

    benchmark: str
    fingerprint: str
    dataset: str
    split: str


Tokenize = Callable[[str], Sequence[Hashable]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparisonInputs:
    """All that such a method may ask about, and with what.

    `prompts` are one an instance, without its second piece; `issues` ask for a file,
    `n_samples` are for `cdd`, `stop` ends a completion.
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


def filled(template: str, **values: str) -> str:
    """A template with its places filled; braces inside a value stay as they are."""
    return _PLACE.sub(lambda match: values[match[1]], template)


def words_version(name: str, *templates: str) -> str:
    """A name and a digest of words, for reports."""
    digest = hashlib.sha256("\0".join(templates).encode()).hexdigest()
    return f"{name}@{digest[:12]}"
