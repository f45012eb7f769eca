"""How much of a GPU or a TPU do scoring and training use?

Question: tokens a second in bfloat16 for 124 M, 1.4 B and a 7 B shape with random
weights, as a share of the matrix products that the same device does in the same run,
and beside torch on the same GPU: transformers' model scored in batches, and trained
with autocast and sdpa. Each part runs in its own process.
Command: `python -m eval.accelerator`. Hardware: a GPU of 80 GB (torch beside JAX,
`pip install -e .[test]`) or a TPU chip; ten minutes.
Headline: on an H200 1.4 B is scored at 63 % of those products, 1.44 times torch, and
124 M trained at 42 %, 2.67 times torch.
"""

import dataclasses
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.accelerator.scoring import measure_scoring
from eval.accelerator.subjects import KEPT, in_fresh_process
from eval.accelerator.subjects import device as device_of
from eval.accelerator.training import measure_training
from eval.speed.measure import versions
from eval.study import Grid, print_grid, run_study, say, write_json
from jaxcontam.errors import InputError, check_names
from jaxcontam.reports.flags import check_positive
from jaxcontam.reports.report import utc_now


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Measure scoring and training on a GPU or a TPU."""

    rounds: int = 5
    """Rounds, in turn with torch's."""
    batch_tokens: int | None = None
    """Tokens of a batch that is scored (default: what users get)."""
    only: tuple[str, ...] = ()
    """Parts to measure (default: all)."""
    tiny: bool = False
    """Small models on any device: a pulse run, whose numbers mean nothing."""
    out: Path = Path("runs/accelerator")
    """Folder for accelerator.json."""

    def __post_init__(self) -> None:
        check_positive(self, "rounds", "batch_tokens")
        check_names("part", self.only, PARTS)

    def run(self) -> dict[str, Any]:
        """Measure, print, write; returns the measurements.

        The file is written after each part. A part that needs more memory than there is
        says so, and the others go on.

        Raises:
            InputError: If there is no accelerator and the run is not tiny, or if there
                are several devices.
        """
        # Torch needs its share of the memory; set before a device is first used.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        device = in_fresh_process(device_of)
        if device["platform"] == "cpu" and not self.tiny:
            raise InputError(
                "JAX finds no accelerator here",
                hint="pip install -e '.[cuda]' or '.[tpu]'; --tiny tries the code",
            )
        if device["n"] > 1:
            raise InputError(
                f"one device is measured, JAX finds {device['n']}",
                hint="CUDA_VISIBLE_DEVICES=0, or TPU_VISIBLE_CHIPS=0 with "
                "TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1 and TPU_PROCESS_BOUNDS=1,1,1",
            )
        measured: dict[str, Any] = {
            "device": device,
            "versions": versions(),
            "started": utc_now(),
            "rounds": self.rounds,
            "tiny": self.tiny,
        }
        for name in self.only or tuple(PARTS):
            say(f"eval.accelerator: {name}")
            try:
                measured[name] = PARTS[name](self)
            except MemoryError as e:
                measured[name] = {"failed": f"out of memory: {e}"}
            measured["goals"] = judge(measured)
            write_json(self.out / "accelerator.json", measured)
        print_measured(measured, Console(highlight=False, width=100))
        return measured


def _scoring(size: str) -> Callable[[Accelerator], dict[str, Any]]:
    return lambda given: in_fresh_process(
        measure_scoring, size, given.rounds, given.batch_tokens, given.tiny
    )


def _training(size: str) -> Callable[[Accelerator], dict[str, Any]]:
    # It starts a process for each side itself.
    return lambda given: measure_training(size, given.rounds, tiny=given.tiny)


PARTS: Mapping[str, Callable[[Accelerator], dict[str, Any]]] = {
    "score_124m": _scoring("124m"),
    "score_1.4b": _scoring("1.4b"),
    "score_7b": _scoring("7b"),
    "train_124m": _training("124m"),
    "train_1.4b": _training("1.4b"),
    f"train_{KEPT}": _training(KEPT),
}


_TRAIN = ("train_1.4b", "train_1.4b_kept")
GOALS = (
    (("score_1.4b",), "utilisation", 0.55, "scoring 1.4 B: share of the peak"),
    (("score_1.4b",), "ratio", 1.5, "scoring 1.4 B: times torch"),
    (("train_124m",), "utilisation", 0.45, "training 124 M: share of the peak"),
    (_TRAIN, "utilisation", 0.45, "training 1.4 B: share of the peak"),
)
"""Parts of which the best counts, number, least value, words."""


def judge(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each goal whose number was measured, and whether it is met."""
    rows = []
    for parts, number, least, words in GOALS:
        cells = [measured.get(part, {}) for part in parts]
        known = [cell[number] for cell in cells if cell.get(number) is not None]
        if number == "utilisation":
            known = [of_side["jaxcontam"] for of_side in known]
        if known:
            found = max(known)
            met = found >= least
            rows.append({"goal": words, "least": least, "found": found, "met": met})
    return rows


def print_measured(measured: Mapping[str, Any], console: Console) -> None:
    """Print one line a part, and the goals."""
    device = measured["device"]
    title = (
        f"{device['kind']} ({device['platform']}, {device['n']}); "
        f"{measured['versions']}"
    )
    header = ("part", "tokens/s", "of peak", "torch", "of peak", "ratio", "peak", "GB")
    lines = [
        (part, *_numbers(cell))
        for part, cell in measured.items()
        if isinstance(cell, Mapping) and ("utilisation" in cell or "failed" in cell)
    ]
    print_grid(Grid(title, header, tuple(lines)), console)
    for row in measured["goals"]:
        console.print(
            f"{row['goal']}: {row['found']:.2f}, goal {row['least']:.2f}, "
            f"{'met' if row['met'] else 'not met'}"
        )


def _numbers(cell: Mapping[str, Any]) -> list[str]:
    if "failed" in cell:
        return [cell["failed"], *[""] * 6]

    def rate(name: str) -> list[str]:
        if name not in cell["tokens_per_second"]:
            return ["", ""]
        median = statistics.median(cell["tokens_per_second"][name])
        return [f"{median:,.0f}", f"{cell['utilisation'][name]:.0%}"]

    memory = cell["memory_gb"]
    memory = memory["jaxcontam"] if isinstance(memory, Mapping) else memory
    return [
        *rate("jaxcontam"),
        *rate("torch"),
        "" if cell["ratio"] is None else f"{cell['ratio']:.2f}",
        f"{max(cell['peak_tflops'].values()):,.1f} TF/s",
        "" if memory is None else f"{memory:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(run_study("accelerator", Accelerator))
