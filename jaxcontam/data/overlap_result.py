"""Result of an overlap search, of files or of an index."""

import dataclasses

from jaxcontam.data.occurrences import Occurrence
from jaxcontam.data.provenance import Provenance


@dataclasses.dataclass(frozen=True, slots=True)
class NamedFault:
    """A part of the corpus that was skipped."""

    file: str
    line: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedBenchmark:
    """The examples that were looked for."""

    name: str
    fingerprint: str
    order_provenance: Provenance
    n_examples: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCorpus:
    """The files that were searched.

    Attributes:
        n_unreadable: Parts that were skipped.
        unreadable: The first few of them.
        not_read: Files of other kinds.
    """

    n_files: int
    n_bytes: int
    n_documents: int
    n_words: int
    n_unreadable: int
    unreadable: tuple[NamedFault, ...]
    not_read: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchedIndex:
    """The index that was asked.

    Attributes:
        n_runs: Runs of words that it was asked for.
        n_shared_runs: Runs that too many examples share to be asked for.
        n_unasked: Examples without a run.
    """

    index: str
    url: str
    n_runs: int
    n_shared_runs: int
    n_unasked: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSearchResult:
    """Result of one search; nothing of the clock, so that reruns agree.

    Attributes:
        schema: Version of these fields.
        jaxcontam: Version of the package.
        command: Words of the command.
        meaning: What the numbers show and what they do not.
        rules: Names of the rules, and how an example meets each.
        corpus: What was searched.
        totals: See `totals`.
        examples: In the order of the benchmark.
    """

    schema: int
    jaxcontam: str
    command: tuple[str, ...]
    meaning: str
    rules: dict[str, str]
    benchmark: SearchedBenchmark
    corpus: SearchedCorpus | SearchedIndex
    totals: dict[str, int]
    examples: tuple[Occurrence, ...]
