"""Train a small model from scratch with test sets planted in its data.

Question: what does a model look like that saw a known test set a known number of
times? Command: `python -m train.pretrain --corpus DOCS.jsonl --canaries SET.jsonl=10`.
Hardware: any; the quickstart's 340,000 tokens take half a minute on 2 cores.
"""

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from jaxcontam import __version__
from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_seed
from jaxcontam.commands.progress import progress_bar
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.data.manifest import Manifest, PlantedSet, read_manifest, write_manifest
from jaxcontam.data.templates import typed_newlines
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.report.document import make_folder
from train.allocator import keep_freed_memory
from train.loop import train_decoder
from train.presets import PRESETS, Preset
from train.sources import read_documents
from train.stream import (
    Canary,
    Stream,
    build_stream,
    steps_of_copy,
    training_rows,
)
from train.tokenizer import BOS, train_tokenizer

MODEL_DIR = "model"
SETS_DIR = "sets"
MANIFEST_NAME = "manifest.json"
STREAM_NAME = "stream.npy"
METRICS_NAME = "metrics.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSet:
    """A benchmark and how often to plant it."""

    benchmark: Benchmark
    copies: int
    shuffled: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pretrain:
    """Train a model from scratch with test sets planted in its data."""

    corpus: tuple[Path, ...]
    """Background: .jsonl files with a field `text`, or .txt files, or folders."""
    canaries: tuple[str, ...] = ()
    """Test sets to plant, each as FILE=COPIES; FILE=0 keeps a control beside them."""
    preset: str = "tiny"
    """Shape of the model."""
    background_tokens: int | None = None
    """Take random documents up to so many tokens (default: all)."""
    limit: int | None = None
    """Plant the first so many examples of each set."""
    separator: str = "\n"
    """Text after each example."""
    max_example_tokens: int | None = None
    """Longer examples are cut, separator included."""
    seed: int = 0
    """Seeds weights, stream and batches."""
    out: Path = Path("runs/pretrain")
    """Folder for the model, the sets and manifest.json."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)

    def run(self) -> Manifest:
        """Read, train, write; prints where the model stands."""
        sets = [self._planned(word) for word in self.canaries]
        documents = read_documents(self.corpus)
        with progress_bar("training") as progress:
            manifest = pretrain(
                documents,
                sets,
                PRESETS[self.preset],
                out=self.out,
                seed=self.seed,
                background_tokens=self.background_tokens,
                separator=typed_newlines(self.separator),
                max_example_tokens=self.max_example_tokens,
                progress=progress,
            )
        print(f"model: {self.out / MODEL_DIR}")
        return manifest

    def _planned(self, word: str) -> PlannedSet:
        path, _, copies = word.rpartition("=")
        if not path or not copies.isdigit():
            raise InputError(
                f"--canaries {word!r}: not FILE=COPIES", hint="such as boolq.jsonl=10"
            )
        return PlannedSet(
            benchmark=load_benchmark(path, limit=self.limit), copies=int(copies)
        )


def pretrain(
    documents: Sequence[str],
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    out: Path,
    seed: int,
    background_tokens: int | None = None,
    separator: str = "\n",
    max_example_tokens: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Tokenise, plant, train and write a model directory with its manifest.

    A finished model in `out` that the same code made of the same inputs is not trained
    again, where git can tell the code.

    Args:
        documents: Background texts.
        sets: Test sets and controls.
        preset: Model and batch.
        out: Folder; `model/`, `sets/`, `manifest.json`, `stream.npy` and
            `metrics.jsonl` are written there.
        seed: The same seed gives the same weights.
        background_tokens: Random documents up to so many ids; None takes all.
        separator: Text after each example.
        max_example_tokens: Cut of an example.
        progress: Called with targets done and targets in all.

    Raises:
        InputError: If two sets share a name, or there is too little text.
    """
    names = [planned.benchmark.name for planned in sets]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two sets are named {min(repeated)!r}", hint="rename a file")
    if not documents:
        raise InputError("the corpus has no documents")
    for planned in sets:
        for number, text in enumerate(planned.benchmark.texts, 1):
            if "\n" in text or not text.strip():
                raise InputError(
                    f"{planned.benchmark.name}: example {number} is not one line",
                    hint="plant one-line examples, such as the lines of a .jsonl",
                )
    make_folder(out)
    tokenizer = train_tokenizer(documents, preset.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    encoded = [
        encode_examples(
            plain,
            planned.benchmark.texts,
            separator=separator,
            max_example_tokens=max_example_tokens,
        )
        for planned in sets
    ]
    prefix_id = plain.token_to_id(BOS)
    assert prefix_id is not None, "the trainer was given BOS as a special token"
    stream = build_stream(
        _background(plain, documents, background_tokens, seed),
        [
            Canary(
                name=planned.benchmark.name,
                encoded=ids,
                copies=planned.copies,
                shuffled=planned.shuffled,
            )
            for planned, ids in zip(sets, encoded, strict=True)
        ],
        prefix_id=prefix_id,
        seed=seed,
    )
    rows, starts = training_rows(stream.ids, preset.decoder.context, seed=seed)
    if len(rows) < preset.batch_rows:
        raise InputError(
            f"the corpus gives {len(stream.ids)} tokens, too few for one step of "
            f"{preset.batch_rows} x {preset.decoder.context}"
        )
    manifest = Manifest(
        jaxcontam=__version__,
        code=code_version(),
        seed=seed,
        preset=preset.name,
        corpus_digest=corpus_digest(documents),
        separator=separator,
        max_example_tokens=max_example_tokens,
        context=preset.decoder.context,
        n_tokens=len(stream.ids),
        n_canary_tokens=stream.n_canary_ids,
        n_steps=len(rows) // preset.batch_rows,
        finished=False,
        stream=STREAM_NAME,
        sets=tuple(
            _planted(planned, ids, stream, starts, preset)
            for planned, ids in zip(sets, encoded, strict=True)
        ),
    )
    finished = dataclasses.replace(manifest, finished=True)
    if manifest.code is not None and finished == _earlier_manifest(out):
        print(f"reusing the finished model in {out}", file=sys.stderr)
        return finished
    write_manifest(manifest, out / MANIFEST_NAME)
    np.save(out / STREAM_NAME, stream.ids)
    (out / SETS_DIR).mkdir(exist_ok=True)
    for planned, row in zip(sets, manifest.sets, strict=True):
        text = "".join(text + "\n" for text in planned.benchmark.texts)
        (out / row.file).write_text(text, encoding="utf-8")
    decoder, losses = train_decoder(preset, rows, seed=seed, progress=progress)
    # Whole or not at all: an older model stands until the new one is complete.
    partial = out / f"{MODEL_DIR}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    save_checkpoint(decoder, tokenizer, partial)
    shutil.rmtree(out / MODEL_DIR, ignore_errors=True)
    partial.rename(out / MODEL_DIR)
    with (out / METRICS_NAME).open("w") as metrics:
        for step, loss in enumerate(losses.tolist(), 1):
            metrics.write(json.dumps({"step": step, "loss": loss}) + "\n")
    write_manifest(finished, out / MANIFEST_NAME)
    return finished


def corpus_digest(documents: Sequence[str]) -> str:
    """SHA-256 over the documents' digests in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(hashlib.sha256(document.encode("utf-8")).digest())
    return f"sha256:{digest.hexdigest()}"


def code_version() -> str | None:
    """Git commit of this checkout, with what was edited since; None outside of one."""
    root = Path(__file__).resolve().parent.parent
    try:
        commit, edits = (
            subprocess.run(
                ["git", *words], cwd=root, capture_output=True, check=True
            ).stdout
            for words in (("rev-parse", "HEAD"), ("diff", "HEAD"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = commit.decode().strip()
    if edits:
        version += f"+{hashlib.sha256(edits).hexdigest()[:8]}"
    return version


def _earlier_manifest(out: Path) -> Manifest | None:
    """That of a finished model, if one stands here."""
    if not (out / MODEL_DIR).is_dir():
        return None
    try:
        return read_manifest(out / MANIFEST_NAME)
    except InputError:
        return None


def _background(
    tokenizer, documents: Sequence[str], budget: int | None, seed: int
) -> list[np.ndarray]:
    """Documents in random order, up to the budget of ids."""
    rng = np.random.default_rng([seed, 0])
    chosen, total = [], 0
    for index in rng.permutation(len(documents)):
        ids = tokenizer.encode(documents[index], add_special_tokens=False).ids
        chosen.append(np.array(ids, np.int32))
        total += len(ids)
        if budget is not None and total >= budget:
            break
    return chosen


def _planted(
    planned: PlannedSet,
    encoded: Encoded,
    stream: Stream,
    starts: np.ndarray,
    preset: Preset,
) -> PlantedSet:
    benchmark, n_tokens = planned.benchmark, int(encoded.lengths.sum())
    n_steps = len(starts) // preset.batch_rows
    steps = []
    for offset in stream.offsets[benchmark.name]:
        rows = steps_of_copy(
            offset,
            n_tokens,
            starts_R=starts,
            context=preset.decoder.context,
            n_ids_in_all=len(stream.ids),
        )
        seen = np.unique(rows // preset.batch_rows + 1)
        steps.append(tuple(seen[seen <= n_steps].tolist()))
    is_jsonl = all(text.lstrip().startswith("{") for text in benchmark.texts)
    return PlantedSet(
        name=benchmark.name,
        copies=planned.copies,
        shuffled=planned.shuffled,
        n_examples=len(benchmark),
        fingerprint=benchmark.fingerprint,
        content_digest=benchmark.content_digest,
        token_offsets=stream.offsets[benchmark.name],
        orders=stream.orders.get(benchmark.name, ()),
        steps=tuple(steps),
        n_tokens=n_tokens,
        file=f"{SETS_DIR}/{benchmark.name}{'.jsonl' if is_jsonl else '.txt'}",
    )


def main() -> int:
    """Command line of `python -m train.pretrain`."""
    keep_freed_memory()
    return run_command(
        lambda: parse(Pretrain, sys.argv[1:], prog="python -m train.pretrain").run(),
        name="train.pretrain",
    )


if __name__ == "__main__":
    sys.exit(main())
