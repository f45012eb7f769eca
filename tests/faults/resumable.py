"""Stores that runs go on from, each as a small run of a few parts.

A run is a function of a `Process`, which it tells of each part before that is made; it
returns what it gives at its end.
"""

import dataclasses
import functools
import json
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from eval.study import Records
from jaxcontam.data.journal import Journal
from jaxcontam.overlap import search
from jaxcontam.overlap.command import Overlap
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.store import ScoreStore
from tests.support.api_transport import PATH, Server, bodies, opened, texts
from tests.support.store_process import (
    BATCH_TOKENS,
    CONTEXT,
    IDENTITY,
    TABLE,
    drawn_sequences,
)
from train import population_job, tokens
from train.population_job import ModelResult
from train.sources import open_corpus
from train.step_log import MetricsLog


class KilledError(BaseException):
    """Stands for a signal that no process outlives."""


class Process:
    """One start of a run, killed when it is to make one part more than it may.

    Attributes:
        made: Parts that it began to make.
        places: Part -> (file, first byte, end) of what was kept of it.
        disk: Files of the folder at the last moment of a possible kill.
        journal: Lives as long, and with it its claim of a file.
    """

    def __init__(self, folder, lasts=10**9, *, appends=True):
        self.folder, self._lasts, self._appends = folder, lasts, appends
        self.made: list[Any] = []
        self.journal: Journal | None = None
        self.places: dict[Any, list[tuple[str, int, float]]] = {}
        self.disk = self._looked_at = disk_of(folder)

    def make(self, part):
        """A part is made now, unless the process is killed before."""
        self.look()
        self.may_die()
        self.made.append(part)

    def may_die(self):
        """A moment at which a kill finds what is in the folder."""
        self.disk = disk_of(self.folder)
        if self._lasts == 0:
            raise KilledError
        self._lasts -= 1

    def look(self, *_):
        """What is new in the folder is that of the first part without a place."""
        found, new = disk_of(self.folder), []
        for name, (data, stamp) in found.items():
            before, stamp_before = self._looked_at.get(name, (b"", None))
            if stamp != stamp_before:
                pairs = enumerate(zip(before, data, strict=False))
                same = next((i for i, (a, b) in pairs if a != b), len(before))
                first, end = (same, len(data)) if self._appends else (0, 10**9)
                new.append((name, first, end))
        waiting = [part for part in self.made if part not in self.places]
        if new and waiting:
            self.places[waiting[0]] = new
        self._looked_at = found


def disk_of(folder):
    """Name -> content of the files below a folder, and when it was written."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not name.startswith("inputs") and path.is_file():
            stat = path.stat()
            found[name] = path.read_bytes(), (stat.st_mtime_ns, stat.st_ino)
    return found


@dataclasses.dataclass(frozen=True)
class Store:
    """How a run keeps its parts, and what it promises of them.

    Attributes:
        run: Goes on from what is in the process's folder.
        appends: Parts follow each other in files; else a change of a file may cost all
            parts in it.
        notices: A flipped bit costs parts but changes no result.
        behind: A lost part costs those after it, and any file of a finished run all.
        n_waiting: Parts that are made while an earlier one is not kept yet.
        spares: Only what no finished part has is torn; a kill does no more.
        partial: Pattern in a file's name and what is there in the name of the part
            that a kill leaves beside it.
    """

    run: Callable[[Process], Any]
    appends: bool = True
    notices: bool = True
    behind: bool = False
    n_waiting: int = 0
    spares: bool = False
    partial: tuple[str, str] | None = None
    n_examples: int = 20


def journal(process):
    """Values of any size."""
    kept = Journal(process.folder / "j.jsonl")
    for n in range(6):
        if f"key {n}" not in kept:
            process.make(n)
            kept.add(f"key {n}", {"texts": ["é\n" * n**2, ""], "n": n})
            process.look()
    return [kept[f"key {n}"] for n in range(6)]


def answers(process):
    """Of a server that is paid for each."""

    def answer(prompt, _):
        process.make(prompt)

    process.journal = kept = Journal(process.folder / "requests.jsonl")
    # The certificates that a client reads take longer than all else.
    with (
        mock.patch.object(ssl, "create_default_context"),
        opened(Server(answer), kept, concurrency=1) as client,
    ):
        return texts(client.post_all(PATH, bodies(6)))


SEQUENCES = [*drawn_sequences(24), np.array([3], np.int32)]


def scores(process):
    """Sums, then all scores of the same sequences, in batches."""

    def forward(inputs_BS, targets_BS):
        process.make((kept, inputs_BS.tobytes()))
        logprobs_BS = TABLE[inputs_BS, targets_BS]
        return logprobs_BS, 2 * logprobs_BS, logprobs_BS**2, logprobs_BS / 2

    identity = dataclasses.replace(IDENTITY, moments=True)
    scorer = Scorer(
        forward,
        context=CONTEXT,
        batch_tokens=8 * BATCH_TOKENS,
        store=ScoreStore(process.folder, identity),
    )
    kept = "sums"
    sums = scorer.sums(SEQUENCES, process.look)
    kept = "tokens"
    rows = scorer.tokens(SEQUENCES, process.look)
    return [found.tobytes() for found in (sums.loglik, sums.first, *rows)]


def metrics(process):
    """A log that goes on at the step of a checkpoint."""
    checkpoint, new = process.folder / "step", process.folder / "step.new"
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    with MetricsLog(process.folder / "metrics.jsonl", last_step=done) as log:
        assert len(log.rows) == done
        for before in range(done, 20, 4):
            process.make(before)
            for steps in ((before + 1, before + 2, before + 3), (before + 4,)):
                rates, losses = [1e-3 * n for n in steps], [1 / n for n in steps]
                about = {"rates": rates, "tokens_a_step": 32, "seconds": 0.0}
                log.append(steps[-1], losses, **about)
                process.may_die()
            new.write_text(str(before + 4))
            new.replace(checkpoint)
            process.look()
    return (process.folder / "metrics.jsonl").read_bytes()


def records(process):
    """Finished parts of a study."""
    kept, found = Records(process.folder, code="one"), []
    for n in range(4):
        if (fields := kept.read(f"model-{n}", n, "a")) is None:
            process.make(n)
            fields = {"rows": [n] * n, "cpu_seconds": 1.0}
            kept.write(f"model-{n}", fields, n, "a")
            process.look()
        found.append(fields)
    return found


def population(process):
    """Folders of models."""
    job = SimpleNamespace(
        folder=lambda seed: process.folder / f"model-{seed}", key=str, weights=False
    )
    found = []
    for seed in range(3):
        result = population_job.finished_result(job, seed)
        if result is None:
            process.make(seed)
            fields = {field.name: 1 for field in dataclasses.fields(ModelResult)}
            result = ModelResult(**fields | {"seed": seed, "rows": ()})
            no_manifest = dict.fromkeys(("_manifest", "write_manifest"), mock.DEFAULT)
            with mock.patch.multiple(population_job, **no_manifest):
                model = SimpleNamespace(seed=seed)
                population_job.write_model(job, model, result, None)
            process.look()
        found.append(result)
    return found


def corpus_in(process):
    """A folder of documents, once."""
    docs = process.folder / "inputs" / "docs"
    if not docs.exists():
        docs.mkdir(parents=True)
        lines = [f"words {' '.join(f'w{i * j}' for j in range(30))}" for i in range(24)]
        rows = [json.dumps({"text": line}) + "\n" for line in lines]
        (docs / "a.jsonl").write_text("".join(rows[:18]) + "{\n")
        (docs / "b.jsonl").write_text("".join(rows[18:]))
        # Behind texts they are counted, where there was none they are hopeless.
        (docs / "c.jsonl").write_text("{}\n" * 9)
        (docs.parent / "bench.txt").write_text("\n".join([*lines[::5], "?!"]) + "\n")
    return docs


def overlap(process):
    """Counts of a search, and the place in the corpus where it stands."""
    docs, out = corpus_in(process), process.folder / "out"
    add = search.Search.add

    def made(self, documents):
        process.look()
        process.make(tuple((one.file, one.line) for one in documents[:1]))
        return add(self, documents)

    with (
        mock.patch.object(search.Search, "add", made),
        mock.patch.multiple(search, BATCH=500, _HOPELESS=5, _SAVE_SECONDS=0.0),
    ):
        Overlap(corpus=docs, benchmark=str(docs.parent / "bench.txt"), out=out).run()
    found = [(out / name).read_text() for name in ("overlap.json", "found.txt")]
    return [text.replace(str(process.folder), "") for text in found]


@functools.cache
def words_tokenizer():
    """One that needs no training."""
    vocabulary = {"?": 0} | {f"w{i}": i + 1 for i in range(700)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def token_blocks(process):
    """Ids of a corpus, in blocks that become a cache."""
    corpus, encode = open_corpus([corpus_in(process) / "b.jsonl"]), tokens.encode

    def made(found, *rest):
        process.make(tuple(found))
        return encode(found, *rest)

    with mock.patch.multiple(tokens, encode=made, _BATCH_TEXTS=2):
        words = words_tokenizer()
        cache = tokens.token_cache(corpus, words, process.folder, block_ids=1)
    return cache.digest, cache.corpus_digest, cache.ids.tolist(), cache.bounds.tolist()


PARTIAL = "$", ".h.1.partial"
STORES = {
    "journal": Store(journal),
    "answers of a server": Store(answers),
    "scores": Store(scores, n_waiting=1),
    "metrics": Store(metrics, spares=True, notices=False, n_waiting=1),
    "records of a study": Store(records, appends=False, notices=False, partial=PARTIAL),
    "models of a population": Store(
        population, appends=False, notices=False, partial=("/", ".partial/")
    ),
    "search of a corpus": Store(
        overlap, appends=False, behind=True, partial=PARTIAL, n_examples=10
    ),
    "ids of a corpus": Store(
        token_blocks, appends=False, behind=True, partial=(r"\.npz", ".partial")
    ),
}
