"""Background text by name: files, folders, prepared TFDS splits, data sets of the hub.

A corpus is a row of parts, one a file; each says what it is, so that a cache made of it
knows when it changed, and yields its documents in their order.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxcontam.data.corpus import list_corpus
from jaxcontam.data.hub_splits import download_split, is_hub_split, parse_hub_split
from jaxcontam.errors import InputError
from train.readers import BINARY_SUFFIXES, KINDS, Part, file_part, read_texts

TFDS_PREFIX = "tfds:"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in their order, from one part after another.

    Attributes:
        parts: Files and splits, in the order of the names that were given.
        passed_over: Files of the folders that are of no kind that is read.
        limit_documents: Take the first N; None takes all.
    """

    parts: tuple[Part, ...]
    passed_over: tuple[str, ...] = ()
    limit_documents: int | None = None

    @property
    def identity(self) -> str:
        """SHA-256 over what its parts are and how many documents are taken."""
        known = [[part.identity for part in self.parts], self.limit_documents]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def documents(self, part: Part) -> Iterator[str]:
        """All documents of a part, whatever the limit of the corpus.

        Raises:
            InputError: At a record without text or a part that cannot be read.
        """
        return part.read()

    def __iter__(self) -> Iterator[str]:
        every = itertools.chain.from_iterable(part.read() for part in self.parts)
        return itertools.islice(every, self.limit_documents)


def open_corpus(
    names: Sequence[str | Path],
    *,
    text_field: str = "text",
    limit_documents: int | None = None,
    leave_out: Path | None = None,
) -> Corpus:
    """Find the parts of a corpus; no text is read yet.

    Args:
        names: Each a file (.jsonl, .json, .csv, .tsv, .txt, also with .gz; .parquet;
            .array_record), a folder of such files with the folders in it,
            `tfds:NAME[:VERSION]/SPLIT`, or `hf:NAME[:CONFIG]:SPLIT`.
        text_field: Field of a record, or column, that is its text.
        limit_documents: Take the first N documents; None takes all.
        leave_out: A folder that is not searched: sets that an earlier run wrote there
            are no background of the next.

    Raises:
        InputError: If a name leads nowhere, or two names lead to the same part.
    """
    if not names:
        raise InputError("no corpus is given", hint="name a file or a folder of text")
    parts: list[Part] = []
    passed_over: list[str] = []
    for name in map(str, names):
        if name.startswith(TFDS_PREFIX):
            from train.prepared import tfds_parts

            parts += tfds_parts(name, text_field)
        elif is_hub_split(name):
            paths = download_split(parse_hub_split(name))
            parts += [_text_part(path, text_field) for path in paths]
        else:
            found, others = _file_parts(Path(name), text_field, leave_out)
            parts += found
            passed_over += others
    seen: set[str] = set()
    for part in parts:
        if part.identity in seen:
            raise InputError(
                f"{part.name}: twice in the corpus", hint="name each file once"
            )
        seen.add(part.identity)
    return Corpus(tuple(parts), tuple(passed_over), limit_documents)


def read_documents(
    names: Sequence[str | Path], *, text_field: str = "text"
) -> list[str]:
    """All documents of a corpus that fits into memory; see `open_corpus`."""
    return list(open_corpus(names, text_field=text_field))


def corpus_digest(documents: Iterable[str]) -> str:
    """SHA-256 over the documents' digests in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(hashlib.sha256(document.encode("utf-8")).digest())
    return f"sha256:{digest.hexdigest()}"


def _file_parts(
    path: Path, text_field: str, leave_out: Path | None
) -> tuple[list[Part], list[str]]:
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder",
            hint=f"a corpus is a file ({', '.join(KINDS)}), a folder, "
            "tfds:NAME/SPLIT or hf:NAME:SPLIT",
        )
    files, others = list_corpus(path, leave_out=leave_out, also=BINARY_SUFFIXES)
    parts = [_text_part(file.path, text_field) for file in files]
    return parts, [str(path / other) for other in others]


def _text_part(path: Path, text_field: str) -> Part:
    return file_part(path, lambda: read_texts(path, text_field), taken=[text_field])
