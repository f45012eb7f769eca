"""How fast is scoring, beside what people use today?

Question: tokens a second against transformers' torch model (one by one with full
logits, batched with care, bfloat16) at fixed and real lengths; what moments, all
membership scores of one pass, the store and compilation cost; what a shared prefix
saves, and a cache when texts are written; re-draws against SciPy; orders of pair
matrices through the exact law; how reading, checks and planning grow with a file;
forms of training many small models; a training step against a plain torch loop.
Everything is measured in one run, ways in turn, on one core: ratios can be trusted
where seconds cannot.
Command: `python -m eval.speed` (files of a million rows: `--only growth_million`,
half an hour). Hardware: one CPU core, about 20 minutes, 4 GB.
Needs torch (`pip install -e .[test]`). Headline: LOG.md.
"""

import dataclasses
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.speed.measure import import_torch, pin_to_one_core
from eval.speed.table import judge, print_measured
from jaxcontam.cli import parse, run_command
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.report.provenance import utc_now
from jaxcontam.scoring.identity import cpu_name

_TRAIN_ROUNDS = 5

PARTS: Mapping[str, tuple[Any, ...]] = {
    "orders": ("host", "measure_orders"),
    "redraws": ("host", "measure_redraws"),
    "compiled": ("host", "measure_compiled"),
    "store": ("host", "measure_store"),
    "growth": ("growth", "measure_growth", 5),
    "growth_million": ("growth", "measure_growth", 6),
    "pairs": ("forward", "measure_pairs"),
    "generation": ("forward", "measure_generation"),
    "population": ("population", "measure_population"),
    "moments": ("forward", "measure_moments"),
    "membership": ("forward", "measure_membership"),
    "train": ("train", "measure_train"),
    "kernel_30m": ("kernel", "measure_kernel", "30m"),
    "real_30m": ("kernel", "measure_real", "30m"),
    "kernel_124m": ("kernel", "measure_kernel", "124m"),
    "real_124m": ("kernel", "measure_real", "124m"),
}
"""Part -> module of this package, its function, and the function's first arguments."""

ON_DEMAND = ("growth_million",)
"""Parts that are measured only where `--only` names them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measure scoring, its parts and its rivals on one core."""

    rounds: int = 3
    """Interleaved rounds."""
    tiny: bool = False
    """Small models and few texts: a pulse run, whose numbers mean nothing."""
    only: tuple[str, ...] = ()
    """Parts to measure (default: all but growth_million)."""
    train: bool = False
    """Measure the training step alone, in five rounds."""
    out: Path = Path("runs/speed")
    """Folder for speed.json."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"--rounds must be at least 1, got {self.rounds}")
        for name in self.only:
            if name not in PARTS:
                raise unknown_name("part", name, PARTS)

    def run(self) -> dict:
        """Measure, print, write; returns the measurements.

        The file is written after each part, so that an interruption loses one at most.
        """
        pin_to_one_core()
        make_folder(self.out)
        usual = tuple(name for name in PARTS if name not in ON_DEMAND)
        parts = ("train",) if self.train else self.only or usual
        rounds = max(self.rounds, _TRAIN_ROUNDS) if self.train else self.rounds
        import_torch()
        packages = ("jax", "jaxlib", "torch", "transformers")
        measured: dict[str, Any] = {
            "cpu": cpu_name(),
            "versions": ", ".join(
                f"{name} {importlib.metadata.version(name)}" for name in packages
            ),
            "started": utc_now(),
            "rounds": rounds,
            "tiny": self.tiny,
        }
        for name in parts:
            print(f"eval.speed: {name}", file=sys.stderr, flush=True)
            measured[name] = measure_part(name, rounds, tiny=self.tiny)
            measured["targets"] = judge(measured)
            self._write(measured)
        measured["finished"] = utc_now()
        self._write(measured)
        print_measured(measured, Console(highlight=False, width=100))
        return measured

    def _write(self, measured: Mapping[str, Any]) -> None:
        text = json.dumps(measured, indent=1) + "\n"
        replace_bytes(self.out / "speed.json", text.encode())


def measure_part(name: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Measurements of a part.

    Its module is imported now: JAX and torch size their thread pools when they are
    imported, which must be after the process was pinned to one core.
    """
    module, function, *arguments = PARTS[name]
    measure = getattr(importlib.import_module(f"eval.speed.{module}"), function)
    return measure(*arguments, rounds, tiny=tiny)


def main() -> int:
    """Command line of `python -m eval.speed`."""
    return run_command(
        lambda: parse(Speed, sys.argv[1:], prog="python -m eval.speed").run(),
        name="eval.speed",
    )


if __name__ == "__main__":
    sys.exit(main())
