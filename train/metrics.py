"""`metrics.jsonl`: one row a training step, and the same as TensorBoard scalars."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from jaxcontam.data.claims import claimed
from jaxcontam.errors import InputError
from train.step_log import cut_rows, row_bytes

METRICS_NAME = "metrics.jsonl"
# Time constant of the running mean: a step's weight falls to 1/e after 50 steps.
_SMOOTHED_STEPS = 50


class MetricsLog:
    """Writes the metrics of a run, block of steps by block; a context manager.

    A row has `step` (from 1), `loss` (mean over its targets, nats; null if not finite),
    `tokens` (targets trained on so far), `rate` (learning rate of the step) and
    `seconds` (wall time of training when the loss was known, earlier processes
    included).
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
        losses: Sequence[float],
        *,
        rates: Sequence[float],
        tokens_a_step: int,
        seconds: float,
    ) -> None:
        """Write a block of steps; when it returns, the system has them.

        The last step counts from 1, the seconds since this process began to train.
        """
        first = last_step - len(losses) + 1
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "loss": float(loss) if math.isfinite(loss) else None,
                "tokens": step * tokens_a_step,
                # More digits would only show that rates are float32.
                "rate": float(f"{rate:.6g}"),
                "seconds": round(self._seconds_before + seconds, 3),
            }
            for step, (loss, rate) in enumerate(zip(losses, rates, strict=True), first)
        ]
        self._file.write(row_bytes(rows))
        self.rows += rows
        if self._writer is None:
            return
        for row in rows:
            for name in ("loss", "rate"):
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
