"""Does a training run fit named hardware, and what will it cost? Nothing is allocated.

Question: does the model fit, what does a step compute, and how many chip-hours will
the run take? Command: `python -m train.dry_run --preset 1.4b --on v4-8 --tokens 20e9`.
Hardware: any; each candidate step is compiled for virtual devices, which takes some 20
seconds.

Memory is the compiler's own analysis: the TPU's where libtpu is installed, else the
CPU's, an upper bound. Operations are those of `train.flops`, since the compilers'
analysis counts the body of a loop once, however often it runs. Time is theirs at an
assumed share of the datasheet's peak, which stands for all that devices wait for, the
network among it. Nothing is measured.

v4-8 and v5p-8 count TensorCores, two a chip; v5e-8, v6e-8 and h100-8 count chips.

Source:
    TPUs: Google Cloud's pages on TPU v4, v5e, v5p and v6e (docs.cloud.google.com/tpu),
    read November 2026. GPUs: NVIDIA's datasheets of A100, H100 and H200 in SXM boards,
    dense bfloat16.
"""

import dataclasses
import importlib.util
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.experimental import topologies
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxcontam.cli.main import run_module
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.models.fused_attention import hardware_of
from jaxcontam.models.sharding import DATA_AXIS, FSDP_AXIS, ROWS
from jaxcontam.reports.flags import flag_of
from jaxcontam.scoring.mesh import device_mesh
from jaxcontam.scoring.shares import MeshShape, parse_mesh
from jaxcontam.terminal import Terminal
from train.config import PRESETS, Config, ConfigFlags, changes
from train.flops import forward_flops
from train.loop import compiled_step
from train.step import abstract_params, adamw, param_shardings, state_shardings

RESERVE = 0.15
"""Share of a chip's memory left for the runtime, the program and fragmentation."""
# PaLM's training reached 0.578, communication included (Chowdhery et al. 2022,
# arXiv:2204.02311, table 3); this code was not measured.
_EFFICIENCY = 0.5
_MAX_MICRO_BATCHES = 64
_GIB = 1 << 30
# Length of the learning-rate schedule; it changes no shape.
_N_STEPS = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Chip:
    """Datasheet of one accelerator.

    Attributes:
        peak_tflops: bfloat16 products accumulated in float32, 10^12 operations/s.
        memory_gib: Device memory.
        topologies: TPU slices on offer, as XLA names them; none for GPUs.
        name_counts: Units in a machine's name that make one chip.
    """

    peak_tflops: float
    memory_gib: int
    topologies: str = ""
    name_counts: int = 1

    @property
    def slices(self) -> Mapping[int, str]:
        """Number of chips -> topology."""
        words = self.topologies.split()
        return {math.prod(map(int, word.split("x"))): word for word in words}


_TORUS_2D = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_TORUS_3D = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16"
CHIPS: Mapping[str, Chip] = {
    "v4": Chip(275, 32, _TORUS_3D, 2),
    "v5e": Chip(197, 16, _TORUS_2D),
    "v5p": Chip(459, 95, _TORUS_3D, 2),
    "v6e": Chip(918, 32, _TORUS_2D),
    "a100-40": Chip(312, 40),
    "a100-80": Chip(312, 80),
    "h100": Chip(989, 80),
    "h200": Chip(989, 141),
}
_NAME = re.compile(r"([a-z0-9]+(?:-[48]0)?)-(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """A number of chips of one kind; `name` is as the user typed it."""

    name: str
    kind: str
    n_chips: int

    @property
    def chip(self) -> Chip:
        """Its datasheet."""
        return CHIPS[self.kind]

    @property
    def slice_name(self) -> str | None:
        """Topology name for XLA's TPU compiler; None for GPUs."""
        shape = self.chip.slices.get(self.n_chips)
        return None if shape is None else f"{self.kind}:{shape}"


def machine(name: str) -> Machine:
    """Look up a machine name such as v4-8, v5e-64, v5litepod-64 or h100-8.

    Raises:
        InputError: If there is no such chip, or no slice of that size.
    """
    found = _NAME.fullmatch(name.lower())
    kind = "" if found is None else found[1].replace("v5litepod", "v5e")
    if found is None or kind not in CHIPS:
        error = unknown_name("hardware", name, CHIPS)
        hint = f"{error.hint}; each with its number, such as v4-8 or h100-8"
        raise InputError(str(error), hint=hint)
    chip, number = CHIPS[kind], int(found[2])
    n_chips, rest = divmod(number, chip.name_counts)
    if number < 1 or rest or (chip.slices and n_chips not in chip.slices):
        sizes = [f"{kind}-{n * chip.name_counts}" for n in chip.slices] or [f"{kind}-1"]
        raise InputError(f"{name}: no such size", hint=f"choices: {', '.join(sizes)}")
    return Machine(name, kind, n_chips)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One training run on one mesh.

    Attributes:
        config: What is trained, micro-batches included.
        machine: The hardware.
        shape: Its mesh.
        efficiency: Share of the peak reached over a whole step, in (0, 1]; assumed.
        state: Bytes of weights, moments and gradients on a chip; no step needs less.
        compiler: `cpu` or `tpu`, which analysed the step; None if none was asked.
        peak: Largest memory of a chip at any time, bytes; None if not asked or refused.
        refused: The compiler's reason for making no such step, or None.
    """

    config: Config
    machine: Machine
    shape: MeshShape
    efficiency: float
    state: int
    compiler: str | None = None
    peak: int | None = None
    refused: str | None = None

    @property
    def usable(self) -> int:
        """Bytes of a chip's memory that a step may take."""
        return round((1 - RESERVE) * self.machine.chip.memory_gib * _GIB)

    @property
    def needed(self) -> int:
        """Bytes on a chip: the compiler's peak, or the state alone without one."""
        return self.state if self.peak is None else self.peak

    @property
    def fits(self) -> bool:
        """Whether a step leaves the reserve free and no compiler refuses it."""
        return self.refused is None and self.needed <= self.usable

    @property
    def flops(self) -> float:
        """Operations of a step, what rematerialised blocks compute again included."""
        config = self.config
        if not config.compute.remat:
            return config.step_flops
        # The forward pass is computed once more, without the head.
        rows = [config.context] * config.batch_rows
        head = 2.0 * config.decoder.vocab_size * config.decoder.d_model
        again = forward_flops(config.decoder, rows) - head * config.step_tokens
        return config.step_flops + again

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        peak = self.machine.n_chips * self.machine.chip.peak_tflops * 1e12
        return self.flops / (self.efficiency * peak)

    @property
    def mfu(self) -> float:
        """Share of the peak that the model's own operations reach."""
        return self.efficiency * self.config.step_flops / self.flops

    def hours(self, tokens: float) -> float:
        """Hours of a run on `tokens` tokens."""
        return tokens / self.config.step_tokens * self.seconds / 3600

    def train_flags(self) -> tuple[str, ...]:
        """Flags with which `train.pretrain` trains what was estimated."""
        config = self.config
        flags = ["--preset", config.name, "--mesh", str(self.shape)]
        flags += ["--micro-batches", str(config.compute.micro_batches)]
        for name, value in changes(config, PRESETS[config.name]).items():
            if name != "micro_batches":
                flags += [flag_of(name), str(value)]
        return tuple(flags)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DryRun(ConfigFlags):
    """Tell whether a training run fits named hardware, and what it will cost."""

    micro_batches: int | None = None
    """Split a batch into this many parts (default: as few as fit)."""
    on: str
    """Hardware: v4-8, v5e-64, v5p-8, v6e-8, a100-80-8, h100-8, h200-8 and other sizes.
    v4 and v5p count TensorCores, two a chip; the others count chips."""
    tokens: float = 20e9
    """Tokens to train on."""
    mesh: str | None = None
    """Such as data=2,fsdp=4 (default: the smallest model axis that fits)."""
    efficiency: float = _EFFICIENCY
    """Share of the peak reached over a whole step; an assumption."""
    price_per_chip_hour: float | None = None
    """Gives the cost, in the same currency."""
    compile: bool = True
    """Ask the compiler for memory; without, weights, moments and gradients alone are
    counted, at once."""

    def __post_init__(self) -> None:
        ConfigFlags.__post_init__(self)
        machine(self.on)
        parse_mesh(self.mesh)
        for name in ("tokens", "efficiency", "price_per_chip_hour"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{flag_of(name)} must be above 0, got {value}")
        if self.efficiency > 1:
            raise InputError(f"--efficiency is at most 1, got {self.efficiency}")
        self.configured()

    def run(self) -> Estimate:
        """Search, print and return the estimate of the chosen mesh."""
        on, config = machine(self.on), self.configured()
        if self.compile:
            # Before anything asks what devices there are.
            _use_virtual_devices(on)
        shapes, choices = self._shapes(on, config), self._micro_batches(on, config)
        found = search(
            config,
            on,
            shapes,
            choices,
            efficiency=self.efficiency,
            compiles=self.compile,
        )
        print("\n".join(estimate_lines(found, self.tokens, self.price_per_chip_hour)))
        return found

    def _shapes(self, on: Machine, config: Config) -> list[MeshShape]:
        """Meshes to choose from, the model axis ascending."""
        n = on.n_chips
        if self.mesh is None:
            sizes = [m for m in range(1, n + 1) if n % m == 0]
            return [MeshShape(n // m, m) for m in sizes if _divides(config, m)]
        asked = parse_mesh(self.mesh)
        data = n // asked.fsdp if asked.data is None else asked.data
        if data * asked.fsdp != n:
            raise InputError(
                f"--mesh {self.mesh}: {on.name} has {n} chips",
                hint="data times model is the number of chips; leave data out",
            )
        if not _divides(config, asked.fsdp):
            words = f"no weight of {config.name} divides by {asked.fsdp}"
            raise InputError(f"--mesh {self.mesh}: {words}")
        return [MeshShape(data, asked.fsdp)]

    def _micro_batches(self, on: Machine, config: Config) -> list[int]:
        """Numbers of micro-batches that divide a chip's rows, ascending."""
        rows, rest = divmod(config.batch_rows, on.n_chips)
        asked = self.micro_batches
        choices = range(1, _MAX_MICRO_BATCHES + 1) if asked is None else (asked,)
        found = [n for n in choices if not rest and rows % n == 0]
        if not found:
            raise InputError(
                f"a step has {config.batch_rows} rows, which do not divide by "
                f"{on.n_chips} chips x {asked or 1} micro-batches",
                hint=f"--batch-rows {-(-config.batch_rows // on.n_chips) * on.n_chips}",
            )
        return found


def search(
    config: Config,
    on: Machine,
    shapes: Sequence[MeshShape],
    choices: Sequence[int],
    *,
    efficiency: float,
    compiles: bool = True,
) -> Estimate:
    """Choose the mesh and the fewest micro-batches that fit.

    Args:
        config: What is trained.
        on: The hardware.
        shapes: Meshes, the model axis ascending.
        choices: Numbers of micro-batches, ascending; memory falls along them.
        efficiency: As of `Estimate`.
        compiles: Ask a compiler where the state alone fits.

    Returns:
        The first that fits; the one with the smallest need if none does.
    """
    tried: list[Estimate] = []
    for shape in shapes:
        for micro_batches in choices:
            found = Estimate(
                config=dataclasses.replace(
                    config,
                    compute=dataclasses.replace(
                        config.compute, micro_batches=micro_batches
                    ),
                ),
                machine=on,
                shape=shape,
                efficiency=efficiency,
                state=state_bytes(config, shape.fsdp),
            )
            if compiles and found.fits:
                found = compiled_estimate(found)
            if found.fits:
                return found
            tried.append(found)
            if found.compiler is None:
                break  # the state alone is too large
    return min(tried, key=lambda found: found.needed)


def compiled_estimate(found: Estimate) -> Estimate:
    """Compile the step as a run makes it, and read the compiler's memory analysis."""
    on, config = found.machine, found.config
    devices = _devices(on)
    compiler = devices[0].platform
    words = (
        f"compiling for {compiler.upper()} devices: mesh {found.shape}, "
        f"{config.compute.micro_batches} micro-batches"
    )
    console = Terminal(stderr=True)
    if not console.is_terminal:
        print(words + " ...", file=sys.stderr, flush=True)
    mesh = device_mesh(MeshShape(fsdp=found.shape.fsdp), devices)
    graphdef, shapes = nnx.split(
        abstract_decoder(config.decoder, hardware_of(devices[0]))
    )
    optimizer = adamw(config.optimizer, _N_STEPS, shapes)
    rows = jax.ShapeDtypeStruct((config.batch_rows, config.context + 1), "int32")
    arguments = jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding
        ),
        (shapes, jax.eval_shape(optimizer.init, shapes), rows),
        (
            param_shardings(shapes, mesh),
            state_shardings(optimizer, shapes, mesh),
            NamedSharding(mesh, ROWS),
        ),
    )
    _, update = compiled_step(graphdef, config, _N_STEPS, mesh)
    try:
        with console.status(words):
            memory: Any = update.lower(*arguments).compile().memory_analysis()
    except jax.errors.JaxRuntimeError as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        refused = str(e).splitlines()[0]
        return dataclasses.replace(found, compiler=compiler, refused=refused)
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    peak += memory.output_size_in_bytes - memory.alias_size_in_bytes
    if compiler == "tpu":
        # Its temporary part counts gaps between arrays as well.
        peak = memory.peak_memory_in_bytes
    return dataclasses.replace(found, compiler=compiler, peak=peak)


def _has_compiler(on: Machine) -> bool:
    return on.slice_name is not None and bool(importlib.util.find_spec("libtpu"))


def _use_virtual_devices(on: Machine) -> None:
    """Make this process see as many CPU devices and look for no others."""
    if not _has_compiler(on):
        os.environ["XLA_FLAGS"] = " ".join(
            (
                "--xla_backend_optimization_level=0",
                "--xla_llvm_disable_expensive_passes=true",
                # On a CPU it copies masks for all rows and keeps them through the loop.
                "--xla_disable_hlo_passes=while-loop-invariant-code-motion",
            )
        )
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",
        TPU_ACCELERATOR_TYPE="v5litepod-8",
        TPU_WORKER_HOSTNAMES="localhost",
    )
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", on.n_chips)


def _devices(on: Machine) -> Sequence[Any]:
    """Devices of a slice that libtpu's compiler knows, or virtual CPUs."""
    if on.slice_name is None or not _has_compiler(on):
        return jax.devices()
    # A v4 chip has two cores, which a program sees as one device.
    more = {"chip_config_name": "megacore"} if on.kind == "v4" else {}
    return topologies.get_topology_desc(on.slice_name, platform="tpu", **more).devices


def state_bytes(config: Config, model: int) -> int:
    """Weights, two moments and gradients of a device, float32: no step needs less.

    Raises:
        InputError: If `model` devices cannot share the weights.
    """
    mesh: Any = AbstractMesh((1, model), (DATA_AXIS, FSDP_AXIS), (AxisType.Auto,) * 2)
    shapes = abstract_params(config.decoder)
    n_weights = jax.tree.map(
        lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)),
        shapes,
        param_shardings(shapes, mesh),
    )
    return 4 * 4 * sum(jax.tree.leaves(n_weights))


def _divides(config: Config, model: int) -> bool:
    try:
        state_bytes(config, model)
    except InputError:
        return False
    return True


def estimate_lines(found: Estimate, tokens: float, price: float | None) -> list[str]:
    """Verdict, memory, time, cost; `price` is of a chip-hour, or None."""
    on, config, compute = found.machine, found.config, found.config.compute
    rows = config.batch_rows // (on.n_chips * compute.micro_batches)
    chip_hours = on.n_chips * found.hours(tokens)
    source = f"the {str(found.compiler).upper()} compiler's analysis"
    if found.compiler is None:
        source = "weights, moments and gradients alone, without activations"
    if found.compiler == "cpu":
        source += ", an upper bound: it keeps attention's scores and widens bfloat16"
    lines = [
        f"{config.name} on {on.name} ({on.n_chips} chips of {on.chip.memory_gib} GiB): "
        + ("fits" if found.fits else "DOES NOT FIT"),
        f"  needs {found.needed / _GIB:.1f} GiB a chip of {found.usable / _GIB:.1f} "
        f"({RESERVE:.0%} are left free): {source}",
        f"  mesh {found.shape}; {config.batch_rows} rows of "
        f"{config.context:,} tokens a step, {rows} a chip at once in "
        f"{compute.micro_batches} micro-batches; {compute.dtype}"
        + (", rematerialised" if compute.remat else ""),
    ]
    if found.refused is not None:
        lines.append(f"  refused: {found.refused}")
    if found.fits:
        lines.append(f"  flags of train.pretrain: {' '.join(found.train_flags())}")
    if found.compiler == "cpu" and on.slice_name is not None:
        lines.append("  pip install -e '.[tpu]': its own compiler answers instead")
    lines += [
        f"{found.flops:.3g} operations and {found.seconds:.3f} s a step, from the "
        "datasheet (nothing was measured)",
        f"  assumed: {found.efficiency:.0%} of the peak of {on.chip.peak_tflops:.0f} "
        f"TFLOP/s in what is computed, so {found.mfu:.0%} MFU",
    ]
    if compute.dtype == "float32":
        lines.append("  the peak is bfloat16's: float32 takes longer than this")
    lines += [
        f"  tokens a second {config.step_tokens / found.seconds:,.0f}",
        f"{tokens:,.0f} tokens: {found.hours(tokens):,.1f} hours, "
        f"{chip_hours:,.0f} chip-hours"
        + ("" if price is None else f", {chip_hours * price:,.0f} in all"),
    ]
    return lines


def main() -> int:
    """Command line of `python -m train.dry_run`."""
    return run_module(DryRun, "train.dry_run")


if __name__ == "__main__":
    sys.exit(main())
