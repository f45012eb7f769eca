"""Does a training run fit named hardware, and what will it cost? Nothing is allocated.

Question: does the model fit, how long does a step take, and how many chip-hours will
the run take? Command: `python -m train.dry_run --preset 1.4b --on v4-8 --tokens 20e9`.
Hardware: any; the step is compiled for virtual devices, which takes a minute or two
where rows are long.
"""

import dataclasses
import json
import sys
from typing import Annotated, Literal

import tyro

from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_positive
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh
from jaxcontam.terminal import Terminal
from train.dry_run.answer import Answer, answer_to_json
from train.dry_run.compiled import CompiledStep, compile_elsewhere, has_tpu_compiler
from train.dry_run.hardware import Machine, machine
from train.dry_run.memory import step_memory, weight_counts
from train.dry_run.step_time import expected_collectives, step_time
from train.dry_run.table import answer_lines
from train.presets import PRESETS, Preset
from train.step import Compute

# Of a chip's memory, for the runtime, the program, gaps between arrays, and what the
# formula may be wrong by.
_RESERVE = 0.15
# PaLM's training reached 0.578 (Chowdhery et al. 2022, arXiv:2204.02311, table 3);
# this code's is not measured.
_EFFICIENCY = 0.5
_MOST_MICRO_BATCHES = 64
# Of meshes that are as fast but for so much, the one that divides least: what each
# collective waits for the others is not reckoned.
_TIE = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Tell whether a training run fits named hardware, and what it will cost."""

    preset: str
    """Shape of the model, as in train.pretrain."""
    on: str
    """Hardware: v4-8, v5e-64, v5p-8, v6e-8, a100-80-8, h100-8, h200-8 and other sizes.
    v4 and v5p count TensorCores, two a chip; the others count chips."""
    tokens: float = 20e9
    """Tokens to train on."""
    mesh: str | None = None
    """Such as data=2,model=4 (default: the smallest model axis that fits and is within
    5 % of the fastest)."""
    batch_rows: int | None = None
    """Rows a step, over all devices (default: the preset's)."""
    row_tokens: int | None = None
    """Targets of a row (default: the model's context)."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Of the operands of matrix products (default: the preset's)."""
    remat: bool | None = None
    """Compute blocks again for their gradients (default: the preset's)."""
    micro_batches: int | None = None
    """Read a batch in so many parts (default: as few as fit)."""
    efficiency: float = _EFFICIENCY
    """Share of the peak reached in what is computed; an assumption."""
    price_per_chip_hour: float | None = None
    """Gives the cost, in the same currency."""
    compile: bool = True
    """Compile the step; without, the formulas alone answer at once."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON on standard output."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        machine(self.on)
        parse_mesh(self.mesh)
        check_positive(self, "batch_rows", "row_tokens", "micro_batches")
        for name in ("tokens", "efficiency", "price_per_chip_hour"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                flag = "--" + name.replace("_", "-")
                raise InputError(f"{flag} must be above 0, got {value}")
        if self.efficiency > 1:
            raise InputError(f"--efficiency is at most 1, got {self.efficiency}")
        context = PRESETS[self.preset].decoder.context
        if (self.row_tokens or 0) > context:
            raise InputError(
                f"--row-tokens must be at most the model's context of {context}, "
                f"got {self.row_tokens}"
            )

    def run(self) -> Answer:
        """Search, compile, reckon, print."""
        chosen = self._chosen()
        if self.compile:
            chosen = dataclasses.replace(chosen, compiled=self._compiled(chosen))
        if self.json:
            print(json.dumps(answer_to_json(chosen), allow_nan=False))
        else:
            print("\n".join(answer_lines(chosen, self.efficiency, _RESERVE)))
        return chosen

    def _chosen(self) -> Answer:
        """The fastest mesh that fits, or the smallest need if none does."""
        on, preset = machine(self.on), self._preset()
        found = [
            self._answer(on, preset, shape, n_micro)
            for shape in self._shapes(on, preset)
            for n_micro in self._parts(on, preset)
        ]
        if not found:
            raise InputError(
                f"a step has {preset.batch_rows} rows, which do not divide by "
                f"{on.n_chips} chips x {self.micro_batches or 1} micro-batches",
                hint=f"--batch-rows {-(-preset.batch_rows // on.n_chips) * on.n_chips}",
            )
        fitting = [one for one in found if one.fits]
        if not fitting:
            return min(found, key=lambda one: one.needed)
        limit = (1 + _TIE) * min(one.time.worst for one in fitting)
        return min(
            (one for one in fitting if one.time.worst <= limit),
            key=lambda one: (one.shape.model, one.preset.compute.n_micro),
        )

    def _answer(
        self, on: Machine, preset: Preset, shape: MeshShape, n_micro: int
    ) -> Answer:
        compute = dataclasses.replace(preset.compute, n_micro=n_micro)
        preset = dataclasses.replace(preset, compute=compute)
        data = on.n_chips // shape.model
        sent = expected_collectives(preset, data=data, model=shape.model)
        return Answer(
            preset=preset,
            machine=on,
            shape=MeshShape(data=data, model=shape.model),
            usable=round((1 - _RESERVE) * on.chip.memory_bytes),
            memory=step_memory(
                preset, data=data, model=shape.model, platform=on.platform
            ),
            cpu_memory=step_memory(preset, data=data, model=shape.model),
            compiled=(),
            sent=sent,
            time=step_time(
                preset, on, sent, model=shape.model, efficiency=self.efficiency
            ),
            tokens=self.tokens,
            price=self.price_per_chip_hour,
        )

    def _shapes(self, on: Machine, preset: Preset) -> list[MeshShape]:
        n = on.n_chips
        if self.mesh is None:
            return [
                MeshShape(model=m)
                for m in range(1, n + 1)
                if n % m == 0 and (m == 1 or weight_counts(preset.decoder, m).layers)
            ]
        asked = parse_mesh(self.mesh)
        data = n // asked.model if asked.data is None else asked.data
        if data * asked.model != n:
            raise InputError(
                f"--mesh {self.mesh}: {on.name} has {n} chips",
                hint="data times model is the number of chips; leave data out",
            )
        if asked.model > 1 and not weight_counts(preset.decoder, asked.model).layers:
            raise InputError(
                f"--mesh {self.mesh}: no weight of {preset.name} divides by "
                f"{asked.model}"
            )
        return [asked]

    def _parts(self, on: Machine, preset: Preset) -> list[int]:
        """Numbers of micro-batches that share the rows out."""
        rows, rest = divmod(preset.batch_rows, on.n_chips)
        if rest:
            return []
        asked = self.micro_batches
        choices = range(1, _MOST_MICRO_BATCHES + 1) if asked is None else (asked,)
        return [n for n in choices if rows % n == 0]

    def _preset(self) -> Preset:
        preset = PRESETS[self.preset]
        return dataclasses.replace(
            preset,
            batch_rows=self.batch_rows or preset.batch_rows,
            row_tokens=self.row_tokens or preset.row_tokens,
            compute=Compute(
                dtype=self.dtype or preset.compute.dtype,
                remat=preset.compute.remat if self.remat is None else self.remat,
            ),
        )

    def _compiled(self, chosen: Answer) -> tuple[CompiledStep, ...]:
        """By the CPU's compiler, and by the TPU's where it is installed."""
        asked: list[tuple[str, str | None]] = [("CPU", None)]
        if chosen.machine.slice_name is not None and has_tpu_compiler():
            asked.append((chosen.machine.chip.name, chosen.machine.slice_name))
        found = []
        console = Terminal(stderr=True)
        for name, slice_name in asked:
            words = f"compiling for {chosen.machine.n_chips} devices ({name})"
            if not console.is_terminal:
                print(words + " ...", file=sys.stderr, flush=True)
            with console.status(words):
                found.append(
                    compile_elsewhere(
                        chosen.preset,
                        chosen.shape.model,
                        chosen.machine.n_chips,
                        slice_name=slice_name,
                    )
                )
        return tuple(found)


def main() -> int:
    """Command line of `python -m train.dry_run`."""

    def run() -> None:
        parse(DryRun, sys.argv[1:], prog="python -m train.dry_run").run()

    return run_command(run, name="train.dry_run")


if __name__ == "__main__":
    sys.exit(main())
