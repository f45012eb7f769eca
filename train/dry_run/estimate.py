"""What a training run needs on named hardware: memory, time, chip-hours.

Memory is the compiler's own analysis. Time is that of the matrix products at an assumed
share of the datasheet's peak, which stands for all that devices wait for, the network
among it. Nothing is measured.
"""

import dataclasses
from typing import Any

from jaxcontam.models.flops import forward_flops
from jaxcontam.scoring.mesh_shape import MeshShape
from train.dry_run.compiled import CompiledMemory, state_bytes
from train.dry_run.hardware import Machine
from train.dry_run.program import Program
from train.presets import PRESETS, Preset
from train.progress import training_flops

RESERVE = 0.15
"""Share of a chip's memory left for the runtime, the program and fragmentation."""
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One training run on one mesh.

    Attributes:
        preset: What is trained, micro-batches included.
        machine: The hardware.
        data: Copies of the weights.
        model: Devices that share one copy.
        state: Bytes of weights, moments and gradients on a chip; no step needs less.
        seconds: Seconds of a step.
        mfu: Share of the peak that the model's own operations reach; rematerialised
            blocks lower it.
        compiled: The compiler's analysis; None if it was not asked.
    """

    preset: Preset
    machine: Machine
    data: int
    model: int
    state: int
    seconds: float
    mfu: float
    compiled: CompiledMemory | None = None

    @property
    def usable(self) -> int:
        """Bytes of a chip's memory that a step may take."""
        return round((1 - RESERVE) * self.machine.chip.memory_bytes)

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

    def hours(self, tokens: float) -> float:
        """Hours of a run on `tokens` tokens."""
        return tokens / self.preset.step_tokens * self.seconds / 3600


def estimate(
    preset: Preset, machine: Machine, shape: MeshShape, *, efficiency: float
) -> Estimate:
    """Estimate the memory and time of one step.

    Args:
        preset: Model, rows, precision and micro-batches.
        machine: The hardware.
        shape: Shape of the mesh; `data` follows from the number of chips.
        efficiency: Share of the peak reached over a whole step, in (0, 1].
    """
    data = machine.n_chips // shape.model
    model_flops = training_flops(preset.decoder, preset.batch_rows, preset.context)
    flops = model_flops
    if preset.compute.remat:
        # The forward pass is computed once more, without the head.
        rows = [preset.context] * preset.batch_rows
        head = 2.0 * preset.decoder.vocab_size * preset.decoder.d_model
        flops += forward_flops(preset.decoder, rows) - head * preset.step_tokens
    peak = machine.n_chips * machine.chip.peak_tflops * 1e12
    return Estimate(
        preset=preset,
        machine=machine,
        data=data,
        model=shape.model,
        state=state_bytes(preset, shape.model),
        seconds=flops / (efficiency * peak),
        mfu=efficiency * model_flops / flops,
    )


def train_flags(found: Estimate) -> tuple[str, ...]:
    """Flags with which `train.pretrain` trains what was estimated."""
    preset, usual = found.preset, PRESETS[found.preset.name]
    flags = ["--preset", preset.name]
    flags += ["--mesh", f"data={found.data},model={found.model}"]
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


def estimate_to_json(
    found: Estimate, *, tokens: float, price: float | None
) -> dict[str, Any]:
    """JSON values; bytes, seconds and hours. `price` is of a chip-hour, or None."""
    on, compiled = found.machine, found.compiled
    hours = found.hours(tokens)
    chip_hours = on.n_chips * hours
    return {
        "preset": found.preset.name,
        "hardware": on.name,
        "chip": on.chip.name,
        "n_chips": on.n_chips,
        "mesh": {"data": found.data, "model": found.model},
        "batch_rows": found.preset.batch_rows,
        "row_tokens": found.preset.context,
        "compute": dataclasses.asdict(found.preset.compute),
        "fits": found.fits,
        "train_flags": train_flags(found),
        "usable_bytes": found.usable,
        "needed_bytes": found.needed,
        "state_bytes": found.state,
        "compiled": None if compiled is None else dataclasses.asdict(compiled),
        "step_seconds": found.seconds,
        "mfu": found.mfu,
        "tokens": tokens,
        "hours": hours,
        "chip_hours": chip_hours,
        "cost": None if price is None else chip_hours * price,
    }


def estimate_lines(
    found: Estimate, *, tokens: float, price: float | None, efficiency: float
) -> list[str]:
    """Lines for people: verdict, memory, time, cost."""
    on, preset = found.machine, found.preset
    compute = preset.compute
    rows = preset.batch_rows // (on.n_chips * compute.n_micro)
    lines = [
        f"{preset.name} on {on.name} ({on.n_chips} chips of "
        f"{on.chip.memory_bytes / _GIB:.0f} GiB): "
        + ("fits" if found.fits else "DOES NOT FIT"),
        f"  needs {found.needed / _GIB:.1f} GiB a chip of {found.usable / _GIB:.1f} "
        f"({RESERVE:.0%} are left free)",
        f"  mesh data={found.data},model={found.model}; {preset.batch_rows} rows of "
        f"{preset.context:,} tokens a step, {rows} a chip at once in "
        f"{compute.n_micro} micro-batches; {compute.dtype}"
        + (", rematerialised" if compute.remat else ""),
    ]
    if found.fits:
        lines.append(f"  flags of train.pretrain: {' '.join(train_flags(found))}")
    lines += ["", "memory a chip, GiB", *_memory_lines(found)]
    if compiled := found.compiled and found.compiled.program:
        lines += ["", "a step on a chip, read in the compiled program"]
        lines += program_lines(compiled, preset.decoder.n_layers)
    hours = found.hours(tokens)
    lines += [
        "",
        f"{found.seconds:.3f} s a step, from the datasheet (nothing was measured)",
        f"  assumed: {efficiency:.0%} of the peak of {on.chip.peak_tflops:.0f} TFLOP/s "
        f"in what is computed, so {found.mfu:.0%} MFU",
    ]
    if compute.dtype == "float32":
        lines.append("  the peak is bfloat16's: float32 takes longer than this")
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
        return [
            *lines,
            "  activations are not counted: ask the compiler, without --no-compile",
        ]
    if compiled.peak_bytes is None:
        return [*lines, f"  {compiled.compiler.upper()} compiler: {compiled.refused}"]
    words = f"peak, {compiled.compiler.upper()} compiler ({compiled.seconds:.0f} s)"
    lines.append(f"  {words:36}{compiled.peak_bytes / _GIB:8.2f}")
    if compiled.compiler == "cpu":
        lines.append(
            "  an upper bound: a CPU keeps attention's scores and widens bfloat16"
        )
        extra = "cuda" if found.machine.slice_name is None else "tpu"
        lines.append(f"  pip install -e '.[{extra}]': its own compiler answers instead")
    return lines


def program_lines(program: Program, n_layers: int) -> list[str]:
    """Lines for people: what a compiled program does on one device."""
    layers = [f"{n:,}" for turns, n in program.loops if turns == n_layers]
    products = [f"{n} of {words}" for words, n in program.products.items()]
    return [
        f"  launches {program.launches:,}"
        + (f", {' and '.join(layers)} a layer" if layers else ""),
        f"  read and written {1e-9 * program.moved_bytes:,.1f} GB",
        f"  products in the program: {'; '.join(products)}",
    ]
