"""A training run from texts to a model: plan, stream, steps, model, manifest.

What a run follows from stands in its manifest before the first step. The same inputs
again resume from the last checkpoint, or reuse the finished model.
"""

import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.processes import barrier, broadcast_bytes, is_first, process_count
from jaxcontam.reports.report_files import make_folder
from jaxcontam.scoring.shares import parse_mesh
from train.audits import AuditPlan, plan_audit
from train.checkpoints import CHECKPOINTS_DIR, Checkpoints, kept_every, saved_steps
from train.config import Config, RunOptions
from train.data import Corpus, Rows, row_batches
from train.export import INIT_CONFIG_NAME, TOKENIZER_DIR, write_model
from train.loop import (
    Trained,
    Watch,
    check_rows,
    stop_request,
    train,
    training_mesh,
)
from train.manifest import (
    Manifest,
    manifest_from_json,
    manifest_json,
    read_manifest,
    write_manifest,
)
from train.page import PAGE_NAME, write_training_page
from train.plant import PlannedSet, check_sets
from train.prepare import (
    VALIDATION_ROWS,
    Prepared,
    Run,
    Start,
    fetch_prepared,
    place_stream,
    prepare,
    prepared_once,
    rows_of_run,
    searched,
    write_set,
)
from train.run_folder import (
    MANIFEST_NAME,
    MODEL_DIR,
    alone,
    check_home,
    copy_to,
    earlier_manifest,
    is_same_folder,
    keep_at_home,
    run_home,
)
from train.run_log import RunLog
from train.step import fresh_decoder, whole_decoder
from train.step_log import (
    AUDITS_NAME,
    METRICS_NAME,
    VALIDATION_NAME,
    audit_steps,
    read_rows,
)

# Unless --validate-every says otherwise.
_N_VALIDATIONS = 20
TENSORBOARD_DIR = "tensorboard"
LOGS = (METRICS_NAME, AUDITS_NAME, VALIDATION_NAME, PAGE_NAME)


def pretrain(
    corpus: Corpus | Sequence[str],
    sets: Sequence[PlannedSet],
    config: Config,
    *,
    out: Path,
    seed: int,
    options: RunOptions | None = None,
    start: Start | None = None,
    tokenizer: Any = None,
) -> Manifest:
    """Tokenise, plant, train and write a model directory with its manifest.

    A finished model in `out` that the same code made of the same inputs is not trained
    again; without git, the same version is the same code. An unfinished run of the same
    inputs resumes from its last checkpoint.

    Args:
        corpus: Background: files, or texts in memory.
        sets: Test sets and controls.
        config: Model and batch; that of `start` has its shape.
        out: Folder; `model/`, `sets/`, `manifest.json`, `stream.npy`, `metrics.jsonl`
            and `training.html` are written there.
        seed: The same seed gives the same weights.
        options: See `RunOptions`.
        start: Continues training this model; None begins with random weights.
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
    mesh = training_mesh(parse_mesh(options.mesh))
    check_rows(config, mesh)
    if options.prepared is None and not isinstance(corpus, Corpus) and not corpus:
        raise InputError("the corpus has no documents")
    make_folder(out)
    home = run_home(options.checkpoints, out)
    check_home(home)
    if not is_same_folder(out, home) and saved_steps(out):
        raise InputError(
            f"{out}: holds checkpoints, and --checkpoints names another place",
            hint="another --out, or no --checkpoints to go on with these",
        )
    with contextlib.ExitStack() as locks:
        if is_first():
            locks.enter_context(alone(out, "--out"))
            if "://" not in str(home) and not is_same_folder(out, home):
                locks.enter_context(alone(Path(home), "--checkpoints"))
        run = Run(
            sets=sets,
            config=config,
            seed=seed,
            out=out,
            options=options,
            start=start,
            mesh=mesh,
            home=home,
        )

        def prepare_here(stream_file: Path) -> Prepared:
            if options.prepared is not None:
                return fetch_prepared(run, stream_file)
            return prepare(run, corpus, stream_file, tokenizer=tokenizer)

        return _pretrain(run, prepare_here)


def _pretrain(run: Run, prepare_here: Callable[[Path], Prepared]) -> Manifest:
    """`pretrain`, once the folder is locked."""
    sets, config, start, out, home = run.sets, run.config, run.start, run.out, run.home
    plan = None
    with prepared_once(out, prepare_here) as prepared:
        told = b""
        if prepared is not None and is_first():
            if run.options.audit_at or run.options.audit_every:
                plan = plan_audit(
                    [planned.benchmark for planned in sets],
                    prepared.manifest,
                    prepared.plain,
                    prefix_id=prepared.prefix_id,
                    context=config.decoder.context,
                    seed=run.seed,
                    tests=run.options.audit_tests,
                )
            manifest = earlier_manifest(home, prepared.manifest)
            is_new = manifest is None
            manifest = searched(prepared, sets) if is_new else manifest
            if is_new or not (manifest.finished or holds_run(out, manifest)):
                _write_beginning(manifest, prepared, run)
            if is_new:
                keep_at_home(out, home, *_beginning_files(manifest))
            told = manifest_json(manifest).encode()
        told = broadcast_bytes(told)
        manifest = manifest_from_json(told.decode(), "manifest of process 0")
        if manifest.finished:
            audits = "; it is not audited again" if plan is not None else ""
            _say(f"reusing the finished model in {home}{audits}")
            return manifest
        place_stream(out, prepared)
    rows = rows_of_run(out, prepared, config.context)
    decoder = (
        fresh_decoder(config.decoder, seed=run.seed, mesh=run.mesh)
        if start is None
        else start.checkpoint.decoder
    )
    # Until the end: a signal while the model is written waits for it.
    with stop_request() as received:
        keep_every = run.options.keep_every or kept_every(home)
        trained = _train(run, manifest, keep_every, decoder, rows, plan, received)
        if not trained.finished:
            if is_first():
                write_training_page(out)
                keep_at_home(out, home, *LOGS)
            _say(
                f"stopped at step {trained.step:,} of {manifest.n_steps:,}; "
                "the same command goes on"
            )
            # Who is interrupted ends the others: not before all is kept.
            barrier("stopped")
            if signal.SIGINT in received:
                raise KeyboardInterrupt
            return manifest
        whole: Decoder | None = trained.decoder
        if process_count() > 1:
            whole = whole_decoder(trained.decoder, keep=is_first())
        if whole is None or prepared is None or not is_first():
            return dataclasses.replace(manifest, finished=True)
        write_model(
            whole,
            prepared.tokenizer,
            out / MODEL_DIR,
            model_type=config.model_type,
            raw_config=None if start is None else start.raw_config,
        )
        manifest = dataclasses.replace(manifest, finished=True)
        write_manifest(manifest, out / MANIFEST_NAME)
        write_training_page(out)
        # Write the manifest last: it says that the rest exists.
        keep_at_home(out, home, MODEL_DIR, *LOGS, MANIFEST_NAME)
        if keep_every is None and (home / CHECKPOINTS_DIR).exists():
            (home / CHECKPOINTS_DIR).rmtree()
        return manifest


def _train(
    run: Run,
    manifest: Manifest,
    keep_every: int | None,
    decoder: Decoder,
    rows: Rows,
    plan: AuditPlan | None,
    received: Sequence[int],
) -> Trained:
    """Train all steps, or until a stop request; logged and checkpointed."""
    options, n_steps = run.options, len(rows) // run.config.batch_rows
    batches = row_batches(
        rows,
        batch_rows=run.config.batch_rows,
        n_steps=n_steps,
        process=jax.process_index(),
        n_processes=jax.process_count(),
    )

    validation_RT = np.load(run.out / VALIDATION_ROWS)

    def held_out() -> Iterator[np.ndarray]:
        B, process, n = run.config.batch_rows, jax.process_index(), jax.process_count()
        for first in range(0, len(validation_RT), B):
            yield validation_RT[first + process : first + B : n]

    def keep_logs() -> None:
        if is_first():
            keep_at_home(run.out, run.home, *LOGS)

    with contextlib.ExitStack() as stack:
        checkpoints = Checkpoints(
            run.home,
            config=run.config,
            keep_every=keep_every,
            before_save=keep_logs,
        )
        stack.callback(checkpoints.close)
        last_step = checkpoints.newest() or 0
        steps = audit_steps(options.audit_at, options.audit_every, n_steps)
        log = None
        if is_first():
            log = stack.enter_context(_log(run, manifest, plan, last_step, steps))
        steps_done = Watch().steps if log is None else log.steps

        def audit(step: int, decoder: Decoder) -> None:
            whole: Decoder | None = decoder
            if process_count() > 1:
                # Each process has parts of the weights alone.
                whole = whole_decoder(decoder, keep=log is not None)
            if log is not None and whole is not None:
                log.audit(step, whole)
            barrier(f"audit at step {step}")
            keep_logs()

        if last_step == 0 and 0 in steps:
            audit(0, decoder)
        trained = train(
            run.config,
            decoder,
            batches,
            n_steps=n_steps,
            mesh=run.mesh,
            checkpoints=checkpoints,
            checkpoint_steps=options.checkpoint_steps,
            first_id=manifest.first_id,
            validation=held_out,
            watch=Watch(
                steps=steps_done,
                audit=audit,
                audit_steps=steps,
                validation=Watch().validation if log is None else log.validation,
                validation_steps=_validation_steps(manifest, options.validate_every),
            ),
            should_stop=lambda: bool(received),
        )
    barrier("trained")
    return trained


def _log(
    run: Run,
    manifest: Manifest,
    plan: AuditPlan | None,
    last_step: int,
    audit_steps: Sequence[int],
) -> RunLog:
    """Open the logs of a run that resumes after `last_step`, and say so."""
    n_steps, n_bytes = manifest.n_steps, manifest.validation_bytes
    if last_step:
        _say(f"going on at step {last_step:,} of {n_steps:,}")
        # Over those of a disk that may be fresh or hold another run.
        if not is_same_folder(run.out, run.home):
            there = [name for name in LOGS if (run.home / name).exists()]
            copy_to(run.home, epath.Path(run.out.absolute()), there)
    done = {row["step"] for row in read_rows(run.out / AUDITS_NAME)}
    over = [step for step in audit_steps if last_step and step <= last_step]
    if missed := [step for step in over if step not in done]:
        _say(f"not audited, since they are over: steps {', '.join(map(str, missed))}")
    return RunLog(
        run.out,
        run.config,
        n_steps=n_steps,
        last_step=last_step,
        plan=plan,
        tokens_per_byte=manifest.n_validation_tokens / max(1, n_bytes),
        peak_tflops=run.options.peak_tflops,
        tensorboard=run.out / TENSORBOARD_DIR if run.options.tensorboard else None,
    )


def _validation_steps(manifest: Manifest, every: int | None) -> Collection[int]:
    """Steps after which what is held out is scored, the first and the last included."""
    if not manifest.n_validation_tokens:
        return ()
    n_steps = manifest.n_steps
    every = every or max(1, n_steps // _N_VALIDATIONS)
    return {*range(0, n_steps, every), n_steps}


def _say(words: str) -> None:
    if is_first():
        print(words, file=sys.stderr)


def holds_run(out: Path, manifest: Manifest) -> bool:
    """Whether a folder says of itself that it holds this run, as far as it is."""
    try:
        here = read_manifest(out / MANIFEST_NAME)
    except InputError:
        return False
    return manifest_json(here) == manifest_json(manifest)


def _write_beginning(manifest: Manifest, prepared: Prepared, run: Run) -> None:
    """Write all that is known of a run before its first step, the manifest last.

    Logs of another run are deleted.
    """
    out, start = run.out, run.start
    for name in (MANIFEST_NAME, *LOGS):
        (out / name).unlink(missing_ok=True)
    for planned in run.sets:
        write_set(planned, out)
    prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
    (out / INIT_CONFIG_NAME).unlink(missing_ok=True)
    if start is not None:
        text = json.dumps(dict(start.raw_config), indent=1) + "\n"
        (out / INIT_CONFIG_NAME).write_text(text, encoding="utf-8")
    write_manifest(manifest, out / MANIFEST_NAME)


def _beginning_files(manifest: Manifest) -> list[str]:
    """What `_write_beginning` writes; first the manifest, which says: not finished."""
    sets = [file for row in manifest.sets for file in (row.file, row.planted_file)]
    files = (MANIFEST_NAME, TOKENIZER_DIR, INIT_CONFIG_NAME, *sets)
    return [file for file in files if file is not None]
