"""Result of an overlap search, of files or of an index."""

import dataclasses

from jaxcontam.data.files import Provenance
from jaxcontam.overlap.occurrences import Occurrence


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

    `unreadable` holds the first few of the `n_unreadable` parts that were skipped,
    `not_read` files of other kinds.
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
    """The index that was asked for `n_runs` runs of words.

    Too many examples share `n_shared_runs` to ask for them; `n_unasked` have no run.
    """

    index: str
    url: str
    n_runs: int
    n_shared_runs: int
    n_unasked: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSearchResult:
    """Result of one search; nothing of the clock, so that reruns agree.

    `meaning` says what the numbers show and what they do not, `rules` how an example
    meets each rule.
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
