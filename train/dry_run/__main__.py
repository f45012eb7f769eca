"""Does a training run fit named hardware, and what will it cost? Nothing is allocated.

Question: does the model fit, how long does a step take, and how many chip-hours will
the run take? Command: `python -m train.dry_run --preset 1.4b --on v4-8 --tokens 20e9`.
Hardware: any; each candidate step is compiled for virtual devices, which takes some 20
seconds.
"""

import bisect
import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_positive
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh
from jaxcontam.terminal import Terminal
from train.dry_run.absent import absent_devices, has_compiler, use_virtual_devices
from train.dry_run.compiled import CompiledMemory, compiled_memory, state_bytes
from train.dry_run.estimate import (
    Estimate,
    estimate,
    estimate_lines,
    estimate_to_json,
)
from train.dry_run.hardware import Machine, machine
from train.presets import PRESETS, Preset

# PaLM's training reached 0.578, communication included (Chowdhery et al. 2022,
# arXiv:2204.02311, table 3); this code was not measured.
_EFFICIENCY = 0.5
_MAX_MICRO_BATCHES = 64


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
    """Such as data=2,model=4 (default: the smallest model axis that fits)."""
    batch_rows: int | None = None
    """Rows a step, over all devices (default: the preset's)."""
    row_tokens: int | None = None
    """Targets of a row (default: the model's context)."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Matmul precision (default: the preset's)."""
    remat: Annotated[bool | None, tyro.conf.FlagConversionOff] = None
    """Rematerialise blocks in the backward pass (default: the preset's)."""
    micro_batches: int | None = None
    """Split a batch into this many parts (default: as few as fit)."""
    efficiency: float = _EFFICIENCY
    """Share of the peak reached over a whole step; an assumption."""
    price_per_chip_hour: float | None = None
    """Gives the cost, in the same currency."""
    compile: bool = True
    """Ask the compiler for memory; without, weights, moments and gradients alone are
    counted, at once."""
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
        self._preset()

    def run(self) -> Estimate:
        """Search, print and return the estimate of the chosen mesh."""
        on, preset = machine(self.on), self._preset()
        if self.compile:
            use_virtual_devices(on.n_chips, are_compiled_for=not has_compiler(on))
        found = search(
            preset,
            on,
            self._shapes(on, preset),
            self._micro_batch_choices(on, preset),
            efficiency=self.efficiency,
            compiles=self.compile,
        )
        told = {"tokens": self.tokens, "price": self.price_per_chip_hour}
        if self.json:
            print(json.dumps(estimate_to_json(found, **told), allow_nan=False))
        else:
            lines = estimate_lines(found, **told, efficiency=self.efficiency)
            print("\n".join(lines))
        return found

    def _shapes(self, on: Machine, preset: Preset) -> list[MeshShape]:
        """Meshes to choose from, the model axis ascending."""
        n = on.n_chips
        if self.mesh is None:
            sizes = [m for m in range(1, n + 1) if n % m == 0]
            return [MeshShape(n // m, m) for m in sizes if _divides(preset, m)]
        asked = parse_mesh(self.mesh)
        data = n // asked.model if asked.data is None else asked.data
        if data * asked.model != n:
            raise InputError(
                f"--mesh {self.mesh}: {on.name} has {n} chips",
                hint="data times model is the number of chips; leave data out",
            )
        if not _divides(preset, asked.model):
            raise InputError(
                f"--mesh {self.mesh}: no weight of {preset.name} divides by "
                f"{asked.model}"
            )
        return [MeshShape(data, asked.model)]

    def _micro_batch_choices(self, on: Machine, preset: Preset) -> list[int]:
        """Numbers of micro-batches that divide a chip's rows, ascending."""
        rows, rest = divmod(preset.batch_rows, on.n_chips)
        asked = self.micro_batches
        choices = range(1, _MAX_MICRO_BATCHES + 1) if asked is None else (asked,)
        found = [n for n in choices if not rest and rows % n == 0]
        if not found:
            raise InputError(
                f"a step has {preset.batch_rows} rows, which do not divide by "
                f"{on.n_chips} chips x {asked or 1} micro-batches",
                hint=f"--batch-rows {-(-preset.batch_rows // on.n_chips) * on.n_chips}",
            )
        return found

    def _preset(self) -> Preset:
        return PRESETS[self.preset].changed(
            batch_rows=self.batch_rows,
            row_tokens=self.row_tokens,
            dtype=self.dtype,
            remat=self.remat,
        )


def search(
    preset: Preset,
    on: Machine,
    shapes: Sequence[MeshShape],
    choices: Sequence[int],
    *,
    efficiency: float,
    compiles: bool = True,
) -> Estimate:
    """Choose the mesh and the fewest micro-batches that fit.

    Args:
        preset: What is trained.
        on: The hardware.
        shapes: Meshes, the model axis ascending.
        choices: Numbers of micro-batches, ascending; memory falls along them.
        efficiency: See `estimate`.
        compiles: Ask a compiler where the state alone fits.

    Returns:
        The first mesh that fits; the one with the smallest need if none fits.
    """

    @functools.cache
    def at(shape: MeshShape, n_micro: int, compiles: bool = compiles) -> Estimate:
        compute = dataclasses.replace(preset.compute, n_micro=n_micro)
        part = dataclasses.replace(preset, compute=compute)
        found = estimate(part, on, shape, efficiency=efficiency)
        if not compiles or not found.fits:
            return found
        return dataclasses.replace(found, compiled=_compiled(part, on, shape))

    best = None
    for shape in shapes:
        first = len(choices) - 1
        if at(shape, choices[0], False).fits:  # the state does
            first = bisect.bisect_left(choices, True, key=lambda n: at(shape, n).fits)
        found = at(shape, choices[min(first, len(choices) - 1)])
        if found.fits:
            return found
        if best is None or found.needed < best.needed:
            best = found
    assert best is not None, "there is a mesh"
    return best


def _compiled(preset: Preset, on: Machine, shape: MeshShape) -> CompiledMemory:
    """Ask the hardware's own compiler where it is installed, else the CPU's."""
    asked = on if has_compiler(on) else None
    words = (
        f"compiling for {'CPU' if asked is None else on.name} devices: "
        f"mesh {shape}, {preset.compute.n_micro} micro-batches"
    )
    console = Terminal(stderr=True)
    if not console.is_terminal:
        print(words + " ...", file=sys.stderr, flush=True)
    with console.status(words):
        return compiled_memory(preset, shape.model, absent_devices(asked))


def _divides(preset: Preset, model: int) -> bool:
    """Whether `model` devices can share the weights."""
    try:
        state_bytes(preset, model)
    except InputError:
        return False
    return True


def main() -> int:
    """Command line of `python -m train.dry_run`."""

    def run() -> None:
        parse(DryRun, sys.argv[1:], prog="python -m train.dry_run").run()

    return run_command(run, name="train.dry_run")


if __name__ == "__main__":
    sys.exit(main())
