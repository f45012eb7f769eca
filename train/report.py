"""Reports of a run while it trains: logs that can be resumed, and a bar.

Logs are JSON lines with a step, in ascending order. A killed run may have written more
steps than its last checkpoint has, and half of a line. Opened at the step of the
checkpoint, a log forgets both, so that the resumed run writes each step once.
"""

import collections
import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn

from jaxcontam.data.journal import claimed
from jaxcontam.errors import InputError
from jaxcontam.stats.result import LEVEL
from jaxcontam.terminal import Terminal

Row = Mapping[str, Any]
METRICS_NAME = "metrics.jsonl"
AUDITS_NAME = "audits.jsonl"
VALIDATION_NAME = "validation.jsonl"
# Time constant of the running mean: a step's weight falls to 1/e after 50 steps.
_SMOOTHED_STEPS = 50
_SECONDS_A_LINE = 60.0
# Window of the displayed rate.
_RATE_SECONDS = 60.0


def read_rows(path: Path, *, last_step: int | None = None) -> list[dict[str, Any]]:
    """Rows of a log, up to a step, but for an interrupted write at its end."""
    return _read(path, last_step)[0]


def _read(path: Path, last_step: int | None) -> tuple[list[dict[str, Any]], int]:
    """Rows up to a step, and the bytes that they take."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    rows: list[dict[str, Any]] = []
    n_bytes = 0
    # What follows the last line end is a write that never came to its end.
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
            step = row["step"]
            if not isinstance(step, int):
                raise TypeError("give each row a step, a whole number")
        except (ValueError, RecursionError, KeyError, TypeError) as e:
            raise InputError(
                f"{path}:{number}: not a row with a step",
                hint="move the file away to start a new one: it was changed",
            ) from e
        if rows and step < rows[-1]["step"]:
            raise InputError(
                f"{path}:{number}: step {step} after step {rows[-1]['step']}",
                hint="give each run its own --out: two runs wrote into one folder",
            )
        if last_step is not None and step > last_step:
            break
        rows.append(row)
        n_bytes += len(line) + 1
    return rows, n_bytes


class StepLog:
    """A log that a run appends to, and no other process; a context manager."""

    def __init__(self, path: Path, last_step: int = 0):
        """Open the log, without rows after the step that the run resumes from.

        Before the first step there is nothing to resume: all rows are another run's.
        """
        rows, n_bytes = _read(path, last_step)
        self._file = path.open("ab", buffering=0)
        self._claim = claimed(self._file, path)
        if not last_step:
            rows, n_bytes = [], 0
        self.last_row = rows[-1] if rows else None
        self._n_bytes = n_bytes
        self._file.truncate(n_bytes)

    def append(self, rows: Sequence[Row]) -> None:
        """Write all rows or none (OSError); when it returns, the system has them."""
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in rows]
        data = memoryview("".join(lines).encode())
        left = data
        try:
            while left:
                left = left[self._file.write(left) :]
        except BaseException:
            self._file.truncate(self._n_bytes)
            raise
        self._n_bytes += len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def metric_rows(
    last_step: int, of_steps: Mapping[str, np.ndarray], step_tokens: int, **block: Any
) -> list[Row]:
    """Rows of metrics.jsonl for a block of steps that ends with `last_step`.

    A row has `step` (from 1) and `tokens` (targets trained on so far); of the step
    `loss` (mean over its targets, nats), `gradient_norm` (before clipping),
    `parameter_norm` and `rate` (learning rate), each null where it is not finite; and
    as `block` what is of the moment when these were known: `seconds` (wall time of
    training, earlier processes included), `tokens_per_second` and `mfu` (over the last
    minute; null at first, or without a peak).
    """
    first = last_step - len(of_steps["loss"]) + 1
    return [
        {
            "step": step,
            "tokens": step * step_tokens,
            # The shortest digits that give the float32 back.
            **{
                name: float(str(one)) if np.isfinite(one) else None
                for name, one in zip(of_steps, numbers, strict=True)
            },
            **block,
        }
        for step, numbers in enumerate(zip(*of_steps.values(), strict=True), first)
    ]


class RunningMean:
    """Mean of losses whose weights fade over some 50 steps, first of all there are."""

    def __init__(self):
        self._total = self._weight = 0.0

    def after(self, losses: Sequence[float | None]) -> float | None:
        """The mean after the next losses, but for what is no number; None at first."""
        for loss in losses:
            if loss is not None and math.isfinite(loss):
                keep = 1 - 1 / _SMOOTHED_STEPS
                self._total = keep * self._total + loss
                self._weight = keep * self._weight + 1
        return self._total / self._weight if self._weight else None


class TrainingState(NamedTuple):
    """Progress of a run: running mean of the loss, rates of the last minute, time left.

    `mfu` is the share of the stated peak that the model's operations reach (model FLOPs
    utilisation). What is not known yet is None.
    """

    loss: float | None
    tokens_per_second: float | None
    mfu: float | None
    seconds_left: float | None

    def __str__(self) -> str:
        words = []
        if self.loss is not None:
            words.append(f"loss {self.loss:.3f}")
        if self.tokens_per_second is not None:
            words.append(f"{self.tokens_per_second:,.0f} tok/s")
        if self.mfu is not None:
            words.append(f"MFU {self.mfu:.1%}")
        if (left := self.seconds_left) is not None:
            sizes = (("s", 1, 90), ("min", 60, 5400), ("h", 3600, math.inf))
            unit, size = next((name, n) for name, n, below in sizes if left < below)
            words.append(f"{left / size:.{int(unit == 'h')}f} {unit} left")
        return ", ".join(words)


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
        """Describe the run; no MFU is shown without a peak."""
        self._n_steps, self._tokens_a_step = n_steps, tokens_a_step
        self._flops_a_step, self._peak_tflops = flops_a_step, peak_tflops
        self._clock, self._printed, self._paused = clock, clock(), 0.0
        self._points: collections.deque[tuple[float, int]] = collections.deque()
        self._mean = RunningMean()
        self._console = Terminal(stderr=True)
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
            loss=self._mean.after(losses),
            tokens_per_second=None if rate is None else rate * self._tokens_a_step,
            mfu=self._peak_tflops and flops and flops / (1e12 * self._peak_tflops),
            seconds_left=(self._n_steps - step) / rate if rate else None,
        )
        self._bar.update(self._task, completed=step, words=str(state))
        if not self._console.is_terminal and now - self._printed >= _SECONDS_A_LINE:
            self._printed = now
            share = step / self._n_steps
            self.say(f"training: {share:.0%}, step {step} of {self._n_steps}, {state}")
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
        self._console.say(words)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One test of one set at one step: a line of audits.jsonl.

    Attributes:
        copies: Copies of it in all training data; 0 for a control.
        copies_seen: Copies of which some part was trained on by this step.
        method: A row of METHODS: an order test, or `min_k`.
        validity: For an order test `exact`, `asymptotic` or `heuristic`; None for
            `min_k`, like the next five.
        p_value: Uncorrected.
        log10_p: log10 of it, without its limit at 1e-300.
        effect: Nats per example boundary.
        mde: Smallest effect found with power 0.8 at level 0.001.
        auc: For `min_k`, the probability that a text of the set outscores one of the
            reference; None for order tests, like its standard error. A ranking, which
            proves nothing.
        reference: Sets that it is compared with; empty for order tests.
    """

    step: int
    tokens: int
    set: str
    copies: int
    copies_seen: int
    method: str
    validity: str | None = None
    p_value: float | None = None
    log10_p: float | None = None
    effect: float | None = None
    effect_se: float | None = None
    mde: float | None = None
    auc: float | None = None
    auc_se: float | None = None
    reference: tuple[str, ...] = ()


def audit_words(rows: Sequence[AuditRow]) -> str:
    """One audit in a line: sets that each order test finds at 0.001, uncorrected."""
    words = []
    for method in dict.fromkeys(row.method for row in rows if row.log10_p is not None):
        planted, controls = (
            [
                row.log10_p <= math.log10(LEVEL)
                for row in rows
                if row.method == method
                and row.log10_p is not None
                and (row.copies == 0) == is_control
            ]
            for is_control in (False, True)
        )
        words.append(
            f"{method} p <= {LEVEL:g} in {sum(planted)} of {len(planted)} planted sets "
            f"and {sum(controls)} of {len(controls)} controls"
        )
    return f"audit at step {rows[0].step}: {'; '.join(words) or 'membership alone'}"


def check_audit_flags(at: Sequence[float], every: int | None) -> None:
    """Refuse times of audits that cannot be, before anything slow."""
    for share in at:
        if not 0 <= share <= 1:
            raise InputError(
                f"--audit-at must be from 0 to 1, got {share:g}",
                hint="shares of training, such as --audit-at 0.25 0.5 1.0",
            )
    if every is not None and every < 1:
        raise InputError(f"--audit-every must be at least 1, got {every}")


def audit_steps(
    at: Sequence[float], every: int | None, n_steps: int
) -> tuple[int, ...]:
    """Steps after which to audit, ascending: shares, multiples with the last one."""
    # A share above 0 asks for a model that was trained, however little.
    steps = {max(1, round(share * n_steps)) if share else 0 for share in at}
    if every is not None:
        steps |= {*range(every, n_steps, every), n_steps}
    return tuple(sorted(steps))
