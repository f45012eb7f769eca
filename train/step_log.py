"""Logs of a run that can be resumed: JSON lines with a step, in ascending order.

A killed run may have written more steps than its last checkpoint has, and half of a
line. Opened at the step of the checkpoint, a log forgets both, so that the resumed run
writes each step once.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from jaxcontam.data.journal import claimed
from jaxcontam.errors import InputError
from jaxcontam.stats.result import LEVEL

Row = Mapping[str, Any]


def read_rows(path: Path, *, last_step: int | None = None) -> list[dict[str, Any]]:
    """Rows of a log, without what an interrupted write left at its end.

    Raises:
        InputError: If a whole line is no row or the steps fall; names the line.
    """
    return _read(path, last_step)[0]


def cut_rows(path: Path, *, last_step: int) -> list[dict[str, Any]]:
    """As `read_rows`, and cuts what it leaves out off the file.

    Raises:
        InputError: As `read_rows`; the file is then as it was.
    """
    rows, n_bytes = _read(path, last_step)
    if path.is_file() and path.stat().st_size > n_bytes:
        with path.open("rb+") as file:
            file.truncate(n_bytes)
    return rows


def row_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as JSON lines."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()


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
                raise TypeError("a step is a whole number")
        except (ValueError, RecursionError, KeyError, TypeError) as e:
            raise InputError(
                f"{path}:{number}: not a row with a step",
                hint="the file was changed; move it away to start it anew",
            ) from e
        if rows and step < rows[-1]["step"]:
            raise InputError(
                f"{path}:{number}: step {step} after step {rows[-1]['step']}",
                hint="two runs wrote into one folder; give each an --out of its own",
            )
        if last_step is not None and step > last_step:
            break
        rows.append(row)
        n_bytes += len(line) + 1
    return rows, n_bytes


METRICS_NAME = "metrics.jsonl"
# Time constant of the running mean: a step's weight falls to 1/e after 50 steps.
_SMOOTHED_STEPS = 50


class MetricsLog:
    """Writes the metrics of a run, block of steps by block; a context manager.

    A row has `step` (from 1) and `tokens` (targets trained on so far); of the step
    `loss` (mean over its targets, nats), `gradient_norm` (before clipping),
    `parameter_norm` and `rate` (learning rate), each null where it is not finite; and
    of the moment when these were known `seconds` (wall time of training, earlier
    processes included), `tokens_per_second` and `mfu` (over the last minute; null at
    first, or without a peak).
    """

    def __init__(
        self, path: Path, *, last_step: int = 0, tensorboard: Path | None = None
    ):
        """Open the log, without rows after the step that the run resumes from.

        Raises:
            InputError: If the file holds something else, another process writes it, or
                tensorboardX is missing.
        """
        # First what can be refused, then what changes the file.
        self._writer = None if tensorboard is None else _writer(tensorboard, last_step)
        self.rows = cut_rows(path, last_step=last_step)
        self._seconds_before = self.rows[-1]["seconds"] if self.rows else 0.0
        self._file = path.open("ab", buffering=0)
        self._claim = claimed(self._file, path)

    def append(
        self,
        last_step: int,
        of_steps: Mapping[str, np.ndarray],
        *,
        tokens_a_step: int,
        seconds: float,
        tokens_per_second: float | None = None,
        mfu: float | None = None,
    ) -> None:
        """Write a block of steps; when it returns, the system has them.

        Args:
            last_step: Number of the last one, from 1.
            of_steps: Name -> a float32 number of each step.
            tokens_a_step: Targets.
            seconds: Since this process began to train.
            tokens_per_second: Over the last minute.
            mfu: Share of the peak, over the same.
        """
        block = {
            "seconds": round(self._seconds_before + seconds, 3),
            "tokens_per_second": tokens_per_second and round(tokens_per_second, 1),
            "mfu": mfu and round(mfu, 4),
        }
        first = last_step - len(of_steps["loss"]) + 1
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "tokens": step * tokens_a_step,
                # The shortest digits that give the float32 back.
                **{
                    name: float(str(one)) if np.isfinite(one) else None
                    for name, one in zip(of_steps, numbers, strict=True)
                },
                **block,
            }
            for step, numbers in enumerate(zip(*of_steps.values(), strict=True), first)
        ]
        self._file.write(row_bytes(rows))
        self.rows += rows
        if self._writer is None:
            return
        for row in rows:
            for name in of_steps:
                if row[name] is not None:
                    self._writer.add_scalar(f"train/{name}", row[name], row["step"])
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._writer is not None:
            self._writer.close()


def smoothed(
    losses: Sequence[float | None], before: tuple[float, float] = (0.0, 0.0)
) -> tuple[list[float | None], tuple[float, float]]:
    """Running mean of losses whose weights fade over some 50 steps.

    The first values are means of what there is, not pulled towards zero.

    Args:
        losses: Losses of consecutive steps; None where a loss was not a number, which
            the mean skips.
        before: What the call for the steps before returned.

    Returns:
        The mean after each step (None before the first number), and the weighted sum
        and the weight of all so far, for the steps that follow.
    """
    total, weight = before
    keep = 1 - 1 / _SMOOTHED_STEPS
    means: list[float | None] = []
    for loss in losses:
        if loss is not None and math.isfinite(loss):
            total, weight = keep * total + loss, keep * weight + 1
        means.append(total / weight if weight else None)
    return means, (total, weight)


def _writer(folder: Path, last_step: int) -> Any:
    try:
        from tensorboardX import (  # pyright: ignore[reportMissingImports]
            SummaryWriter,
        )
    except ImportError as e:
        raise InputError(
            "--tensorboard needs tensorboardX, which is not installed",
            hint="pip install -e .[tensorboard]",
        ) from e
    # Scalars that a killed run wrote after its checkpoint are hidden. File names have
    # whole seconds: without a suffix, a quick restart would write over its own file.
    return SummaryWriter(
        str(folder),
        purge_step=last_step + 1 if last_step else None,
        filename_suffix=f".from-{last_step}",
    )


AUDITS_NAME = "audits.jsonl"
VALIDATION_NAME = "validation.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One test of one set at one step: a line of audits.jsonl.

    Attributes:
        step: Training steps done.
        tokens: Targets trained on so far.
        set: Name of the planted set or control.
        copies: Copies of it in all training data; 0 for a control.
        copies_seen: Copies of which some part was trained on by this step.
        method: A row of METHODS: an order test, or `min_k`.
        validity: For an order test `exact`, `asymptotic` or `heuristic`; None for
            `min_k`, like the next five.
        p_value: Uncorrected.
        log10_p: log10 of it, without its limit at 1e-300.
        effect: Nats per example boundary.
        effect_se: Its standard error.
        mde: Smallest effect found with power 0.8 at level 0.001.
        auc: For `min_k`, the probability that a text of the set outscores one of the
            reference; None for order tests, like its standard error. A ranking, which
            proves nothing.
        auc_se: DeLong standard error.
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
    """Refuse times of audits that cannot be, before anything slow.

    Raises:
        InputError: Names the flag.
    """
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
    """Steps after which to audit, ascending.

    Args:
        at: Shares of training: 0 is before the first step, 1 after the last one.
        every: Also after every N steps and after the last one; None for none.
        n_steps: Steps in all.

    Raises:
        InputError: As `check_audit_flags`.
    """
    check_audit_flags(at, every)
    # A share above 0 asks for a model that was trained, however little.
    steps = {max(1, round(share * n_steps)) if share else 0 for share in at}
    if every is not None:
        steps |= {*range(every, n_steps, every), n_steps}
    return tuple(sorted(steps))
