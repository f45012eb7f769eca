"""Overlap beside datatrove's own filter and readers: hits and MB/s a core.

Question: 100 questions of each kind stand in the documents of Python's documentation,
as they are, changed or as a frame alone. Which documents does each filter drop, and how
fast does it read? How fast are the readers of files?
Command: `python -m eval.overlap`, after `pip install spacy regex 'xxhash<4'`
(without them, datatrove's filter is left out). Hardware: 2 CPU cores, two
minutes. Headline: docs/how_to/overlap.md.

`NGramsDecontFilter` drops documents with 12 words in a row of an example. Its own
indexer asks for `lighteval`: the index is written here, by its own tokens and hashes.
"""

import dataclasses
import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.python_docs import read_python_docs
from eval.study import Clock, Grid, StudyFlags, finish_study, run_study
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.corpus import Document, read_documents
from jaxcontam.overlap.counts import Counts
from jaxcontam.overlap.index import ExampleIndex, example_index, forms_of
from jaxcontam.overlap.occurrences import found_in_each
from jaxcontam.reports.report_files import make_folder

FRAME = (
    "Which function or class of the standard library of Python does the following "
    "sentence of its documentation describe? Give its name and nothing else."
)
KINDS = (
    "verbatim",
    "case and marks",
    "no frame",
    "one word in 9 new",
    "clean",
    "quote",
)
_FRAME_ALONE, _NOTHING = "frame alone", "nothing"
_NO_HIT = "a document of words that no question has in a row " * 80


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overlap(StudyFlags):
    """Compare hits and speed with datatrove's filter and readers."""

    questions: int = 100
    """Questions of each kind."""
    out: Path = Path("runs/eval-overlap")
    """Folder for numbers and tables."""

    positive = ("questions",)

    def run(self) -> dict[str, Any]:
        """Measure, write, print."""
        clock, n = Clock.start(), 5 if self.tiny else self.questions
        make_folder(self.out)
        texts, documents, kinds = framed_questions(n, self.seed)
        rounds = 1 if self.tiny else 3
        index = _index(texts)
        filters = {
            "jaxcontam": partial(_drops, index),
            "datatrove": _their_filter(texts, self.out / "datatrove-index"),
        }
        dropped, rates = {}, {}
        for name, drops in filters.items():
            if drops is not None:
                dropped[name] = drops(documents)
                rates[name] = _megabytes_a_second(drops, documents, rounds)
        readers = _reader_rates(documents, rounds)
        hits = {
            (kind, name): f"{sum(_of_kind(kind, kinds, found))} of {kinds.count(kind)}"
            for kind in (*KINDS[:4], _FRAME_ALONE, _NOTHING)
            for name, found in dropped.items()
        }
        speed = {("drop", name): f"{rate:.1f}" for name, rate in rates.items()}
        for name, some in (("count", documents), ("count, no hits", [_NO_HIT] * 500)):
            rate = _megabytes_a_second(partial(_counts, index), some, rounds)
            speed[name, "jaxcontam"] = f"{rate:.1f}"
        speed |= {
            (f"read {name}", who): f"{rate:.1f}"
            for (name, who), rate in readers.items()
        }
        grids = [
            Grid.crossed("Documents dropped", "planted in them", hits),
            Grid.crossed("MB of text a second and core", "", speed),
        ]
        numbers = {
            "hits": {" / ".join(key): cell for key, cell in hits.items()},
            "megabytes_a_second": {
                " / ".join(key): cell for key, cell in speed.items()
            },
        }
        return finish_study("overlap", self, clock=clock, numbers=numbers, grids=grids)


def framed_questions(n: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Questions for a benchmark, and documents that hold some of them.

    Returns:
        Texts, n of each of `KINDS`, the last two planted nowhere; documents; what was
        planted first in each of these.
    """
    docs, rng = read_python_docs(), random.Random(seed)
    documents = list(docs.documents)
    bodies = [f"{q.sentence}? {q.answer}" for q in rng.sample(docs.questions, 6 * n)]
    quoted = [text.split() for text in documents if len(text.split()) > 40]
    for i in range(5 * n, 6 * n):
        bodies[i] = f"{' '.join(rng.choice(quoted)[10:30])}. {bodies[i]}"
    texts = [f"{FRAME} {body}" for body in bodies]
    planted = [FRAME, *texts[:n]]
    planted += [text.upper().replace(" ", " - ") for text in texts[n : 2 * n]]
    planted += bodies[2 * n : 3 * n]
    for text in texts[3 * n : 4 * n]:
        words = text.split()
        words[4::9] = ["another"] * len(words[4::9])
        planted.append(" ".join(words))
    kinds = [_NOTHING] * len(documents)
    for number, text in enumerate(planted):
        at = rng.randrange(len(documents))
        documents[at] = f"{documents[at]}\n{text}\n"
        if kinds[at] == _NOTHING:
            kinds[at] = KINDS[(number - 1) // n] if number else _FRAME_ALONE
    return texts, documents, kinds


def _of_kind(kind: str, kinds: Sequence[str], found: Sequence[bool]) -> list[bool]:
    return [hit for own, hit in zip(kinds, found, strict=True) if own == kind]


_Filter = Callable[[Sequence[str]], list[bool]]


def _index(texts: Sequence[str]) -> ExampleIndex:
    benchmark = Benchmark("questions", tuple(texts), (None,) * len(texts))
    return example_index(forms_of(benchmark, is_chosen=True))


def _counts(index: ExampleIndex, documents: Sequence[str]) -> Counts:
    """Count as `FindExamples` and the command do."""
    return index.find(Document(text, line=i) for i, text in enumerate(documents, 1))


def _drops(index: ExampleIndex, documents: Sequence[str]) -> list[bool]:
    """True for documents that `DropExamples` drops."""
    numbered = [Document(text, line=i) for i, text in enumerate(documents, 1)]
    return [bool(found) for found in found_in_each(index, numbered)]


def _their_filter(texts: Sequence[str], folder: Path) -> _Filter | None:
    """True for documents that `NGramsDecontFilter` drops; its index is in a folder."""
    try:
        from datatrove.data import Document as TroveDocument
        from datatrove.pipeline.decont.n_grams import NGramsDecontFilter
        from datatrove.utils.text import ngrams, simplify_text

        make_folder(folder)
        theirs = NGramsDecontFilter(str(folder))
        hashed: Callable[[Any], int] = theirs.hash_func
        hashes = set()
        for text in texts:
            plain = simplify_text(text, theirs.config.norm_config)
            words = theirs.tokenizer.word_tokenize(plain)
            grams = ngrams(words, theirs.config.n_grams)
            hashes |= {hashed(" ".join(gram)) for gram in grams}
    except ImportError as e:
        print(f"datatrove's filter is left out: {e}", file=sys.stderr)
        return None
    array = np.array(sorted(hashes), theirs.config.hash_config.np_descr)
    array.tofile(folder / "questions.index.hashes")

    def drops(documents: Sequence[str]) -> list[bool]:
        return [
            theirs.filter(TroveDocument(text=text, id=str(i))) is not True
            for i, text in enumerate(documents)
        ]

    return drops


def _megabytes_a_second(
    work: Callable[[Sequence[str]], object], documents: Sequence[str], rounds: int
) -> float:
    """The fastest of some rounds, by CPU time."""
    seconds = []
    for _ in range(rounds):
        begin = time.process_time()
        work(documents)
        seconds.append(time.process_time() - begin)
    return sum(map(len, documents)) / 1e6 / min(seconds)


def _reader_rates(
    documents: Sequence[str], rounds: int
) -> dict[tuple[str, str], float]:
    """MB/s of each kind of file, by our readers and datatrove's."""
    import pyarrow
    import pyarrow.parquet
    from datatrove.pipeline.readers import JsonlReader, ParquetReader, WarcReader
    from loguru import logger

    logger.remove()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    rates = {}
    readers = {
        "jsonl": JsonlReader,
        "jsonl.gz": JsonlReader,
        "parquet": ParquetReader,
        "warc.gz": WarcReader,
    }
    with tempfile.TemporaryDirectory() as folder:
        made = {name: Path(folder) / f"docs.{name}" for name in readers}
        made["jsonl"].write_bytes(lines)
        made["jsonl.gz"].write_bytes(gzip.compress(lines))
        table = pyarrow.table({"text": list(documents)})
        pyarrow.parquet.write_table(table, made["parquet"])
        made["warc.gz"].write_bytes(b"".join(map(_warc_page, documents)))
        for name, path in made.items():
            ours = partial(read_documents, path, text_field="text")
            theirs = readers[name](folder, glob_pattern=path.name).run
            for who, read in (("jaxcontam", ours), ("datatrove", theirs)):
                rates[name, who] = _megabytes_a_second(
                    lambda _, read=read: sum(1 for _ in read()), documents, rounds
                )
    return rates


def _warc_page(text: str) -> bytes:
    """A page of a crawl: datatrove hands on its HTML, `overlap` its text."""
    html = "".join(f"<p>{line}</p>\n" for line in text.replace("<", "").splitlines())
    body = f"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<body>{html}</body>"
    head = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:x>\r\n"
        "WARC-Target-URI: http://x/\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        "WARC-Identified-Payload-Type: text/html\r\n"
        "Content-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(body.encode())}\r\n\r\n"
    )
    return gzip.compress(f"{head}{body}\r\n\r\n".encode())


if __name__ == "__main__":
    sys.exit(run_study("overlap", Overlap))
