"""Does a training run fit named hardware, and what will it cost? Nothing is allocated.

Question: does the model fit, how long does a step take, and how many chip-hours will
the run take? Command: `python -m train.dry_run --preset 1.4b --on v4-8 --tokens 20e9`.
Hardware: any; each candidate step is compiled for virtual devices, which takes some 20
seconds.

Memory is the compiler's own analysis. Time is that of the matrix products at an assumed
share of the datasheet's peak, which stands for all that devices wait for, the network
among it. Nothing is measured.
"""

import bisect
import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from jaxcontam.cli import run_module
from jaxcontam.commands.flags import check_positive, flag_of
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.flops import forward_flops
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh
from jaxcontam.terminal import Terminal
from train.hardware import (
    Machine,
    absent_devices,
    has_compiler,
    machine,
    use_virtual_devices,
)
from train.presets import PRESETS, Preset
from train.program import (
    CompiledMemory,
    compiled_memory,
    divides,
    program_lines,
    state_bytes,
)

RESERVE = 0.15
"""Share of a chip's memory left for the runtime, the program and fragmentation."""
# PaLM's training reached 0.578, communication included (Chowdhery et al. 2022,
# arXiv:2204.02311, table 3); this code was not measured.
_EFFICIENCY = 0.5
_MAX_MICRO_BATCHES = 64
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One training run on one mesh.

    Attributes:
        preset: What is trained, micro-batches included.
        machine: The hardware.
        shape: Its mesh.
        efficiency: Share of the peak reached over a whole step, in (0, 1]; assumed.
        state: Bytes of weights, moments and gradients on a chip; no step needs less.
        compiled: The compiler's analysis; None if it was not asked.
    """

    preset: Preset
    machine: Machine
    shape: MeshShape
    efficiency: float
    state: int
    compiled: CompiledMemory | None = None

    @property
    def usable(self) -> int:
        """Bytes of a chip's memory that a step may take."""
        return round((1 - RESERVE) * self.machine.chip.memory_gib * _GIB)

    @property
    def needed(self) -> int:
        """Bytes on a chip: the compiler's peak, or the state alone without one."""
        peak = None if self.compiled is None else self.compiled.peak_bytes
        return self.state if peak is None else peak

    @property
    def fits(self) -> bool:
        """Whether a step leaves the reserve free and no compiler refuses it."""
        refused = self.compiled is not None and self.compiled.refused is not None
        return not refused and self.needed <= self.usable

    @property
    def flops(self) -> float:
        """Operations of a step, what rematerialised blocks compute again included."""
        preset = self.preset
        if not preset.compute.remat:
            return preset.step_flops
        # The forward pass is computed once more, without the head.
        rows = [preset.context] * preset.batch_rows
        head = 2.0 * preset.decoder.vocab_size * preset.decoder.d_model
        again = forward_flops(preset.decoder, rows) - head * preset.step_tokens
        return preset.step_flops + again

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        peak = self.machine.n_chips * self.machine.chip.peak_tflops * 1e12
        return self.flops / (self.efficiency * peak)

    @property
    def mfu(self) -> float:
        """Share of the peak that the model's own operations reach."""
        return self.efficiency * self.preset.step_flops / self.flops

    def hours(self, tokens: float) -> float:
        """Hours of a run on `tokens` tokens."""
        return tokens / self.preset.step_tokens * self.seconds / 3600

    def train_flags(self) -> tuple[str, ...]:
        """Flags with which `train.pretrain` trains what was estimated."""
        preset, usual = self.preset, PRESETS[self.preset.name]
        flags = ["--preset", preset.name, "--mesh", str(self.shape)]
        flags += ["--micro-batches", str(preset.compute.n_micro)]
        for flag, now, before in (
            ("--batch-rows", preset.batch_rows, usual.batch_rows),
            ("--row-tokens", preset.context, usual.context),
            ("--dtype", preset.compute.dtype, usual.compute.dtype),
            ("--remat", preset.compute.remat, usual.compute.remat),
        ):
            if now != before:
                flags += [flag, str(now)]
        return tuple(flags)


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
                raise InputError(f"{flag_of(name)} must be above 0, got {value}")
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
        told = (found, self.tokens, self.price_per_chip_hour)
        if self.json:
            print(json.dumps(estimate_to_json(*told), allow_nan=False))
        else:
            print("\n".join(estimate_lines(*told)))
        return found

    def _shapes(self, on: Machine, preset: Preset) -> list[MeshShape]:
        """Meshes to choose from, the model axis ascending."""
        n = on.n_chips
        if self.mesh is None:
            sizes = [m for m in range(1, n + 1) if n % m == 0]
            return [MeshShape(n // m, m) for m in sizes if divides(preset, m)]
        asked = parse_mesh(self.mesh)
        data = n // asked.model if asked.data is None else asked.data
        if data * asked.model != n:
            raise InputError(
                f"--mesh {self.mesh}: {on.name} has {n} chips",
                hint="data times model is the number of chips; leave data out",
            )
        if not divides(preset, asked.model):
            words = f"no weight of {preset.name} divides by {asked.model}"
            raise InputError(f"--mesh {self.mesh}: {words}")
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
        efficiency: As of `Estimate`.
        compiles: Ask a compiler where the state alone fits.

    Returns:
        The first mesh that fits; the one with the smallest need if none fits.
    """

    @functools.cache
    def at(shape: MeshShape, n_micro: int, compiles: bool = compiles) -> Estimate:
        compute = dataclasses.replace(preset.compute, n_micro=n_micro)
        found = Estimate(
            preset=dataclasses.replace(preset, compute=compute),
            machine=on,
            shape=shape,
            efficiency=efficiency,
            state=state_bytes(preset, shape.model),
        )
        if not compiles or not found.fits:
            return found
        return dataclasses.replace(found, compiled=_compiled(found))

    tried: list[Estimate] = []
    for shape in shapes:
        first = last = len(choices) - 1
        if at(shape, choices[0], False).fits:  # the state does
            first = bisect.bisect_left(choices, True, key=lambda n: at(shape, n).fits)
        tried.append(at(shape, choices[min(first, last)]))
        if tried[-1].fits:
            return tried[-1]
    return min(tried, key=lambda found: found.needed)


def _compiled(found: Estimate) -> CompiledMemory:
    """Ask the hardware's own compiler where it is installed, else the CPU's."""
    asked = found.machine if has_compiler(found.machine) else None
    words = (
        f"compiling for {'CPU' if asked is None else asked.name} devices: "
        f"mesh {found.shape}, {found.preset.compute.n_micro} micro-batches"
    )
    console = Terminal(stderr=True)
    if not console.is_terminal:
        print(words + " ...", file=sys.stderr, flush=True)
    with console.status(words):
        devices = absent_devices(asked)
        return compiled_memory(found.preset, found.shape.model, devices)


def estimate_to_json(
    found: Estimate, tokens: float, price: float | None
) -> dict[str, Any]:
    """JSON values; bytes, seconds and hours. `price` is of a chip-hour, or None."""
    on, compiled = found.machine, found.compiled
    chip_hours = on.n_chips * found.hours(tokens)
    return {
        "preset": found.preset.name,
        "hardware": on.name,
        "chip": on.chip.name,
        "n_chips": on.n_chips,
        "mesh": dataclasses.asdict(found.shape),
        "batch_rows": found.preset.batch_rows,
        "row_tokens": found.preset.context,
        "compute": dataclasses.asdict(found.preset.compute),
        "fits": found.fits,
        "train_flags": found.train_flags(),
        "usable_bytes": found.usable,
        "needed_bytes": found.needed,
        "state_bytes": found.state,
        "compiled": None if compiled is None else dataclasses.asdict(compiled),
        "step_seconds": found.seconds,
        "mfu": found.mfu,
        "tokens": tokens,
        "hours": found.hours(tokens),
        "chip_hours": chip_hours,
        "cost": None if price is None else chip_hours * price,
    }


def estimate_lines(found: Estimate, tokens: float, price: float | None) -> list[str]:
    """Lines for people: verdict, memory, time, cost."""
    on, preset, compute = found.machine, found.preset, found.preset.compute
    rows = preset.batch_rows // (on.n_chips * compute.n_micro)
    lines = [
        f"{preset.name} on {on.name} ({on.n_chips} chips of {on.chip.memory_gib} GiB): "
        + ("fits" if found.fits else "DOES NOT FIT"),
        f"  needs {found.needed / _GIB:.1f} GiB a chip of {found.usable / _GIB:.1f} "
        f"({RESERVE:.0%} are left free)",
        f"  mesh {found.shape}; {preset.batch_rows} rows of "
        f"{preset.context:,} tokens a step, {rows} a chip at once in "
        f"{compute.n_micro} micro-batches; {compute.dtype}"
        + (", rematerialised" if compute.remat else ""),
    ]
    if found.fits:
        lines.append(f"  flags of train.pretrain: {' '.join(found.train_flags())}")
    lines += ["", "memory a chip, GiB", *_memory_lines(found)]
    if found.compiled is not None and (program := found.compiled.program) is not None:
        lines += ["", "a step on a chip, read in the compiled program"]
        lines += program_lines(program, preset.decoder.n_layers)
    lines += [
        "",
        f"{found.seconds:.3f} s a step, from the datasheet (nothing was measured)",
        f"  assumed: {found.efficiency:.0%} of the peak of {on.chip.peak_tflops:.0f} "
        f"TFLOP/s in what is computed, so {found.mfu:.0%} MFU",
    ]
    if compute.dtype == "float32":
        lines.append("  the peak is bfloat16's: float32 takes longer than this")
    hours = found.hours(tokens)
    lines += [
        f"  tokens a second {preset.step_tokens / found.seconds:,.0f}",
        f"{tokens:,.0f} tokens: {hours:,.1f} hours, "
        f"{on.n_chips * hours:,.0f} chip-hours",
    ]
    if price is not None:
        lines.append(f"  at {price:g} each: {on.n_chips * hours * price:,.0f}")
    return lines


def _memory_lines(found: Estimate) -> list[str]:
    compiled = found.compiled
    lines = [f"  {'weights, moments, gradients':36}{found.state / _GIB:8.2f}"]
    if compiled is None:
        more = "activations are not counted: ask the compiler, without --no-compile"
        return [*lines, f"  {more}"]
    compiler = compiled.compiler.upper()
    if compiled.peak_bytes is None:
        return [*lines, f"  {compiler} compiler: {compiled.refused}"]
    words = f"peak, {compiler} compiler ({compiled.seconds:.0f} s)"
    lines.append(f"  {words:36}{compiled.peak_bytes / _GIB:8.2f}")
    if compiled.compiler == "cpu":
        lines.append(
            "  an upper bound: a CPU keeps attention's scores and widens bfloat16"
        )
        extra = "cuda" if found.machine.slice_name is None else "tpu"
        lines.append(f"  pip install -e '.[{extra}]': its own compiler answers instead")
    return lines


def main() -> int:
    """Command line of `python -m train.dry_run`."""
    return run_module(DryRun, "train.dry_run")


if __name__ == "__main__":
    sys.exit(main())
