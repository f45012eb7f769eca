"""Which file format should hold scores that a killed run goes on from?

Question: what does a batch cost in records of our own, in SQLite and in an Arrow
stream, how much is left of a file that was cut at a random byte, and how often does a
flipped bit come back as a score?
Command: `python -m eval.store_formats`. Hardware: one CPU core, 10 seconds.
Needs pyarrow (the dependencies bring it). Headline: LOG.md.
"""

import base64
import contextlib
import dataclasses
import io
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from eval.study import Grid, print_grid, run_study
from jaxcontam.commands.flags import check_positive, check_seed
from jaxcontam.data.journal import Records

Batch = list[tuple[bytes, bytes]]
"""(key, value) rows that are written together."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreFormats:
    """Write, find, cut and damage the same batches in each format."""

    n_batches: int = 1000
    """Batches a file, committed one by one."""
    n_rows: int = 8
    """Rows a batch, each with a key of 32 and a value of 16 bytes."""
    n_damages: int = 50
    """Files cut at a random byte, and files with a flipped bit."""
    seed: int = 0
    """Seeds values, cuts and bits."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_batches", "n_rows", "n_damages")

    def run(self) -> list["FormatResult"]:
        """Measure and print; returns a result a format."""
        rng = np.random.default_rng(self.seed)
        batches = [
            [(rng.bytes(32), rng.bytes(16)) for _ in range(self.n_rows)]
            for _ in range(self.n_batches)
        ]
        with tempfile.TemporaryDirectory() as directory:
            found = [
                _measure(name, write, find, batches, Path(directory), self)
                for name, (write, find) in _FORMATS.items()
            ]
        columns = {
            "format": "{r.name}",
            "commit us": "{r.commit_us:.0f}",
            "find us": "{r.find_us:.0f}",
            "bytes a row": "{r.bytes_a_row:.0f}",
            "kept if cut": "{r.kept_after_cut:.0%}",
            "wrong if bit": "{r.wrong_after_flip:.0%}",
        }
        title = f"{self.n_batches:,} batches of {self.n_rows} rows"
        print_grid(Grid.of(title, found, columns), Console())
        return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FormatResult:
    """What one format costs and survives.

    Attributes:
        commit_us: Median time to write a batch.
        find_us: Time to open a file and find all batches, a batch.
        bytes_a_row: Bytes of the file.
        kept_after_cut: Mean share of the rows before the cut that are still found.
        wrong_after_flip: Share of the flips after which a wrong value was served.
    """

    name: str
    commit_us: float
    find_us: float
    bytes_a_row: float
    kept_after_cut: float
    wrong_after_flip: float


def _measure(
    name: str,
    write: Callable[[Path, Sequence[Batch]], list[float]],
    find: Callable[[Path, Sequence[Batch]], dict[bytes, bytes]],
    batches: Sequence[Batch],
    directory: Path,
    config: StoreFormats,
) -> FormatResult:
    rng = np.random.default_rng(config.seed)
    path, spoilt = directory / f"{name}.file", directory / "spoilt"
    seconds = write(path, batches)
    truth = dict(row for batch in batches for row in batch)
    start = time.perf_counter()
    assert find(path, batches) == truth
    find_seconds = time.perf_counter() - start
    data = path.read_bytes()
    places = rng.integers(len(data), size=config.n_damages).tolist()
    kept, n_wrong = [], 0
    for place in places:
        spoilt.write_bytes(data[:place])
        n_before = len(truth) * place / len(data)
        kept.append(min(1.0, len(_readable(find, spoilt, batches)) / n_before))
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        spoilt.write_bytes(flipped)
        served = _readable(find, spoilt, batches)
        n_wrong += any(truth[key] != value for key, value in served.items())
    return FormatResult(
        name=name,
        commit_us=1e6 * statistics.median(seconds),
        find_us=1e6 * find_seconds / len(batches),
        bytes_a_row=len(data) / len(truth),
        kept_after_cut=statistics.mean(kept),
        wrong_after_flip=n_wrong / config.n_damages,
    )


def _readable(find: Callable, path: Path, batches: Sequence[Batch]) -> dict:
    """Rows with a known key; nothing where the format refuses the file."""
    import pyarrow

    known = {key for batch in batches for key, _ in batch}
    try:
        found = find(path, batches)
    except (sqlite3.DatabaseError, pyarrow.ArrowException, OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if key in known}


def _timed(commit: Callable[[Batch], object], batches: Sequence[Batch]) -> list[float]:
    seconds = []
    for batch in batches:
        start = time.perf_counter()
        commit(batch)
        seconds.append(time.perf_counter() - start)
    return seconds


def _write_records(path: Path, batches: Sequence[Batch]) -> list[float]:
    records = Records(path, is_synced=False)

    def commit(batch: Batch) -> None:
        records.append({key.hex(): base64.b64encode(v).decode() for key, v in batch})

    return _timed(commit, batches)


def _find_records(path: Path, batches: Sequence[Batch]) -> dict[bytes, bytes]:
    with contextlib.redirect_stderr(io.StringIO()):
        records = Records(path)
    keys = [key for batch in batches for key, _ in batch if key.hex() in records]
    values = records.values([key.hex() for key in keys]) or []
    return dict(zip(keys, map(base64.b64decode, values), strict=True))


def _sqlite_writer(journal: str, synchronous: str) -> Callable:
    def write(path: Path, batches: Sequence[Batch]) -> list[float]:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"pragma journal_mode={journal}")
        connection.execute(f"pragma synchronous={synchronous}")
        connection.execute("create table r (k blob primary key, v blob) without rowid")

        def commit(batch: Batch) -> None:
            connection.execute("begin")
            connection.executemany("insert or ignore into r values (?, ?)", batch)
            connection.execute("commit")

        seconds = _timed(commit, batches)
        connection.close()
        return seconds

    return write


def _find_sqlite(path: Path, batches: Sequence[Batch]) -> dict[bytes, bytes]:
    connection = sqlite3.connect(path)
    marks = ",".join("?" * len(batches[0]))
    query = f"select k, v from r where k in ({marks})"
    try:
        return {
            key: value
            for batch in batches
            for key, value in connection.execute(query, [key for key, _ in batch])
        }
    finally:
        connection.close()


def _write_arrow(path: Path, batches: Sequence[Batch]) -> list[float]:
    import pyarrow

    schema = pyarrow.schema([("k", pyarrow.binary(32)), ("v", pyarrow.binary(16))])
    with path.open("wb", buffering=0) as file:
        writer = pyarrow.ipc.new_stream(file, schema)

        def commit(batch: Batch) -> None:
            rows = [{"k": key, "v": value} for key, value in batch]
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))

        return _timed(commit, batches)


def _find_arrow(path: Path, batches: Sequence[Batch]) -> dict[bytes, bytes]:
    import pyarrow

    found: dict[bytes, bytes] = {}
    try:
        for batch in pyarrow.ipc.open_stream(path.read_bytes()):
            found |= zip(*(batch[i].to_pylist() for i in (0, 1)), strict=True)
    except (pyarrow.ArrowException, OSError):
        if not found:
            raise
    return found


_FORMATS = {
    "records": (_write_records, _find_records),
    "SQLite, WAL": (_sqlite_writer("wal", "normal"), _find_sqlite),
    "SQLite, rollback": (_sqlite_writer("delete", "full"), _find_sqlite),
    "Arrow stream": (_write_arrow, _find_arrow),
}


def main() -> int:
    """Command line of `python -m eval.store_formats`."""
    return run_study("store_formats", StoreFormats)


if __name__ == "__main__":
    sys.exit(main())
