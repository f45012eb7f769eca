"""Texts by name, and at the other end batches of training rows.

A corpus is a row of parts, one a file of a folder, a prepared TFDS split or a data set
of the hub. Each says what it is, so that a cache made of it knows when it changed, and
yields its documents in their order and in bounded memory.

Records of text files are read as `jaxcontam overlap` reads them, by
`jaxcontam.data.corpus`; here are array_record, and folders that TFDS prepared as it.
A search may pass over a damaged record and count it. Training may not: the manifest
says what was trained on.

One batch a step, the same set of rows whatever the number of processes: each reads its
own rows of the global batch, so that a run saved by two processes resumes in four at
the same step. The places of the rows within a batch differ with that number.

Dimension key
    N  ids of the stream
    R  training rows
    B  rows of a batch
    T  targets a row
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.data.corpus import SUFFIXES, Fault, list_corpus
from jaxcontam.data.corpus import read_documents as read_records
from jaxcontam.data.hub_splits import download_split, is_hub_split, parse_hub_split
from jaxcontam.data.tfds_split import is_tfds_split, open_tfds
from jaxcontam.errors import InputError
from jaxcontam.models.hub import file_state

if TYPE_CHECKING:
    import grain

MAX_DOCUMENT = 16 << 20
"""Longest document, in bytes of UTF-8: tokenised whole, one takes 130 times as many."""

_ARRAY_RECORD = ".array_record"
# Rows that are held at once: small, as one row may be a book.
_ROWS = 256
_HINT = (
    "mend or remove it, or name another field with --text-field: training never skips "
    "a text silently"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A file of a corpus, or a split of a data set.

    Another text has another `identity`: of files their paths, sizes and times, so that
    nothing has to be read. `n_bytes` is the size as stored.
    """

    name: str
    identity: str
    n_bytes: int
    read: Callable[[], Iterator[str]] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in their order; `passed_over` are files of no kind that is read."""

    parts: tuple[Part, ...]
    passed_over: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """SHA-256 over what its parts are, all of whose documents are taken."""
        known = [[part.identity for part in self.parts], None]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(part.read() for part in self.parts)


def open_corpus(
    names: Sequence[str | Path],
    *,
    text_field: str = "text",
    leave_out: Path | None = None,
) -> Corpus:
    """Find the parts of a corpus; no text is read yet.

    A name is a file (those of `jaxcontam.data.corpus`, and .array_record), a folder of
    such files, `tfds:NAME[:VERSION]/SPLIT`, or `hf:NAME[:CONFIG]:SPLIT`. The folder
    `leave_out` is not searched: sets that an earlier run wrote are no background.
    """
    if not names:
        raise InputError("no corpus is given", hint="name a file or a folder of text")
    parts: list[Part] = []
    passed_over: list[str] = []
    for name in map(str, names):
        if is_tfds_split(name):
            parts.append(tfds_part(name, text_field))
        elif is_hub_split(name):
            paths = download_split(parse_hub_split(name))
            parts += [_text_part(path, text_field) for path in paths]
        else:
            path, kinds = Path(name), ", ".join((*SUFFIXES, _ARRAY_RECORD))
            if not path.exists():
                raise InputError(
                    f"{path}: no such file or folder",
                    hint=f"a corpus is a file ({kinds}), a folder, tfds:NAME/SPLIT or "
                    "hf:NAME:SPLIT",
                )
            files, others = list_corpus(path, leave_out=leave_out, also=[_ARRAY_RECORD])
            parts += [_text_part(file.path, text_field) for file in files]
            passed_over += [str(path / other) for other in others]
    seen: set[str] = set()
    for part in parts:
        if part.identity in seen:
            raise InputError(
                f"{part.name}: twice in the corpus", hint="name each file once"
            )
        seen.add(part.identity)
    return Corpus(tuple(parts), tuple(passed_over))


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


def _text_part(path: Path, text_field: str) -> Part:
    is_array = path.suffix.lower() == _ARRAY_RECORD
    read = _array_record_texts if is_array else _texts
    return _part(str(path), [path], lambda: read(path, text_field), taken=[text_field])


def _part(
    name: str,
    paths: Sequence[Path],
    read: Callable[[], Iterator[str]],
    *,
    taken: Sequence[str],
) -> Part:
    """Files whose documents `read` yields; they must not change while they are read."""
    states = [file_state(path) for path in paths]

    def documents() -> Iterator[str]:
        yield from read()
        for path, state in zip(paths, states, strict=True):
            if file_state(path) != state:
                raise InputError(
                    f"{path}: changed while it was read",
                    hint="wait until it is written",
                )

    return Part(
        name=name,
        identity=json.dumps(["file", *states, *taken]),
        n_bytes=sum(path.stat().st_size for path in paths),
        read=documents,
    )


def _texts(path: Path, field: str) -> Iterator[str]:
    """Documents of a file; names the first that cannot be read by file and line."""
    for number, item in enumerate(read_records(path, text_field=field)):
        where = f"{path}:{item.line}"
        if isinstance(item, Fault):
            raise _damaged(where, item.reason)
        if item.has_lines and number:
            # A .txt file, which a search cuts in parts.
            raise _too_long(str(path))
        if not item.has_lines or item.text.strip():
            yield _text_of(item.text, where)


def _text_of(value: object, where: str) -> str:
    """A text from a str or UTF-8 bytes, none of them too long."""
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as e:
            raise _damaged(where, f"not UTF-8 (byte {e.start})") from e
    if not isinstance(value, str):
        raise _damaged(where, f"no text ({type(value).__name__})")
    try:
        # JSON can spell half of a surrogate pair, which no UTF-8 file can hold.
        n_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError as e:
        raise _damaged(where, f"no Unicode text (sign {e.start})") from e
    if n_bytes > MAX_DOCUMENT:
        raise _too_long(where)
    return value


def _array_record_texts(path: Path, field: str) -> Iterator[str]:
    """Texts of records: JSON objects if the first one is, else plain text."""
    holds_json = None
    for number, record in enumerate(array_records(path), 1):
        where = f"{path}:{number}"
        if holds_json is None:
            holds_json = isinstance(_json_of(record), dict)
        if not holds_json:
            yield _text_of(record, where)
            continue
        fields = _json_of(record)
        if not isinstance(fields, dict):
            raise _damaged(where, "no JSON object, as the records before it are")
        if field not in fields:
            raise _no_field(where, field, fields)
        yield _text_of(fields[field], where)


def _json_of(record: bytes) -> object:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None


def array_records(path: Path) -> Iterator[bytes]:
    """Records of an .array_record; one that is damaged or holds none is refused.

    The library calls a file whose end is missing empty, and says no more.
    """
    from array_record.python.array_record_module import ArrayRecordReader

    def records() -> Iterator[bytes]:
        reader = ArrayRecordReader(str(path))
        n_records = reader.num_records()
        if not n_records:
            raise _damaged(str(path), "no records, or no whole .array_record")
        for row in range(0, n_records, _ROWS):
            yield from reader.read(row, min(row + _ROWS, n_records))
        reader.close()

    return _readable(str(path), records(), (OSError, RuntimeError, IndexError))


def _readable(
    name: str, records: Iterable[Any], faults: tuple[type[Exception], ...]
) -> Iterator[Any]:
    """The records of a file, of which the first that cannot be read is named."""
    n_read = 0
    try:
        for record in records:
            yield record
            n_read += 1
    except faults as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        where = f"{name}:{n_read + 1}"
        raise _damaged(where, f"not readable from here on ({reason})") from e


def _no_field(where: str, field: str, names: Iterable[object]) -> InputError:
    found = ", ".join(map(str, names))[:200] or "nothing"
    return _damaged(where, f"no field {field!r} (it has: {found})")


def _damaged(where: str, reason: str) -> InputError:
    return InputError(f"{where}: {reason}", hint=_HINT)


def _too_long(where: str) -> InputError:
    return InputError(
        f"{where}: one document of over {MAX_DOCUMENT >> 20} MiB",
        hint="cut it into the documents of a .jsonl; a .txt is one document",
    )


def tfds_part(word: str, text_field: str) -> Part:
    """A split that TFDS prepared, see `jaxcontam.data.tfds_split`."""
    split = open_tfds(word)
    if text_field not in split.fields:
        raise _no_field(word, text_field, split.fields)

    def texts() -> Iterator[str]:
        for number, row in enumerate(split.rows([text_field]), 1):
            yield _text_of(row[text_field], f"{word}:{number}")

    return _part(word, tuple(split.files), texts, taken=[text_field, split.split])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of T + 1 ids in training order, cut from the stream when indexed.

    The stream is a circle: what follows its last id is its first.
    """

    ids: np.ndarray
    starts: np.ndarray
    context: int

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        """(T + 1,) int32; the last id is the first of the next row in the stream."""
        start, length = int(self.starts[index]), self.context + 1
        if start + length <= len(self.ids):
            return self.ids[start : start + length].astype(np.int32)
        places = np.arange(start, start + length) % len(self.ids)
        return self.ids[places].astype(np.int32)


def row_batches(
    rows: Rows,
    *,
    batch_rows: int,
    n_steps: int,
    process: int = 0,
    n_processes: int = 1,
) -> "grain.DatasetIterator":
    """Batches of this process, (B / n_processes, T + 1) int32, one per step.

    A process gets rows process, process + n_processes, ... of each global batch. The
    iterator's state is a step count, equal in all processes.
    """

    def batch(step: int) -> np.ndarray:
        first = step * batch_rows
        own = range(first + process, first + batch_rows, n_processes)
        return np.stack([rows[row] for row in own])

    import grain

    # Whole batches, since Grain calls Python several times an element: 8 rows of 512
    # ids, read ahead by two threads, took 236 us a step as single rows, 66 as a batch.
    batches = grain.MapDataset.range(n_steps).map(batch)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=16)
    return iter(batches.to_iter_dataset(options))
