"""A training run from texts to a model: plan, stream, steps, model, manifest.

What a run follows from stands in its manifest before the first step. The same inputs
again resume from the last checkpoint, or reuse the finished model.

Dimension key
    N  steps
"""

import contextlib
import dataclasses
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.processes import (
    barrier,
    broadcast_bytes,
    is_first,
    process_count,
    process_index,
)
from jaxcontam.reports.report_files import make_folder
from jaxcontam.scoring.parts import parse_mesh
from train.audits import AuditPlan, audit_model, plan_audit
from train.checkpoints import CHECKPOINTS_DIR, Checkpoints, kept_every, saved_steps
from train.config import Config, RunOptions
from train.data import Corpus, Rows, row_batches
from train.export import INIT_CONFIG_NAME, TOKENIZER_DIR, write_model
from train.loop import (
    OfSteps,
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
from train.optimizer import learning_rate
from train.page import PAGE_NAME, write_training_page
from train.plant import PlannedSet, check_sets
from train.prepare import (
    VALIDATION_ROWS,
    Prepared,
    Run,
    Start,
    fetch_prepared,
    place_data,
    prepare,
    prepared_once,
    rows_of_run,
    save_prepared,
    searched,
    write_set,
)
from train.report import (
    AUDITS_NAME,
    METRICS_NAME,
    VALIDATION_NAME,
    StepLog,
    TrainingProgress,
    audit_steps,
    audit_words,
    metric_rows,
    read_rows,
)
from train.run_folder import (
    MANIFEST_NAME,
    MODEL_DIR,
    alone,
    check_home,
    copy_to,
    earlier_manifest,
    is_same_folder,
    is_url,
    keep_at_home,
    run_home,
)
from train.step import fresh_decoder, whole_decoder

_PROFILE_DIR = "profile"
# Unless --validate-every says otherwise.
_N_VALIDATIONS = 20
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
    again; an unfinished run resumes from its last checkpoint. After SIGTERM or Ctrl-C,
    which raises, the checkpoint is written and the manifest says unfinished.

    `tokenizer` is a transformers fast tokenizer; None takes that of `start`, or trains
    one on the corpus.
    """
    options = options or RunOptions()
    check_sets(sets)
    is_read = options.prepared is None or options.stop_after_data
    if is_read and not isinstance(corpus, Corpus) and not corpus:
        raise InputError("the corpus has no documents")
    run = Run(
        sets=sets, config=config, seed=seed, out=out, options=options, start=start
    )
    if options.stop_after_data:
        return save_prepared(run, corpus, tokenizer=tokenizer)
    mesh = training_mesh(parse_mesh(options.mesh))
    check_rows(config, mesh)
    make_folder(out)
    home = run_home(options.checkpoints, out)
    check_home(home)
    is_here = is_same_folder(out, home)
    if not is_here and saved_steps(out):
        raise InputError(
            f"{out}: holds checkpoints, and --checkpoints names another place",
            hint="another --out, or no --checkpoints to go on with these",
        )

    def prepare_in(folder: Path) -> Prepared:
        if options.prepared is not None:
            return fetch_prepared(run, folder)
        return prepare(run, corpus, folder, tokenizer=tokenizer)

    with contextlib.ExitStack() as locks:
        if is_first():
            locks.enter_context(alone(out))
            if not is_here and not is_url(home):
                locks.enter_context(alone(Path(home), "--checkpoints"))
        return _pretrain(dataclasses.replace(run, mesh=mesh, home=home), prepare_in)


def _pretrain(run: Run, prepare_in: Callable[[Path], Prepared]) -> Manifest:
    """`pretrain`, once the folder is locked."""
    config, start, out, home = run.config, run.start, run.out, run.home
    plan, told = None, b""
    with prepared_once(out, prepare_in) as prepared:
        if prepared is not None and is_first():
            plan = _audit_plan(run, prepared)
            told = manifest_json(_begun(run, prepared)).encode()
        told = broadcast_bytes(told).decode()
        manifest = manifest_from_json(told, "manifest of process 0")
        if manifest.finished:
            audits = "; it is not audited again" if plan is not None else ""
            _say(f"reusing the finished model in {home}{audits}")
            return manifest
        place_data(out, prepared)
    rows = rows_of_run(out, config.context)
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
        whole = _whole(trained.decoder)
        manifest = dataclasses.replace(manifest, finished=True)
        if whole is None or prepared is None:
            return manifest
        write_model(
            whole,
            prepared.tokenizer,
            out / MODEL_DIR,
            model_type=config.model_type,
            raw_config=None if start is None else start.raw_config,
        )
        write_manifest(manifest, out / MANIFEST_NAME)
        write_training_page(out)
        # Write the manifest last: it says that the rest exists.
        keep_at_home(out, home, MODEL_DIR, *LOGS, MANIFEST_NAME)
        if keep_every is None and (home / CHECKPOINTS_DIR).exists():
            (home / CHECKPOINTS_DIR).rmtree()
        return manifest


def _audit_plan(run: Run, prepared: Prepared) -> AuditPlan | None:
    if not run.options.audit_at and not run.options.audit_every:
        return None
    return plan_audit(
        [planned.benchmark for planned in run.sets],
        prepared.manifest,
        prepared.plain,
        prefix_id=prepared.manifest.first_id,
        context=run.config.decoder.context,
        seed=run.seed,
        tests=run.options.audit_tests,
    )


def _begun(run: Run, prepared: Prepared) -> Manifest:
    """The manifest of the run that stands here, or of one that begins.

    What is known before the first step is written, the manifest last; logs of another
    run are deleted.
    """
    out, home, start = run.out, run.home, run.start
    earlier = earlier_manifest(home, prepared.manifest)
    manifest = earlier or searched(prepared, run.sets)
    if earlier is None or not (manifest.finished or holds_run(out, manifest)):
        for name in (MANIFEST_NAME, INIT_CONFIG_NAME, *LOGS):
            (out / name).unlink(missing_ok=True)
        for planned in run.sets:
            write_set(planned, out)
        prepared.tokenizer.save_pretrained(out / TOKENIZER_DIR)
        if start is not None:
            text = json.dumps(dict(start.raw_config), indent=1) + "\n"
            (out / INIT_CONFIG_NAME).write_text(text, encoding="utf-8")
        write_manifest(manifest, out / MANIFEST_NAME)
    if earlier is None:
        sets = [file for row in manifest.sets for file in (row.file, row.planted_file)]
        # First the manifest, which says: not finished.
        files = (MANIFEST_NAME, TOKENIZER_DIR, INIT_CONFIG_NAME, *sets)
        keep_at_home(out, home, *(file for file in files if file is not None))
    return manifest


def holds_run(out: Path, manifest: Manifest) -> bool:
    """Whether a folder says of itself that it holds this run, as far as it is."""
    try:
        here = read_manifest(out / MANIFEST_NAME)
    except InputError:
        return False
    return manifest_json(here) == manifest_json(manifest)


def _whole(decoder: Decoder) -> Decoder | None:
    """The model with all its weights, in process 0; the others have parts alone."""
    if process_count() == 1:
        return decoder
    return whole_decoder(decoder, keep=is_first())


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
    options, n_steps = run.options, manifest.n_steps
    B = run.config.batch_rows
    process, n_processes = process_index(), process_count()
    batches = row_batches(
        rows, batch_rows=B, n_steps=n_steps, process=process, n_processes=n_processes
    )
    validation_RT = np.load(run.out / VALIDATION_ROWS)

    def held_out() -> Iterator[np.ndarray]:
        for first in range(0, len(validation_RT), B):
            yield validation_RT[first + process : first + B : n_processes]

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
            if last_step:
                _say_what_goes_on(run, last_step, n_steps, steps)
            log = RunLog(run, manifest, last_step=last_step, plan=plan)
            stack.enter_context(log)

        def audit(step: int, decoder: Decoder) -> None:
            whole = _whole(decoder)
            if log is not None and whole is not None:
                log.audit(step, whole)
            barrier(f"audit at step {step}")
            keep_logs()

        if last_step == 0 and 0 in steps:
            audit(0, decoder)
        validation_steps: set[int] = set()
        if manifest.n_validation_tokens:
            every = options.validate_every or max(1, n_steps // _N_VALIDATIONS)
            validation_steps = {*range(0, n_steps, every), n_steps}
        watch = Watch(audit=audit, audit_steps=steps, validation_steps=validation_steps)
        if log is not None:
            watch = dataclasses.replace(
                watch, steps=log.steps, validation=log.validation
            )
        profile = None
        if options.profile is not None:
            profile = run.out / _PROFILE_DIR, options.profile
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
            watch=watch,
            should_stop=lambda: bool(received),
            profile=profile,
        )
    barrier("trained")
    return trained


def _say_what_goes_on(
    run: Run, last_step: int, n_steps: int, audit_steps: Sequence[int]
) -> None:
    """Where a run resumes, with the logs that its home has."""
    _say(f"going on at step {last_step:,} of {n_steps:,}")
    # Over those of a disk that may be fresh or hold another run.
    if not is_same_folder(run.out, run.home):
        there = [name for name in LOGS if (run.home / name).exists()]
        copy_to(run.home, epath.Path(run.out.absolute()), there)
    done = {row["step"] for row in read_rows(run.out / AUDITS_NAME)}
    missed = [step for step in audit_steps if step <= last_step and step not in done]
    if missed:
        _say(f"not audited, since they are over: steps {', '.join(map(str, missed))}")


def _say(words: str) -> None:
    if is_first():
        print(words, file=sys.stderr)


class RunLog:
    """Writes the logs of one run and shows its progress; a context manager."""

    def __init__(
        self,
        run: Run,
        manifest: Manifest,
        *,
        last_step: int = 0,
        plan: AuditPlan | None = None,
    ):
        """Open the logs, without rows after the step that the run resumes from."""
        config, out = run.config, run.out
        self._out, self._plan, self._step_tokens = out, plan, config.step_tokens
        self._rates_N = step_rates(config, manifest.n_steps)
        n_bytes = max(1, manifest.validation_bytes)
        self._tokens_per_byte = manifest.n_validation_tokens / n_bytes
        # A damaged log is refused before another one is cut.
        for name in (METRICS_NAME, AUDITS_NAME, VALIDATION_NAME):
            read_rows(out / name, last_step=last_step)
        with contextlib.ExitStack() as stack:
            keep = stack.enter_context
            self._metrics = keep(StepLog(out / METRICS_NAME, last_step))
            self._audits = keep(StepLog(out / AUDITS_NAME, last_step))
            self._validation = keep(StepLog(out / VALIDATION_NAME, last_step))
            self._opened = stack.pop_all()
        self.progress = TrainingProgress(
            n_steps=manifest.n_steps,
            tokens_a_step=config.step_tokens,
            flops_a_step=config.step_flops,
            peak_tflops=run.options.peak_tflops,
        )
        earlier = self._metrics.last_row
        self._start = time.monotonic() - (earlier["seconds"] if earlier else 0.0)

    def steps(self, before: int, of_steps: OfSteps) -> None:
        """Write the numbers of the steps that follow `before` steps."""
        last = before + len(of_steps["loss"])
        state = self.progress.update(last, of_steps["loss"].tolist())
        speed, mfu = state.tokens_per_second, state.mfu
        rows = metric_rows(
            last,
            of_steps | {"rate": self._rates_N[before:last]},
            self._step_tokens,
            seconds=round(time.monotonic() - self._start, 3),
            tokens_per_second=speed and round(speed, 1),
            mfu=mfu and round(mfu, 4),
        )
        self._metrics.append(rows)

    def validation(self, step: int, measure: Callable[[], float]) -> None:
        """Measure the loss of what is held out, write it and say it."""
        with self.progress.paused("validating"):
            loss = measure()
        if not math.isfinite(loss):
            raise InputError(
                f"training diverged: the loss of held-out text after step {step} is "
                f"{loss}",
                hint="lower the learning rate",
            )
        bits = loss / math.log(2) * self._tokens_per_byte
        row = {"step": step, "tokens": step * self._step_tokens, "loss": loss}
        self._validation.append([row | {"bits_per_byte": bits}])
        self.progress.say(
            f"validation at step {step}: {loss:.4f} nats a token, "
            f"{bits:.4f} bits a byte"
        )

    def audit(self, step: int, decoder: Decoder) -> None:
        """Test every set with the weights after a step, and draw the page."""
        if self._plan is None:
            return
        with self.progress.paused("auditing"):
            tokens = step * self._step_tokens
            rows = audit_model(decoder, self._plan, step=step, tokens=tokens)
            self._audits.append([dataclasses.asdict(row) for row in rows])
            write_training_page(self._out)
        if rows:
            self.progress.say(audit_words(rows))

    def __enter__(self) -> Self:
        self._opened.enter_context(self.progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()


def step_rates(config: Config, n_steps: int) -> np.ndarray:
    """Learning rate of each step, (n_steps,) float32."""
    schedule = learning_rate(config.optimizer, n_steps)
    return np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(n_steps)))
