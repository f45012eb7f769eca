"""A training run from texts to a model: plan, stream, steps, model, manifest.

What a run follows from stands in its manifest before the first step. The same inputs
again go on from the last checkpoint, or reuse the model that is there.
"""

import contextlib
import dataclasses
import fcntl
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from jaxcontam.data.manifest import Manifest, write_manifest
from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.report.document import make_folder
from train.audit_log import AUDITS_NAME, audit_steps
from train.audits import AuditPlan, plan_audit
from train.checkpoints import (
    CHECKPOINTS_DIR,
    Checkpoints,
    kept_every,
    saved_steps,
)
from train.earlier import MANIFEST_NAME, MODEL_DIR, earlier_manifest
from train.export import INIT_CONFIG_NAME, TOKENIZER_DIR, write_model
from train.loop import Trained, Watch, check_rows, train, training_mesh
from train.page import write_training_page
from train.plan import PlannedSet, check_sets
from train.planted import write_set
from train.prepare import STREAM_NAME, Prepared, RunOptions, Start, prepare, searched
from train.presets import Preset
from train.rows import row_batches
from train.run_log import RunLog, run_progress
from train.signals import StopRequest, stop_request
from train.sources import Corpus
from train.step_log import read_rows

TENSORBOARD_DIR = "tensorboard"
LOCK_NAME = "run.lock"


def pretrain(
    corpus: Corpus | Sequence[str],
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    out: Path,
    seed: int,
    options: RunOptions | None = None,
    start: Start | None = None,
    tokenizer: Any = None,
) -> Manifest:
    """Tokenise, plant, train and write a model directory with its manifest.

    A finished model in `out` that the same code made of the same inputs is not trained
    again, where git can tell the code. An unfinished run of the same inputs goes on
    from its last checkpoint.

    Args:
        corpus: Background: files, or texts in memory.
        sets: Test sets and controls.
        preset: Model and batch; that of `start` has its shape.
        out: Folder; `model/`, `sets/`, `manifest.json`, `stream.npy`, `metrics.jsonl`
            and `training.html` are written there.
        seed: The same seed gives the same weights.
        options: See `RunOptions`.
        start: Goes on with this model; None begins with random weights.
        tokenizer: A transformers fast tokenizer; None takes that of `start`, or trains
            one on the corpus.

    Returns:
        The manifest; it says whether training finished. On SIGTERM it has not, and its
        checkpoint is written.

    Raises:
        InputError: If sets share a name, there is too little text, a control stands in
            the background, or `out` holds the unfinished run of other inputs.
        KeyboardInterrupt: On Ctrl-C, once the checkpoint is written.
    """
    options = options or RunOptions()
    check_sets(sets)
    check_rows(preset, training_mesh())
    if not isinstance(corpus, Corpus) and not corpus:
        raise InputError("the corpus has no documents")
    make_folder(out)
    with _alone(out):
        return _pretrain(
            corpus,
            sets,
            preset,
            out=out,
            seed=seed,
            options=options,
            start=start,
            tokenizer=tokenizer,
        )


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder; a killed one holds nothing.

    Raises:
        InputError: If one trains there now.
    """
    with (out / LOCK_NAME).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise InputError(
                f"{out}: another process trains there", hint="another --out"
            ) from e
        yield


def _pretrain(
    corpus: Corpus | Sequence[str],
    sets: Sequence[PlannedSet],
    preset: Preset,
    *,
    out: Path,
    seed: int,
    options: RunOptions,
    start: Start | None,
    tokenizer: Any,
) -> Manifest:
    """`pretrain`, once the folder is ours."""
    # Beside that of an earlier run, until it is known that this one may begin.
    fresh_stream = out / f"new-{STREAM_NAME}"
    try:
        prepared = prepare(
            corpus,
            sets,
            preset,
            stream_file=fresh_stream,
            seed=seed,
            options=options,
            start=start,
            tokenizer=tokenizer,
        )
        plan = _audit_plan(prepared, prepared.manifest, sets, options, preset)
        manifest = earlier_manifest(out, prepared.manifest)
        if manifest is None:
            manifest = searched(prepared, sets)
            write_manifest(manifest, out / MANIFEST_NAME)
            for planned in sets:
                write_set(planned, out)
            prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
            (out / INIT_CONFIG_NAME).unlink(missing_ok=True)
            if start is not None:
                text = json.dumps(dict(start.raw_config), indent=1) + "\n"
                (out / INIT_CONFIG_NAME).write_text(text, encoding="utf-8")
        fresh_stream.replace(out / STREAM_NAME)
    finally:
        fresh_stream.unlink(missing_ok=True)
    if manifest.finished:
        audits = "; it is not audited again" if plan is not None else ""
        print(f"reusing the finished model in {out}{audits}", file=sys.stderr)
        return manifest
    decoder = (
        Decoder(preset.decoder, rngs=nnx.Rngs(seed)) if start is None else start.decoder
    )
    # To the very end: what is asked for while the model is written waits for it.
    with stop_request() as request:
        keep_every = options.keep_every or kept_every(out)
        trained = _train(
            decoder,
            prepared,
            preset,
            plan,
            out=out,
            options=dataclasses.replace(options, keep_every=keep_every),
            request=request,
        )
        if not trained.finished:
            write_training_page(out)
            print(
                f"stopped at step {trained.step:,} of {manifest.n_steps:,}; "
                "the same command goes on",
                file=sys.stderr,
            )
            if request.signal == signal.SIGINT:
                raise KeyboardInterrupt
            return manifest
        write_model(
            trained.decoder,
            prepared.tokenizer,
            out / MODEL_DIR,
            model_type=preset.model_type,
            raw_config=None if start is None else start.raw_config,
        )
        manifest = dataclasses.replace(manifest, finished=True)
        write_manifest(manifest, out / MANIFEST_NAME)
        if keep_every is None:
            shutil.rmtree(out / CHECKPOINTS_DIR, ignore_errors=True)
        write_training_page(out)
        return manifest


def _audit_plan(
    prepared: Prepared,
    manifest: Manifest,
    sets: Sequence[PlannedSet],
    options: RunOptions,
    preset: Preset,
) -> AuditPlan | None:
    if not (options.audit_at or options.audit_every):
        return None
    return plan_audit(
        [planned.benchmark for planned in sets],
        manifest,
        prepared.plain,
        prefix_id=prepared.prefix_id,
        context=preset.decoder.context,
        seed=manifest.seed,
        tests=options.audit_tests,
    )


def _train(
    decoder: Decoder,
    prepared: Prepared,
    preset: Preset,
    plan: AuditPlan | None,
    *,
    out: Path,
    options: RunOptions,
    request: StopRequest,
) -> Trained:
    """All steps, or those until somebody asks to stop; logged and checkpointed."""
    n_steps = prepared.manifest.n_steps
    last_step = (saved_steps(out) or [0])[-1]
    if last_step:
        print(f"going on at step {last_step:,} of {n_steps:,}", file=sys.stderr)
    steps = audit_steps(options.audit_at, options.audit_every, n_steps)
    done = {row["step"] for row in read_rows(out / AUDITS_NAME)}
    if missed := [step for step in steps if step <= last_step and step not in done]:
        print(
            f"not audited, since they are over: steps {', '.join(map(str, missed))}",
            file=sys.stderr,
        )
    with (
        run_progress(preset, n_steps, peak_tflops=options.peak_tflops) as progress,
        Checkpoints(out, preset=preset, keep_every=options.keep_every) as checkpoints,
        RunLog(
            out,
            preset,
            n_steps=n_steps,
            last_step=last_step,
            plan=plan,
            audit_steps=steps,
            progress=progress,
            tensorboard=out / TENSORBOARD_DIR if options.tensorboard else None,
        ) as log,
    ):
        log.begin(decoder)
        return train(
            preset,
            decoder,
            row_batches(
                prepared.rows,
                batch_rows=preset.batch_rows,
                n_steps=n_steps,
                process=jax.process_index(),
                n_processes=jax.process_count(),
            ),
            n_steps=n_steps,
            checkpoints=checkpoints,
            checkpoint_steps=options.checkpoint_steps,
            watch=Watch(
                losses=log.losses, audit=log.audit, audit_steps=log.audit_steps
            ),
            should_stop=lambda: bool(request),
        )
