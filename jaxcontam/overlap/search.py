"""Search of the files of a corpus, by all cores of a machine, that can be gone on with.

Documents are read here and searched in batches by processes. Batches come back in the
corpus's order, so that counts and the place that was reached are all there is to keep.
"""

import contextlib
import dataclasses
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from jaxcontam.data.corpus import CorpusFile, Document, Fault, read_documents
from jaxcontam.errors import InputError
from jaxcontam.overlap.counts import Counts, Tally, counts_bytes, merged, read_counts
from jaxcontam.overlap.index import BATCH, COST, ExampleIndex, Search
from jaxcontam.overlap.nearest import NearestSearch, StaticEmbeddings
from jaxcontam.pools import end_with_parent, ignoring_ctrl_c
from jaxcontam.processes import cpu_cores
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report_files import replace_bytes

STATE_NAME = "search.npz"

_SAVE_SECONDS = 10.0
_NAMED_FAULTS = 20
# So many records without one text mean that a flag is wrong, not the records.
_HOPELESS = 1000
# Bytes of a corpus that are searched before other processes have begun.
_SMALL = 32 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Reached:
    """Progress of a search.

    Attributes:
        file: Number of the file that is read next.
        n_items: Documents and faults of it that are done.
        faults: The first few.
        finished: Digest of the result, once there is one.
    """

    file: int = 0
    n_items: int = 0
    n_faults: int = 0
    faults: tuple[Fault, ...] = ()
    finished: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The target of a search: an index, and static embeddings of its texts if any."""

    index: ExampleIndex
    embeddings: StaticEmbeddings | None = None

    def searches(self) -> list[Search | NearestSearch]:
        """Searches that are fed with groups of documents."""
        searches: list[Search | NearestSearch] = [Search(self.index)]
        if self.embeddings is not None:
            texts = [form.text for form in self.index.forms]
            searches.append(NearestSearch(self.embeddings, texts))
        return searches


def search_files(
    wanted: Wanted,
    files: Sequence[CorpusFile],
    *,
    text_field: str,
    progress: Callable[[int, int], None],
    found: Counts | None = None,
    reached: Reached | None = None,
    save: Callable[[Counts, Reached], None] = lambda found, reached: None,
    n_processes: int | None = None,
) -> tuple[Counts, Reached]:
    """Read a corpus from where a search stands to its end.

    Args:
        wanted: What is looked for.
        files: Files of the corpus, in its order.
        text_field: Field of a record that is its text.
        progress: Called with bytes done and in all.
        found: Counts so far.
        reached: Where they end.
        save: Called every so often with both.
        n_processes: Default: one a core, or this one alone if the corpus is small.
    """
    reached = reached or Reached()
    in_all = sum(file.size for file in files)
    if n_processes is None:
        n_processes = cpu_cores() if in_all > _SMALL else 1
    saved, tally = time.monotonic(), Tally(found)
    batches = _batches(files, text_field, reached, tally.total().n_documents)
    with contextlib.closing(_searched(wanted, batches, n_processes)) as searched:
        for counts, (reached, n_bytes) in searched:
            tally.add(counts)
            progress(n_bytes, in_all)
            is_due = time.monotonic() - saved >= _SAVE_SECONDS
            if is_due and reached.file < len(files):
                save(tally.total(), reached)
                saved = time.monotonic()
    progress(in_all, in_all)
    return tally.total(), reached


_Batch = tuple[list[Document], tuple[Reached, int]]


def _batches(
    files: Sequence[CorpusFile], text_field: str, reached: Reached, n_texts: int
) -> Iterator[_Batch]:
    """Documents of some `BATCH` characters, and where they end: place and bytes."""
    batch: list[Document] = []
    n_characters = before = 0
    for number, file in enumerate(files):
        if number >= reached.file:
            n_done = reached.n_items if number == reached.file else 0
            items = read_documents(file.path, text_field=text_field, name=file.name)
            for n_items, item in enumerate(islice(items, n_done, None), n_done + 1):
                n_characters += COST
                if isinstance(item, Fault):
                    reached = _with_fault(reached, item)
                    if reached.n_faults >= _HOPELESS and not n_texts:
                        raise without_text(file.name, reached)
                else:
                    batch.append(item)
                    n_texts, n_characters = n_texts + 1, n_characters + len(item.text)
                if n_characters >= BATCH:
                    reached = dataclasses.replace(reached, file=number, n_items=n_items)
                    n_read = file.size if isinstance(item, Fault) else item.n_read
                    yield batch, (reached, before + n_read)
                    batch, n_characters = [], 0
            reached = dataclasses.replace(reached, file=number + 1, n_items=0)
        before += file.size
    yield batch, (reached, before)


def _searched(
    wanted: Wanted, batches: Iterator[_Batch], n_processes: int
) -> Generator[tuple[Counts, tuple[Reached, int]], None, None]:
    """Counts of each batch, in order."""
    if n_processes == 1:
        searches = wanted.searches()
        for documents, after in batches:
            yield merged(search.add(documents) for search in searches), after
        return
    pool = ProcessPoolExecutor(
        n_processes,
        multiprocessing.get_context("spawn"),
        initializer=_open_worker,
        initargs=(wanted,),
    )
    try:
        asked: deque[tuple[Future[Counts], tuple[Reached, int]]] = deque()
        for documents, after in batches:
            # Plain tuples travel several times as fast.
            rows = list(map(tuple, documents))
            asked.append((pool.submit(_search, rows), after))
            # Enough that no process waits; each is as long as its longest document.
            while len(asked) > 2 * n_processes or (asked and asked[0][0].done()):
                future, after = asked.popleft()
                yield future.result(), after
        for future, after in asked:
            yield future.result(), after
    finally:
        # Interrupted while it waits for processes, this one would wait for ever.
        with ignoring_ctrl_c():
            pool.shutdown(cancel_futures=True)


_searches: list[Search | NearestSearch] = []
"""Searches of this process, if it belongs to a pool."""


def _open_worker(wanted: Wanted) -> None:
    # A terminal interrupts all processes: the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    _searches[:] = wanted.searches()


def _search(rows: Sequence[tuple[Any, ...]]) -> Counts:
    documents = list(map(Document._make, rows))
    return merged(search.add(documents) for search in _searches)


def _with_fault(reached: Reached, fault: Fault) -> Reached:
    faults = (*reached.faults, fault)[:_NAMED_FAULTS]
    return dataclasses.replace(reached, n_faults=reached.n_faults + 1, faults=faults)


def without_text(name: str, reached: Reached) -> InputError:
    """The refusal of a corpus in which no text was met."""
    if not reached.faults:
        return InputError(f"{name}: no text", hint="nothing to search in this corpus")
    first = reached.faults[0]
    return InputError(
        f"{first.file}:{first.line}: {first.reason}; no text in "
        f"{reached.n_faults} records",
        hint="name the field that holds the text of the corpus with --corpus-field",
    )


def save_state(out: Path, key: str, found: Counts, reached: Reached) -> None:
    """Write the state, whole or not at all."""
    about = {"key": key, "reached": dataclasses.asdict(reached)}
    replace_bytes(out / STATE_NAME, counts_bytes(found, about))


def load_state(out: Path, key: str) -> tuple[Counts, Reached]:
    """Counts and place of the search of the same key.

    A state that is damaged or belongs to another search counts as none.
    """
    try:
        with open(out / STATE_NAME, "rb") as file:
            found, about = read_counts(file, STATE_NAME)
        if about["key"] == key:
            return found, read_result(Reached, about["reached"], STATE_NAME)
    except (OSError, KeyError, InputError):
        pass
    return Counts(), Reached()
