"""How fast are scoring and training, compared with what people use today?

Question, on one CPU core: tokens a second against transformers' torch model (one by one
with full logits, batched with care, bfloat16) at fixed and real lengths, and of the
pairs that an audit scores of a model of SmolLM2's shape; a training step against
torch's; how time and memory of every job grow with a file. With
`--device accelerator`, on one GPU or TPU chip in bfloat16: tokens a second of 124 M,
1.4 B and a 7 B shape with random weights, as a share of the matrix products that the
device does in the same run, and of torch's on the same GPU. Ways take turns in one run:
ratios can be trusted where seconds cannot.
Command: `python -m eval.speed [--device accelerator]`. Hardware: one core, half an
hour, 4 GB; or a GPU of 80 GB or a TPU chip, ten minutes. Needs torch
(`pip install -e .[test]`), on a TPU none. Headline: docs/how_to/devices.md has a GPU's,
docs/log a core's.
"""

import dataclasses
import os
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.speed.compiled import SLICES, measure_compiled
from eval.speed.measure import Device, Table, device_found, in_fresh_process, versions
from eval.study import Grid, print_grid, run_study, say, write_json
from jaxcontam.errors import InputError, check_names
from jaxcontam.reports.flags import check_positive
from jaxcontam.reports.report import utc_now
from jaxcontam.scoring.identity import cpu_name

PARTS: Mapping[Device, Mapping[str, tuple[Any, ...]]] = {
    "cpu": {
        "growth": ("growth", "measure_growth"),
        "train": ("train", "measure_training", "30m"),
        "score_30m": ("scoring", "measure_core", "30m"),
        "score_124m": ("scoring", "measure_core", "124m"),
        "pairs_135m": ("scoring", "measure_pairs", "135m"),
    },
    "accelerator": {
        "score_124m": ("scoring", "measure_contexts", "124m"),
        "score_1.4b": ("scoring", "measure_contexts", "1.4b"),
        "score_7b": ("scoring", "measure_contexts", "7b"),
        "train_124m": ("train", "measure_training", "124m"),
        "train_1.4b": ("train", "measure_training", "1.4b"),
        "train_1.4b_kept": ("train", "measure_training", "1.4b_kept"),
    },
}
"""Part -> module of this package, its function, and the function's first arguments."""

ON_DEMAND = ("growth",)
"""Parts that take long, and are measured only where they are named."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Measure scoring, training, their parts and their rivals."""

    device: Device = "cpu"
    """One core, or the GPU or TPU chip that JAX finds."""
    rounds: int | None = None
    """Interleaved rounds (default: 3 on a CPU, 5 on an accelerator)."""
    tiny: bool = False
    """Small models and few texts, on any device: numbers mean nothing."""
    only: tuple[str, ...] = ()
    """Parts to measure (default: all but growth)."""
    compile_for: str | None = None
    """A TPU slice that is not here, such as v5e-8: say what XLA's compiler makes of our
    programs, and time nothing. Needs libtpu."""
    out: Path = Path("runs/speed")
    """Folder for cpu.json, accelerator.json or the slice's."""

    def __post_init__(self) -> None:
        check_positive(self, "rounds")
        check_names("part", self.only, PARTS[self.device])
        if self.compile_for is not None:
            check_names("slice", (self.compile_for,), SLICES)
        if self.compile_for is not None and (self.only or self.rounds):
            raise InputError("--compile-for times nothing: leave out --only, --rounds")

    def run(self) -> dict[str, Any]:
        """Measure, print, write; returns the measurements.

        The file is written after each part, so that an interruption loses one at most.
        A part that needs more memory than there is says so, and the others go on.

        Raises:
            InputError: If there is no accelerator and the run is not tiny, or if there
                are several devices.
        """
        console = Console(highlight=False)
        if self.compile_for is not None:
            import jax

            jax.config.update("jax_platforms", "cpu")
            table = measure_compiled(self.compile_for, tiny=self.tiny)
            found = {"versions": versions(), "finished": utc_now(), "programs": table}
            write_json(self.out / f"{self.compile_for}.json", found)
            title = f"{self.compile_for}, by the estimate of its compiler"
            print_grid(_grid(title, table), console)
            return found
        rounds = self.rounds or (3 if self.device == "cpu" else 5)
        parts: dict[str, Table] = {}
        measured: dict[str, Any] = {
            "device": self._claimed(),
            "versions": versions(),
            "started": utc_now(),
            "rounds": rounds,
            "tiny": self.tiny,
            "parts": parts,
        }
        console.print(f"{measured['device']}; {measured['versions']}")
        known = PARTS[self.device]
        for name in self.only or (name for name in known if name not in ON_DEMAND):
            say(f"eval.speed: {name}")
            try:
                parts[name] = in_fresh_process(
                    self.device, *known[name], rounds, tiny=self.tiny
                )
            except MemoryError as e:
                parts[name] = {"failed": {"out of memory": str(e)}}
            measured["finished"] = utc_now()
            write_json(self.out / f"{self.device}.json", measured)
            print_grid(_grid(name, parts[name]), console)
        return measured

    def _claimed(self) -> str:
        """Name of the one device; raises where there is another number of them."""
        if self.device == "cpu":
            return f"{cpu_name()}, one core"
        # Torch needs its share of the memory; set before a device is first used.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        found = device_found()
        if found["platform"] == "cpu" and not self.tiny:
            raise InputError(
                "JAX finds no accelerator here",
                hint="pip install -e '.[cuda]' or '.[tpu]'; --tiny tries the code",
            )
        if found["n"] > 1:
            raise InputError(
                f"it measures one device, JAX finds {found['n']}",
                hint="CUDA_VISIBLE_DEVICES=0, or TPU_VISIBLE_CHIPS=0 with "
                "TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1 and TPU_PROCESS_BOUNDS=1,1,1",
            )
        return f"{found['kind']} ({found['platform']})"


def _grid(name: str, table: Table) -> Grid:
    """A part's table; the median where there is a number for each round."""
    words = {
        (row, column): _word(value)
        for row, cells in table.items()
        for column, value in cells.items()
    }
    return Grid.crossed(name, "", words)


def _word(value: Any) -> str:
    if isinstance(value, list):
        value = statistics.median(value)
    if not isinstance(value, float):
        return f"{value}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(run_study("speed", Speed))
