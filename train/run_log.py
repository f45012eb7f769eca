"""Logs of a run in progress.

The training loop hands on losses in blocks, and the decoder at the steps of an audit;
metrics.jsonl, audits.jsonl, training.html and the progress bar follow from these.

Dimension key
    N  steps
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontam.models.decoder import Decoder
from jaxcontam.processes import barrier, process_count
from train.audit_log import AUDITS_NAME, AuditLog, AuditRow, audit_words
from train.audits import AuditPlan, audit_model
from train.loop import Watch
from train.metrics import METRICS_NAME, MetricsLog
from train.page import write_training_page
from train.placement import whole_decoder
from train.presets import Preset
from train.progress import TrainingProgress, training_flops
from train.step import learning_rate


class RunLog:
    """Writes the logs of one run; a context manager.

    `losses`, `audit` and `audit_steps` are what the training loop asks of a watch.
    """

    def __init__(
        self,
        out: Path,
        preset: Preset,
        *,
        n_steps: int,
        last_step: int = 0,
        plan: AuditPlan | None = None,
        audit_steps: Sequence[int] = (),
        progress: TrainingProgress | None = None,
        tensorboard: Path | None = None,
    ):
        """Open the logs.

        Args:
            out: Folder of the run; manifest.json is there if there is a plan.
            preset: What is trained.
            n_steps: Steps in all.
            last_step: Step of the checkpoint that the run resumes from; 0 starts anew.
                Rows of later steps are cut off.
            plan: What an audit scores; None audits nothing.
            audit_steps: See `train.audit_log.audit_steps`.
            progress: Receives losses; waits while an audit runs.
            tensorboard: Folder for TensorBoard scalars, or None.

        Raises:
            InputError: If a log is damaged, or tensorboardX is missing.
        """
        self.audit_steps = frozenset(audit_steps if plan is not None else ())
        self._out, self._plan, self._progress = out, plan, progress
        self._step_tokens = preset.step_tokens
        self._rates_N = step_rates(preset, n_steps)
        self._audits = AuditLog(out / AUDITS_NAME, last_step=last_step)
        self._metrics = MetricsLog(
            out / METRICS_NAME, last_step=last_step, tensorboard=tensorboard
        )
        self._start = time.monotonic()

    def losses(self, before: int, losses_N: np.ndarray) -> None:
        """Write the losses of the steps that follow `before` steps."""
        last = before + len(losses_N)
        self._metrics.append(
            last,
            losses_N.tolist(),
            rates=self._rates_N[before:last].tolist(),
            tokens_a_step=self._step_tokens,
            seconds=time.monotonic() - self._start,
        )
        if self._progress is not None:
            self._progress.update(last, losses_N.tolist())

    def audit(self, step: int, decoder: Decoder) -> None:
        """Test every set with the weights after a step, and draw the page.

        Raises:
            InputError: If the model gives a number that is not finite.
        """
        if self._plan is None:
            return
        if self._progress is None:
            self._audit(step, decoder, self._plan)
            return
        with self._progress.paused("auditing"):
            rows = self._audit(step, decoder, self._plan)
        if rows:
            self._progress.say(audit_words(rows))

    def _audit(self, step: int, decoder: Decoder, plan: AuditPlan) -> list[AuditRow]:
        tokens = step * self._step_tokens
        rows = audit_model(decoder, plan, step=step, tokens=tokens)
        self._audits.append(rows)
        write_training_page(self._out)
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.__exit__()


def shared_watch(log: RunLog | None, audit_steps: Sequence[int]) -> Watch:
    """Callbacks of every process; process 0 alone keeps the logs.

    Args:
        log: The log of process 0; None in the others.
        audit_steps: The same in every process.
    """

    def audit(step: int, decoder: Decoder) -> None:
        if process_count() > 1:
            # Each process has parts of the weights alone.
            whole = whole_decoder(decoder, keep=log is not None)
            if log is not None and whole is not None:
                log.audit(step, whole)
            barrier(f"audit at step {step}")
        elif log is not None:
            log.audit(step, decoder)

    if log is None:
        return Watch(audit=audit, audit_steps=frozenset(audit_steps))
    return Watch(losses=log.losses, audit=audit, audit_steps=log.audit_steps)


def run_progress(
    preset: Preset, n_steps: int, *, peak_tflops: float | None = None
) -> TrainingProgress:
    """Progress of a preset's run.

    Args:
        preset: What is trained.
        n_steps: Steps in all.
        peak_tflops: See `TrainingProgress`.
    """
    return TrainingProgress(
        n_steps=n_steps,
        tokens_a_step=preset.step_tokens,
        flops_a_step=training_flops(preset.decoder, preset.batch_rows, preset.context),
        peak_tflops=peak_tflops,
    )


def step_rates(preset: Preset, n_steps: int) -> np.ndarray:
    """Learning rate of each step, (n_steps,) float32."""
    schedule = learning_rate(preset.peak_rate, n_steps, schedule=preset.schedule)
    return np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(n_steps)))
