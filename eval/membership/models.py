"""Models of the studies: trained once, each in its own folder."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from eval.planted import trained
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.manifest import Manifest, read_manifest
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import Checkpoint, load_checkpoint
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name
from train.earlier import MANIFEST_NAME, MODEL_DIR, code_version
from train.plan import PlannedSet
from train.prepare import RunOptions
from train.presets import Preset, preset_to_json
from train.pretrain import read_start
from train.sources import corpus_digest

_JOB_NAME = "job.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model to train.

    Attributes:
        folder: Where it is written.
        documents: Background; random ones are taken up to `background_tokens`.
        sets: Planted texts.
        preset: Shape, batch, learning rate.
        seed: Seeds weights, stream and batches.
        background_tokens: None takes all documents.
        start: Folder of the job to go on from, or None.
    """

    folder: Path
    documents: Sequence[str]
    sets: Sequence[PlannedSet]
    preset: Preset
    seed: int
    background_tokens: int | None = None
    start: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model and the record of what it was trained on."""

    checkpoint: Checkpoint
    manifest: Manifest


def trained_model(job: Job, *, any_code: bool) -> Model:
    """Train a model, or take the finished one of the same job.

    Args:
        job: What to train.
        any_code: Take one that other code trained, too.

    Raises:
        KeyboardInterrupt: If training was asked to stop; its checkpoint is written.
    """
    digest = _digest(job)
    if not _is_finished(job.folder, digest, any_code=any_code):
        make_folder(job.folder)
        start = None if job.start is None else read_start(str(job.start / MODEL_DIR))
        trained(
            job.documents,
            job.sets,
            job.preset,
            out=job.folder,
            seed=job.seed,
            options=RunOptions(
                background_tokens=job.background_tokens,
                # Members and non-members are drawn from one pool at random, so what
                # the background holds of them it holds of both alike.
                allow_overlap=True,
            ),
            start=start,
        )
        about = json.dumps({"job": digest}) + "\n"
        replace_bytes(job.folder / _JOB_NAME, about.encode())
    return Model(
        load_checkpoint(str(job.folder / MODEL_DIR)),
        read_manifest(job.folder / MANIFEST_NAME),
    )


def planted(name: str, texts: Sequence[str], copies: int) -> PlannedSet:
    """Texts that each stand at a random place of their own, so many times."""
    return PlannedSet(
        benchmark=Benchmark(name, tuple(texts), (None,) * len(texts)),
        copies=copies,
        layout="spread",
    )


def _is_finished(folder: Path, digest: str, *, any_code: bool) -> bool:
    try:
        about = json.loads((folder / _JOB_NAME).read_text(encoding="utf-8"))
        manifest = read_manifest(folder / MANIFEST_NAME)
    except (OSError, ValueError, InputError):
        return False
    code = code_version()
    is_same_code = any_code or (code is not None and manifest.code == code)
    return manifest.finished and about.get("job") == digest and is_same_code


def _digest(job: Job) -> str:
    """Digest of all that the weights follow from but the code."""
    start = None
    if job.start is not None:
        start = json.loads((job.start / _JOB_NAME).read_text(encoding="utf-8"))["job"]
    inputs = [
        corpus_digest(job.documents),
        [(one.name, one.copies, one.layout, one.planted) for one in job.sets],
        preset_to_json(job.preset),
        job.seed,
        job.background_tokens,
        start,
        cpu_name(),
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
