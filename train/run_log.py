"""Logs of a run in progress.

The training loop hands on losses in blocks, and the decoder at the steps of an audit;
metrics.jsonl, audits.jsonl, training.html and the progress bar follow from these.

Dimension key
    N  steps
"""

import collections
import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn

from jaxcontam.models.decoder import Decoder
from jaxcontam.reports.report_files import replace_bytes
from jaxcontam.terminal import Terminal
from train.audits import AuditPlan, audit_model
from train.config import Config
from train.page import write_training_page
from train.step import StepMetrics, learning_rate
from train.step_log import (
    AUDITS_NAME,
    METRICS_NAME,
    VALIDATION_NAME,
    MetricsLog,
    Row,
    audit_words,
    read_rows,
    row_bytes,
    smoothed,
)

_SECONDS_A_LINE = 60.0
# Window of the displayed rate.
_RATE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Progress of a run at a step.

    Attributes:
        loss: Running mean, nats per token; None before the first.
        tokens_per_second: Rate over the last minute; None at first.
        mfu: Share of the stated peak that the model's operations reach (model FLOPs
            utilisation), or None.
        seconds_left: Remaining training time at that rate.
    """

    loss: float | None
    tokens_per_second: float | None
    mfu: float | None
    seconds_left: float | None


class TrainingProgress:
    """Shows step, loss, tokens per second, MFU and time left; a context manager.

    Rates leave out what comes before the first `update`, compilation above all, and
    what `paused` encloses. So the first call should follow the first step.
    """

    def __init__(
        self,
        *,
        n_steps: int,
        tokens_a_step: int,
        flops_a_step: float = 0.0,
        peak_tflops: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Describe the run.

        Args:
            n_steps: Steps in all.
            tokens_a_step: Targets.
            flops_a_step: At least; see `Config.step_flops`.
            peak_tflops: 10^12 operations a second that all devices together could do;
                without it no MFU is shown.
            clock: Seconds.
        """
        self._n_steps, self._tokens_a_step = n_steps, tokens_a_step
        self._flops_a_step, self._peak_tflops = flops_a_step, peak_tflops
        self._clock = clock
        self._paused = 0.0
        self._points: collections.deque[tuple[float, int]] = collections.deque()
        self._smooth = (0.0, 0.0)
        self._loss: float | None = None
        self._console = Terminal(stderr=True)
        self._printed = clock()
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[words]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=n_steps, words="compiling")

    def update(self, step: int, losses: Sequence[float]) -> TrainingState:
        """Report finished steps."""
        means, self._smooth = smoothed(losses, self._smooth)
        self._loss = means[-1] if means else self._loss
        now = self._clock()
        point = (now - self._paused, step)
        self._points.append(point)
        while len(self._points) > 2 and point[0] - self._points[1][0] > _RATE_SECONDS:
            self._points.popleft()
        begun, first = self._points[0]
        elapsed = point[0] - begun
        # Steps a second.
        rate = (step - first) / elapsed if elapsed > 0 else None
        flops = None if rate is None else rate * self._flops_a_step
        state = TrainingState(
            loss=self._loss,
            tokens_per_second=None if rate is None else rate * self._tokens_a_step,
            mfu=self._peak_tflops and flops and flops / (1e12 * self._peak_tflops),
            seconds_left=(self._n_steps - step) / rate if rate else None,
        )
        self._bar.update(self._task, completed=step, words=progress_words(state))
        if not self._console.is_terminal and now - self._printed >= _SECONDS_A_LINE:
            self._printed = now
            self.say(
                f"training: {step / self._n_steps:.0%}, step {step} of "
                f"{self._n_steps}, {progress_words(state)}"
            )
        return state

    @contextlib.contextmanager
    def paused(self, words: str) -> Iterator[None]:
        """Exclude the block's time from all rates."""
        start = self._clock()
        self._bar.update(self._task, words=words)
        try:
            yield
        finally:
            self._paused += self._clock() - start

    def say(self, words: str) -> None:
        """Print a line above the bar, or in the log."""
        self._console.print(words, highlight=False, markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def progress_words(state: TrainingState) -> str:
    """Describe the progress; unknown values are left out."""
    words = []
    if state.loss is not None:
        words.append(f"loss {state.loss:.3f}")
    if state.tokens_per_second is not None:
        words.append(f"{state.tokens_per_second:,.0f} tok/s")
    if state.mfu is not None:
        words.append(f"MFU {state.mfu:.1%}")
    if state.seconds_left is not None:
        words.append(f"{_duration(state.seconds_left)} left")
    return ", ".join(words)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class RunLog:
    """Writes the logs of one run and shows its progress; a context manager."""

    def __init__(
        self,
        out: Path,
        config: Config,
        *,
        n_steps: int,
        last_step: int = 0,
        plan: AuditPlan | None = None,
        tokens_per_byte: float = 0.0,
        peak_tflops: float | None = None,
        tensorboard: Path | None = None,
    ):
        """Open the logs.

        Args:
            out: Folder of the run; manifest.json is there if there is a plan.
            config: What is trained.
            n_steps: Steps in all.
            last_step: Step of the checkpoint that the run resumes from; 0 starts anew.
                Rows of later steps are cut off.
            plan: What an audit scores; None audits nothing.
            tokens_per_byte: Of what is held out.
            peak_tflops: As of `TrainingProgress`.
            tensorboard: Folder for TensorBoard scalars, or None.

        Raises:
            InputError: If a log is damaged, or tensorboardX is missing.
        """
        self._out, self._plan = out, plan
        self._step_tokens = config.step_tokens
        self._rates_N = step_rates(config, n_steps)
        # Before the first step there is nothing to resume: the file is another run's.
        self._audits, self._validation = (
            list[Row](read_rows(out / name, last_step=last_step) if last_step else ())
            for name in (AUDITS_NAME, VALIDATION_NAME)
        )
        self._tokens_per_byte = tokens_per_byte
        self._write_audits()
        replace_bytes(out / VALIDATION_NAME, row_bytes(self._validation))
        self._metrics = MetricsLog(
            out / METRICS_NAME, last_step=last_step, tensorboard=tensorboard
        )
        self.progress = TrainingProgress(
            n_steps=n_steps,
            tokens_a_step=config.step_tokens,
            flops_a_step=config.step_flops,
            peak_tflops=peak_tflops,
        )
        self._start = time.monotonic()

    def steps(self, before: int, metrics: StepMetrics) -> None:
        """Write the numbers of the steps that follow `before` steps."""
        last = before + len(metrics.loss)
        state = self.progress.update(last, metrics.loss.tolist())
        self._metrics.append(
            last,
            metrics._asdict() | {"rate": self._rates_N[before:last]},
            tokens_a_step=self._step_tokens,
            seconds=time.monotonic() - self._start,
            tokens_per_second=state.tokens_per_second,
            mfu=state.mfu,
        )

    def validation(self, step: int, measure: Callable[[], float]) -> None:
        """Measure the loss of what is held out, write it and say it."""
        with self.progress.paused("validating"):
            loss = measure()
        row = {
            "step": step,
            "tokens": step * self._step_tokens,
            "loss": loss,
            "bits_per_byte": loss / math.log(2) * self._tokens_per_byte,
        }
        self._validation.append(row)
        replace_bytes(self._out / VALIDATION_NAME, row_bytes(self._validation))
        self.progress.say(
            f"validation at step {step}: {loss:.4f} nats a token, "
            f"{row['bits_per_byte']:.4f} bits a byte"
        )

    def audit(self, step: int, decoder: Decoder) -> None:
        """Test every set with the weights after a step, and draw the page.

        Raises:
            InputError: If the model gives a number that is not finite.
        """
        if self._plan is None:
            return
        with self.progress.paused("auditing"):
            tokens = step * self._step_tokens
            rows = audit_model(decoder, self._plan, step=step, tokens=tokens)
            self._audits += [dataclasses.asdict(row) for row in rows]
            self._write_audits()
            write_training_page(self._out)
        if rows:
            self.progress.say(audit_words(rows))

    def _write_audits(self) -> None:
        """Each audit is written whole or not at all."""
        replace_bytes(self._out / AUDITS_NAME, row_bytes(self._audits))

    def __enter__(self) -> Self:
        self.progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.__exit__()
        self.progress.__exit__()


def step_rates(config: Config, n_steps: int) -> np.ndarray:
    """Learning rate of each step, (n_steps,) float32."""
    schedule = learning_rate(config.optimizer, n_steps)
    return np.asarray(jax.jit(jax.vmap(schedule))(jnp.arange(n_steps)))
