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
from jaxcontam.data.encoding import encode_examples, plain_tokenizer
from jaxcontam.data.manifest import Manifest, read_manifest, write_manifest
from jaxcontam.data.templates import typed_newlines
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.report.document import make_folder
from train.allocator import keep_freed_memory
from train.sources import read_documents
from train.plan import PlannedSet, check_sets, planned_set
from train.planted import canary, planted_set, write_set
from train.presets import PRESETS, Preset
from train.loop import train_decoder
from train.stream import build_stream, stream_digest, training_rows
from train.tokenizer import BOS, train_tokenizer

MODEL_DIR = "model"
MANIFEST_NAME = "manifest.json"
STREAM_NAME = "stream.npy"
METRICS_NAME = "metrics.jsonl"


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
        sets = [planned_set(word, self.limit) for word in self.canaries]
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
    check_sets(sets)
    if not documents:
        raise InputError("the corpus has no documents")
    make_folder(out)
    tokenizer = train_tokenizer(documents, preset.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    encoded = [
        encode_examples(
            plain,
            planned.planted,
            separator=separator,
            max_example_tokens=max_example_tokens,
        )
        for planned in sets
    ]
    prefix_id = plain.token_to_id(BOS)
    assert prefix_id is not None, "the trainer was given BOS as a special token"
    stream = build_stream(
        _background(plain, documents, background_tokens, seed),
        [canary(planned, ids) for planned, ids in zip(sets, encoded, strict=True)],
        prefix_id=prefix_id,
        seed=seed,
    )
    context = preset.decoder.context
    n_rows = (len(stream.ids) - 1) // context
    rows, starts = training_rows(
        stream.ids,
        context,
        seed=seed,
        timed=stream.timed,
        n_trained=n_rows // preset.batch_rows * preset.batch_rows,
    )
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
        context=context,
        n_tokens=len(stream.ids),
        n_canary_tokens=stream.n_canary_ids,
        n_steps=len(rows) // preset.batch_rows,
        finished=False,
        stream=STREAM_NAME,
        stream_digest=stream_digest(stream.ids),
        sets=tuple(
            planted_set(
                planned,
                ids,
                stream,
                starts,
                context=context,
                batch_rows=preset.batch_rows,
                n_steps=len(rows) // preset.batch_rows,
            )
            for planned, ids in zip(sets, encoded, strict=True)
        ),
    )
    finished = dataclasses.replace(manifest, finished=True)
    if manifest.code is not None and finished == _earlier_manifest(out):
        print(f"reusing the finished model in {out}", file=sys.stderr)
        return finished
    write_manifest(manifest, out / MANIFEST_NAME)
    np.save(out / STREAM_NAME, stream.ids)
    for planned in sets:
        write_set(planned, out)
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


def main() -> int:
    """Command line of `python -m train.pretrain`."""
    keep_freed_memory()
    return run_command(
        lambda: parse(Pretrain, sys.argv[1:], prog="python -m train.pretrain").run(),
        name="train.pretrain",
    )


if __name__ == "__main__":
    sys.exit(main())
