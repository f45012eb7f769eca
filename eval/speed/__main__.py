"""How fast is scoring, beside what people use today?

Question: tokens a second against transformers' torch model (one by one with full
logits, batched with care, bfloat16) at fixed and real lengths; what moments and all
membership scores of one pass cost; how reading, checks and planning grow with a file;
a training step against a plain torch loop. Everything is measured in one run, ways in
turn, on one core: ratios can be trusted where seconds cannot.
Command: `python -m eval.speed`. Hardware: one CPU core, a quarter of an hour, 4 GB.
Needs torch (`pip install -e .[test]`). Headline: docs/log.
"""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.speed.measure import import_torch, pin_to_one_core, versions
from eval.study import run_study, say, write_json
from jaxcontam.errors import InputError, check_names
from jaxcontam.reports.report import utc_now
from jaxcontam.scoring.identity import cpu_name

PARTS: Mapping[str, tuple[Any, ...]] = {
    "growth": ("growth", "measure_growth", 5),
    "growth_million": ("growth", "measure_growth", 6),
    "audit_memory": ("memory", "measure_audit"),
    "moments": ("scores", "measure_moments"),
    "membership": ("scores", "measure_membership"),
    "train": ("train", "measure_train"),
    "kernel_30m": ("kernel", "measure_kernel", "30m"),
    "real_30m": ("kernel", "measure_real", "30m"),
    "kernel_124m": ("kernel", "measure_kernel", "124m"),
    "real_124m": ("kernel", "measure_real", "124m"),
}
"""Part -> module of this package, its function, and the function's first arguments."""

ON_DEMAND = ("growth_million", "audit_memory")
"""Parts that take long, and are measured only where they are named."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measure scoring, its parts and its rivals on one core."""

    rounds: int = 3
    """Interleaved rounds."""
    tiny: bool = False
    """Small models and few texts: a pulse run, whose numbers mean nothing."""
    only: tuple[str, ...] = ()
    """Parts to measure (default: all but growth_million and audit_memory)."""
    out: Path = Path("runs/speed")
    """Folder for speed.json."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"--rounds must be at least 1, got {self.rounds}")
        check_names("part", self.only, PARTS)

    def run(self) -> dict:
        """Measure, print, write; returns the measurements.

        The file is written after each part, so that an interruption loses one at most.
        """
        pin_to_one_core()
        # Imports JAX, which must be after that.
        from eval.speed.tables import judge, print_measured

        import_torch()
        measured: dict[str, Any] = {
            "cpu": cpu_name(),
            "versions": versions(),
            "started": utc_now(),
            "rounds": self.rounds,
            "tiny": self.tiny,
        }
        for name in self.only or [name for name in PARTS if name not in ON_DEMAND]:
            say(f"eval.speed: {name}")
            measured[name] = measure_part(name, self.rounds, tiny=self.tiny)
            measured["targets"] = judge(measured)
            write_json(self.out / "speed.json", measured)
        measured["finished"] = utc_now()
        write_json(self.out / "speed.json", measured)
        print_measured(measured, Console(highlight=False, width=100))
        return measured


def measure_part(name: str, rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Measurements of a part.

    Its module is imported now: JAX and torch size their thread pools when they are
    imported, which must be after the process was pinned to one core.
    """
    module, function, *arguments = PARTS[name]
    measure = getattr(importlib.import_module(f"eval.speed.{module}"), function)
    return measure(*arguments, rounds, tiny=tiny)


if __name__ == "__main__":
    sys.exit(run_study("speed", Speed))
