"""How much of a GPU or a TPU do scoring and training use?

Question: tokens a second in bfloat16 for 124 M, 1.4 B and a 7 B shape with random
weights, as a share of the matrix products that the same device does in the same run,
and beside torch on the same GPU: transformers' model scored in batches, and trained
with autocast and sdpa. Each part runs in a process of its own.
Command: `python -m eval.accelerator`. Hardware: one GPU of 80 GB (torch beside JAX
there, `pip install -e .[test]`) or one TPU chip (without torch); some ten minutes.
Headline: not run on an accelerator yet.
"""

import dataclasses
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.accelerator.fresh import device as device_of
from eval.accelerator.fresh import in_fresh_process
from eval.accelerator.scoring import measure_scoring
from eval.accelerator.subjects import KEPT
from eval.accelerator.table import judge, print_measured
from eval.accelerator.training import measure_training
from eval.study import run_study
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.report.provenance import utc_now


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
        for name, value in (
            ("rounds", self.rounds),
            ("batch-tokens", self.batch_tokens),
        ):
            if value is not None and value < 1:
                raise InputError(f"--{name} must be at least 1, got {value}")
        for name in self.only:
            if name not in PARTS:
                raise unknown_name("part", name, PARTS)

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
        make_folder(self.out)
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
            "versions": _versions(),
            "started": utc_now(),
            "rounds": self.rounds,
            "tiny": self.tiny,
        }
        for name in self.only or tuple(PARTS):
            print(f"eval.accelerator: {name}", file=sys.stderr, flush=True)
            try:
                measured[name] = PARTS[name](self)
            except MemoryError as e:
                measured[name] = {"failed": f"out of memory: {e}"}
            measured["goals"] = judge(measured)
            text = json.dumps(measured, indent=1) + "\n"
            replace_bytes(self.out / "accelerator.json", text.encode())
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


def _versions() -> str:
    """Of the two rivals and of what they stand on."""
    found = []
    for name in ("jax", "jaxlib", "torch", "transformers"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def main() -> int:
    """Command line of `python -m eval.accelerator`."""
    return run_study("accelerator", Accelerator)


if __name__ == "__main__":
    sys.exit(main())
