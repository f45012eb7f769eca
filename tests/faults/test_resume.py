"""One law for all that a run goes on from, whatever killed it or damaged its files.

What was kept is there and is not made again, nothing torn is served, and the end is
that of a run which nothing disturbed. A run is a function of a `Process`, which it
tells of each part before that is made; it returns what it gives at its end.
"""

import contextlib
import dataclasses
import functools
import io
import json
import re
import shutil
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tokenizers import Tokenizer, models, pre_tokenizers

from eval.study import Records
from jaxcontam.data.journal import Journal
from jaxcontam.overlap import search
from jaxcontam.overlap.flags import Overlap
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
from train import population as population_command
from train import tokens
from train.data import open_corpus
from train.population import ModelResult
from train.report import StepLog, metric_rows

pytestmark = pytest.mark.unoptimised


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
    with StepLog(process.folder / "metrics.jsonl", last_step=done) as log:
        assert (log.last_row or {"step": 0})["step"] == done
        for before in range(done, 20, 4):
            process.make(before)
            for steps in ((before + 1, before + 2, before + 3), (before + 4,)):
                numbers = {"loss": np.float32([1 / n for n in steps])}
                log.append(metric_rows(steps[-1], numbers, 32, seconds=0.0))
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
        result = population_command.finished_result(job, seed)
        if result is None:
            process.make(seed)
            fields = {field.name: 1 for field in dataclasses.fields(ModelResult)}
            result = ModelResult(**fields | {"seed": seed, "rows": ()})
            with mock.patch.object(population_command, "_write_manifest"):
                model = SimpleNamespace(seed=seed)
                population_command.write_model(job, model, result, None)
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


@functools.cache
def undisturbed(name):
    """What a run gives, and its parts in their order."""
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder))
        return STORES[name].run(process), process.made


class Resumption(RuleBasedStateMachine):
    """Starts of one run, between which its files are damaged."""

    def __init__(self, name):
        super().__init__()
        self.store = STORES[name]
        self.result, self.parts = undisturbed(name)
        self.folder = Path(tempfile.mkdtemp())
        self.held, self.places, self.processes = [], {}, []
        self.is_flipped = False

    def teardown(self):
        """It goes on to its end, and once more finds all there."""
        for _ in range(2):
            self.start(10**9)
        shutil.rmtree(self.folder)

    @rule(lasts=st.integers(0, 4))
    def start(self, lasts):
        process = Process(self.folder, lasts, appends=self.store.appends)
        self.processes.append(process)
        try:
            with contextlib.redirect_stderr(io.StringIO()) as said:
                result = self.store.run(process)
        except KilledError:
            # What a process does on its way out is not done by one that is killed.
            restore(self.folder, process.disk)
            result, kept = None, list(process.places)
            assert len(process.made) - len(kept) <= self.store.n_waiting
        else:
            assert result == self.result
            process.look()
        if not self.is_flipped:
            assert "is damaged" not in said.getvalue(), "a torn end is no damage"
        again = [part for part in process.made if part in self.held]
        assert again == [], "made again, though it was kept"
        assert [part for part in process.made if part not in self.parts] == []
        if result is not None:
            kept = self.parts
            if self.store.behind:
                self.held, self.places, process.places = [], {}, {}
        for part in kept:
            # What is nowhere in particular may be in any file.
            found = process.places.get(part, [] if part in self.held else [("", 0, 0)])
            self.places[part] = self.places.get(part, []) + found
        self.held += [part for part in kept if part not in self.held]

    def files(self):
        """Names, in an order that is the same in each replay."""
        data = {name: data for name, (data, _) in disk_of(self.folder).items() if data}
        return sorted(data, key=lambda name: (len(data[name]), data[name]))

    def has_files(self):
        return bool(self.files())

    @precondition(has_files)
    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def cut(self, which, share):
        path, at = self.place(which, share)
        data = path.read_bytes()
        path.write_bytes(data[:at])
        if at < len(data):
            self.lose(path, lambda first, end: end > at)

    @precondition(has_files)
    @rule(which=st.integers(0, 9), tail=st.binary(min_size=1, max_size=20))
    def end_in_half_a_record(self, which, tail):
        if self.store.appends:
            path, _ = self.place(which, 1)
            path.write_bytes(path.read_bytes() + tail.replace(b"\n", b"\0"))

    @precondition(lambda self: self.store.notices and self.has_files())
    @rule(which=st.integers(0, 9), share=st.floats(0, 1), bit=st.integers(0, 7))
    def flip(self, which, share, bit):
        path, at = self.place(which, share)
        data = bytearray(path.read_bytes())
        at = min(at, len(data) - 1)
        data[at] ^= 1 << bit
        self.is_flipped = True
        path.write_bytes(data)
        # A line whose end is no longer one takes the next with it.
        self.lose(path, lambda first, end: first <= at + 1 and at < end)

    @precondition(lambda self: not self.store.spares and self.has_files())
    @rule(which=st.integers(0, 9))
    def delete(self, which):
        path, _ = self.place(which, 0)
        path.unlink()
        self.lose(path, lambda first, end: True)

    @precondition(lambda self: self.store.partial is not None and self.has_files())
    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def leave_a_part_of_a_file(self, which, share):
        path, at = self.place(which, share)
        name = str(path.relative_to(self.folder))
        partial = self.folder / re.sub(*self.store.partial, name)
        if not partial.exists() and partial != path:
            partial.parent.mkdir(exist_ok=True)
            partial.write_bytes(path.read_bytes()[:at])

    def place(self, which, share):
        """A file, and a place in it."""
        names = self.files()
        name, first = names[which % len(names)], 0
        if self.store.spares:
            name = "metrics.jsonl"
            ends = [one[2] for part in self.held for one in self.places[part]]
            first = max(ends, default=0)
        size = (self.folder / name).stat().st_size
        return self.folder / name, first + round(share * (size - first))

    def lose(self, path, is_hit):
        """Parts that may be made again now."""
        disk, name = disk_of(self.folder), str(path.relative_to(self.folder))
        hit = [
            part
            for part in self.held
            for file, first, end in self.places[part]
            if (is_hit(first, end) if file == name else file not in disk)
        ]
        if hit and self.store.behind:
            hit = self.parts[min(map(self.parts.index, hit)) :]
        self.held = [part for part in self.held if part not in hit]


def restore(folder, disk):
    """Files as they were."""
    for name in disk_of(folder).keys() - disk.keys():
        (folder / name).unlink()
    for name, (data, _) in disk.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != data:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("name", STORES)
def test_a_run_that_is_disturbed_ends_as_one_that_was_not(name):
    run_state_machine_as_test(
        lambda: Resumption(name),
        settings=settings(
            max_examples=STORES[name].n_examples,
            stateful_step_count=8,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
