"""Progress of a training run: a bar on a terminal, lines in a log."""

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.flops import forward_flops
from jaxcontam.terminal import Terminal
from train.metrics import smoothed

_SECONDS_A_LINE = 60.0
# Window of the displayed rate.
_SECONDS_OF_RATE = 60.0


def training_flops(config: DecoderConfig, n_rows: int, row_tokens: int) -> float:
    """Floating-point operations that training on rows takes at least.

    Three times the forward pass: the backward pass makes two products for each of its
    products. What rematerialisation computes again is not counted.

    Args:
        config: Shape of the decoder.
        n_rows: Rows of a step, for the operations of a step.
        row_tokens: Targets of a row.
    """
    return 3 * forward_flops(config, [row_tokens] * n_rows)


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
            flops_a_step: See `training_flops`.
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
        """Report finished steps.

        Args:
            step: Steps done so far, those before a resume included.
            losses: Losses of the steps since the last call.
        """
        means, self._smooth = smoothed(losses, self._smooth)
        self._loss = means[-1] if means else self._loss
        now = self._clock()
        point = (now - self._paused, step)
        self._points.append(point)
        while len(self._points) > 2 and point[0] - self._points[1][0] > (
            _SECONDS_OF_RATE
        ):
            self._points.popleft()
        state = self._state(step, _rate(self._points[0], point))
        self._bar.update(self._task, completed=step, words=progress_words(state))
        if not self._console.is_terminal and now - self._printed >= _SECONDS_A_LINE:
            self._printed = now
            self._console.print(
                f"training: {step / self._n_steps:.0%}, step {step} of "
                f"{self._n_steps}, {progress_words(state)}",
                highlight=False,
                soft_wrap=True,
            )
        return state

    @contextlib.contextmanager
    def paused(self, words: str) -> Iterator[None]:
        """Exclude the block's time from all rates.

        Args:
            words: Displayed during the block, such as `auditing`.
        """
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

    def _state(self, step: int, steps_per_second: float | None) -> TrainingState:
        mfu = None
        if self._peak_tflops is not None and steps_per_second is not None:
            mfu = steps_per_second * self._flops_a_step / (1e12 * self._peak_tflops)
        return TrainingState(
            loss=self._loss,
            tokens_per_second=None
            if steps_per_second is None
            else steps_per_second * self._tokens_a_step,
            mfu=mfu,
            seconds_left=(self._n_steps - step) / steps_per_second
            if steps_per_second
            else None,
        )


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


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    """Steps a second between two points in time."""
    if last[0] <= first[0]:
        return None
    return (last[1] - first[1]) / (last[0] - first[0])


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
