"""Flags of `jaxcontam overlap`.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
from pathlib import Path

from tyro.conf import Positional

from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError
from jaxcontam.reports.flags import (
    check_positive,
    flag_of,
)

PREFIX = "infini-gram:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap(RecordText):
    """Search a corpus, or an infini-gram index, for the examples of a benchmark.

    Examples:
        # examples that occur in the corpus
        jaxcontam overlap corpus/ benchmark.jsonl
        # examples in the training data of OLMo 2, by its public index
        jaxcontam overlap infini-gram:v4_olmo-2-0325-32b-instruct_llama b.jsonl
    """

    corpus: Positional[Path]
    """File or folder: .jsonl, .json, .csv, .tsv, .txt, .warc, .wet, each also as .gz
    or .zst, .parquet; or a folder of counts of a datatrove pipeline; or
    infini-gram:[URL#]INDEX."""
    benchmark: Positional[Path]
    """File of examples: .jsonl, .json, .csv, .tsv or .txt."""
    text: str | None = None
    """Field that is the text of an example, or a template of fields in braces (default:
    the line, and its strings)."""
    corpus_field: str = "text"
    """Field of the corpus's records that is their text."""
    limit: int | None = None
    """Take the first N examples."""
    embeddings: str | None = None
    """Also report the part of the corpus that is nearest in meaning to each example, by
    static embeddings: a folder, or a hub name such as minishlab/potion-base-8M."""
    max_queries: int = 10_000
    """Most runs of words to query an index for; stored answers do not count."""
    out: Path | None = None
    """Folder for overlap.json (default: runs/overlap/BENCHMARK-DIGEST)."""
    json: bool = False
    """Print the result on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "limit", "max_queries")
        is_index = str(self.corpus).startswith(PREFIX)
        others = ("corpus_field", "embeddings") if is_index else ("max_queries",)
        for other in others:
            if getattr(self, other) != getattr(Overlap, other):
                kind = "files" if is_index else "an index"
                raise InputError(f"{flag_of(other)} goes with {kind}")

    def run(self) -> int:
        """Search, write, print; 0, or 3 if parts of the corpus were unreadable."""
        from jaxcontam.overlap.command import search

        return search(self)
