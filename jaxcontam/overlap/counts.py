"""Occurrences of examples in documents, as counts that merge in any order."""

import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.reports.archive import DAMAGED_ARRAY

SUFFIX = ".counts.npz"
"""Ending of a file with the counts of one task."""

# Counts that are merged at once.
_MERGED = 32
_TABLES = ("stretches", "matches", "nearest")


class Hit(NamedTuple):
    """The best place of a text in a corpus; of two the smaller is the better.

    Attributes:
        order: How good it is, the smallest best.
        line: Line, row or element there, from 1.
        around: What stands there.
    """

    order: tuple[float, ...]
    file: str
    line: int
    around: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Occurrences of an index in some documents.

    Attributes:
        ngrams: By n: ids of the n-grams that were found, ascending, and the number of
            documents with each; (2, G) int64.
        stretches: The stretch closest to each text that was compared; `order` is minus
            its distinct shingles of the text, and minus 2 where it contains the text up
            to white space, minus 1 where it contains all its words in order, else 0.
        matches: For each text the n-gram found that says most of it; `order` is its
            `ExampleIndex.rank`.
        nearest: The stretch nearest in meaning, if asked for; `order` is minus its
            cosine.
    """

    n_documents: int = 0
    n_words: int = 0
    ngrams: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict)
    stretches: Mapping[int, Hit] = dataclasses.field(default_factory=dict)
    matches: Mapping[int, Hit] = dataclasses.field(default_factory=dict)
    nearest: Mapping[int, Hit] = dataclasses.field(default_factory=dict)


def merged(counts: Iterable[Counts]) -> Counts:
    """Counts of all documents from those of parts, in any order and grouping."""
    parts = list(counts)
    ngrams = {}
    for n in sorted({n for part in parts for n in part.ngrams}):
        found, documents = np.concatenate(
            [part.ngrams[n] for part in parts if n in part.ngrams], axis=1
        )
        found, rows = np.unique(found, return_inverse=True)
        total = np.zeros(len(found), np.int64)
        np.add.at(total, rows, documents)
        ngrams[n] = np.stack([found, total])
    return Counts(
        n_documents=sum(part.n_documents for part in parts),
        n_words=sum(part.n_words for part in parts),
        ngrams=ngrams,
        stretches=_best(part.stretches for part in parts),
        matches=_best(part.matches for part in parts),
        nearest=_best(part.nearest for part in parts),
    )


def _best(parts: Iterable[Mapping[int, Hit]]) -> dict[int, Hit]:
    best: dict[int, Hit] = {}
    for part in parts:
        for text, hit in part.items():
            best[text] = min(best.get(text, hit), hit)
    return best


class Tally:
    """A running total of counts; merging copies it, so that many are added at once."""

    def __init__(self, total: Counts | None = None):
        self._parts = [total or Counts()]

    def add(self, counts: Counts) -> None:
        """Add the counts of more documents."""
        self._parts.append(counts)
        if len(self._parts) > _MERGED:
            self.total()

    def total(self) -> Counts:
        """Counts of all that was added."""
        self._parts = [merged(self._parts)]
        return self._parts[0]


def counts_bytes(counts: Counts, about: Mapping[str, Any]) -> bytes:
    """An .npz of counts, and what they are of, without pickle."""
    # No text in another encoding: unpaired surrogate of a damaged record is escaped.
    plain = {
        "about": about,
        "n_documents": counts.n_documents,
        "n_words": counts.n_words,
        **{name: list(getattr(counts, name).items()) for name in _TABLES},
    }
    arrays = {f"ngrams_{n}": found for n, found in counts.ngrams.items()}
    arrays["counts"] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def read_counts(file: IO[bytes], name: str) -> tuple[Counts, dict[str, Any]]:
    """Counts of an .npz, and what they are of.

    Raises:
        InputError: If it is damaged; names it.
    """
    try:
        with np.load(file) as saved:
            # Ours are not packed: small files that unpack without end are no counts.
            if any(one.compress_type for one in saved.zip.infolist()):
                raise ValueError("packed")
            plain = json.loads(saved["counts"].tobytes())
            ngrams = {
                int(key.removeprefix("ngrams_")): saved[key].astype(np.int64)
                for key in saved.files
                if key != "counts"
            }
        tables = {
            table: {
                int(text): Hit(tuple(order), str(file), int(line), str(around))
                for text, (order, file, line, around) in plain[table]
            }
            for table in _TABLES
        }
        if any(found.ndim != 2 or len(found) != 2 for found in ngrams.values()):
            raise ValueError("no pairs of n-gram and count")
        orders = [hit.order for one in tables.values() for hit in one.values()]
        if any(type(number) not in (int, float) for one in orders for number in one):
            raise ValueError("no number that says how good a hit is")
        n_documents, n_words = np.array(
            [plain["n_documents"], plain["n_words"]], np.int64
        ).tolist()
        about = dict(plain["about"])
    except (OSError, LookupError, TypeError, RecursionError, *DAMAGED_ARRAY) as e:
        raise InputError(f"{name}: damaged counts ({e})") from e
    counts = Counts(n_documents=n_documents, n_words=n_words, ngrams=ngrams, **tables)
    return counts, about


def read_tasks(paths: Sequence[Path], index: str) -> Counts:
    """Counts of all tasks of a run, merged; see `task_files`.

    Raises:
        InputError: If one is damaged or missing, or they are of another index, whose
            fingerprint is given.
    """
    tally, tasks, n_tasks = Tally(), list[int](), set[int]()
    for path in paths:
        try:
            with open(path, "rb") as file:
                counts, about = read_counts(file, str(path))
        except OSError as e:
            raise InputError(f"{path}: not readable ({e.strerror})") from e
        if about.get("index") != index:
            raise InputError(
                f"{path}: counts of other texts than this benchmark's",
                hint="--text and --limit are those of the step",
            )
        task, of_tasks = about.get("task"), about.get("n_tasks")
        if type(task) is not int or type(of_tasks) is not int or task >= of_tasks:
            raise InputError(f"{path}: damaged counts (no number of a task)")
        tally.add(counts)
        tasks.append(task)
        n_tasks.add(of_tasks)
    if len(n_tasks) > 1 or len(set(tasks)) < len(tasks):
        raise InputError(
            f"{paths[0].parent}: counts of runs with {sorted(map(str, n_tasks))} tasks",
            hint="one run a folder",
        )
    if n_tasks != {len(tasks)}:
        raise InputError(
            f"{paths[0].parent}: counts of {len(tasks)} of {n_tasks.pop()} tasks",
            hint="start the pipeline again: it goes on with those that are missing",
        )
    return tally.total()


def task_files(folder: Path) -> list[Path]:
    """Files of counts in a folder, by task."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
