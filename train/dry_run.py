"""Does a training run fit named chips, and what will it cost? Nothing is allocated.

Command: `python -m train.dry_run --preset 1.4b --on v4-8 --tokens 20e9`. The step is
compiled for virtual CPU devices, whose memory is an upper bound: it holds attention's
scores and widened bfloat16 (1.2 to 1.35 times the TPU's, docs/log/2026-11.md). Time is
that of `train.flops` at an assumed share of the peak, by the datasheets of Google Cloud
(read November 2026) and of NVIDIA's SXM boards.
"""

import dataclasses
import itertools
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxcontam.cli.main import run_module
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.models.fused_attention import hardware_of
from jaxcontam.models.sharding import DATA_AXIS, FSDP_AXIS, ROWS
from jaxcontam.reports.flags import flag_of
from jaxcontam.scoring.mesh import device_mesh
from jaxcontam.scoring.parts import MeshShape, parse_mesh
from jaxcontam.terminal_text import shell_line
from train.config import PRESETS, Config, ConfigFlags, changes
from train.loop import check_rows, compiled_step
from train.optimizer import make_optimizer
from train.step import abstract_params, param_shardings, state_shardings

_GIB = 1 << 30
# Share of a chip's memory left for the runtime, the program and fragmentation.
_RESERVE = 0.15
# Length of the learning-rate schedule; it changes no shape.
_N_STEPS = 1000
_STATE = "weights, optimiser, gradients alone"
# A CPU copies masks for all rows out of a loop, and keeps them.
_FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion"
)


class Chip(NamedTuple):
    """Datasheet: bfloat16 TFLOP/s and memory; cores, if a name counts those."""

    tflops: float
    gib: int
    cores: int = 1


CHIPS = {
    "v4": Chip(275, 32, cores=2),
    "v5e": Chip(197, 16),
    "v5p": Chip(459, 95, cores=2),
    "v6e": Chip(918, 32),
    "a100-40": Chip(312, 40),
    "a100-80": Chip(312, 80),
    "h100": Chip(989, 80),
    "h200": Chip(989, 141),
}


def machine(name: str) -> tuple[Chip, int]:
    """A chip and how many, by a name such as v4-8; InputError if there is none."""
    word = name.lower().replace("v5litepod", "v5e")
    found = re.fullmatch(rf"({'|'.join(CHIPS)})-([1-9]\d*)", word)
    if found is None or int(found[2]) % CHIPS[found[1]].cores:
        raise unknown_name("hardware", name, [f"{kind}-8" for kind in CHIPS])
    return CHIPS[found[1]], int(found[2]) // CHIPS[found[1]].cores


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
    """Such as data=2,fsdp=4 (default: the smallest fsdp axis that fits)."""
    # PaLM reached 0.46 (arXiv:2204.02311, table 3), ours 0.34 with 124 M on an H200.
    efficiency: float = 0.4
    """Share of the peak that the model's operations reach (MFU); an assumption."""
    compile: bool = True
    """Ask the compiler for memory; without, weights, optimiser and gradients alone
    are counted, at once."""

    def __post_init__(self) -> None:
        ConfigFlags.__post_init__(self)
        if not (0 < self.tokens < math.inf and 0 < self.efficiency <= 1):
            raise InputError(
                "--tokens and --efficiency must be above 0, --efficiency at most 1"
            )

    def run(self) -> None:
        """Print the first mesh that fits, with the fewest micro-batches, and costs."""
        chip, n_chips = machine(self.on)
        if self.compile:
            os.environ["XLA_FLAGS"] = _FAST
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", n_chips)
        config, asked = self.configured(), parse_mesh(self.mesh)
        check_rows(config, _abstract_mesh(n_chips))
        rows = config.batch_rows // n_chips
        if n_chips % asked.fsdp or asked.data not in (None, n_chips // asked.fsdp):
            raise InputError(f"--mesh {self.mesh}: {self.on} has {n_chips} chips")
        sizes = [m for m in range(1, n_chips + 1) if n_chips % m == 0]
        sizes = sizes if self.mesh is None else [asked.fsdp]
        parts = [n for n in range(1, rows + 1) if rows % n == 0]
        parts = parts if self.micro_batches is None else [self.micro_batches]
        usable, tried = (1 - _RESERVE) * chip.gib * _GIB, []
        for m, n in itertools.product(sizes, parts):
            mesh, one = MeshShape(n_chips // m, m), config.changed(micro_batches=n)
            try:
                needed, counted = sum(state_bytes(one, m)), _STATE
            except InputError:
                # These weights cannot be divided by m.
                if self.mesh is not None:
                    raise
                continue
            if self.compile and needed <= usable:
                needed, counted = peak_bytes(compiled(one, mesh)), "an upper bound"
            tried.append((needed, mesh, one, counted))
            if needed <= usable:
                break
        needed, mesh, config, counted = min(tried, key=lambda one: one[0])
        flags = {"preset": config.name, "mesh": mesh}
        flags |= changes(config, PRESETS[config.name])
        # As it is typed: a separator has line ends.
        typed = [
            word
            for name, value in flags.items()
            for word in (flag_of(name), str(value).replace("\n", "\\n"))
        ]
        print(
            f"{config.name} on {self.on}, {n_chips} chips of {chip.gib} GiB: "
            f"{'fits' if needed <= usable else 'DOES NOT FIT'}\n"
            f"  {needed / _GIB:.1f} GiB a chip of {usable / _GIB:.1f} ({counted}); "
            f"{state_bytes(config, 1)[0] / _GIB:.1f} GiB a checkpoint\n"
            f"  flags of train.pretrain: {shell_line(typed)}"
        )
        seconds = config.step_flops / (self.efficiency * n_chips * chip.tflops * 1e12)
        hours = self.tokens / config.step_tokens * seconds / 3600
        print(
            f"{config.step_flops:.3g} operations and {seconds:.3f} s a step, at "
            f"{self.efficiency:.0%} of {chip.tflops:.0f} TFLOP/s (bfloat16) a chip\n"
            f"{self.tokens:,.0f} tokens: {hours:,.1f} hours, {n_chips * hours:,.0f} "
            "chip-hours"
        )


def state_bytes(config: Config, n_parts: int) -> tuple[int, int]:
    """Bytes of one of `n_parts` devices: weights and optimiser; gradients."""
    shapes, mesh = abstract_params(config.decoder), _abstract_mesh(n_parts)
    optimizer = make_optimizer(config.optimizer, _N_STEPS)

    def n_bytes(tree: Any, shardings: Any) -> int:
        pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(shardings), strict=True)
        return sum(
            leaf.dtype.itemsize * math.prod(one.shard_shape(leaf.shape))
            for leaf, one in pairs
        )

    weights = n_bytes(shapes, param_shardings(shapes, mesh))
    state = jax.eval_shape(optimizer.init, shapes)
    kept = weights + n_bytes(state, state_shardings(optimizer, shapes, mesh))
    return kept, weights


def _abstract_mesh(n_parts: int) -> Any:
    return AbstractMesh((1, n_parts), (DATA_AXIS, FSDP_AXIS), (AxisType.Auto,) * 2)


def compiled(
    config: Config, shape: MeshShape, devices: Sequence[Any] | None = None
) -> Any:
    """Compile the step as a run makes it, for devices that need not be there.

    None takes those that JAX has.
    """
    print(f"compiling for a mesh of {shape} ...", file=sys.stderr)
    mesh = device_mesh(shape, devices)
    on = hardware_of(mesh.devices.flat[0])
    graphdef, shapes = nnx.split(abstract_decoder(config.decoder, on))
    optimizer = make_optimizer(config.optimizer, _N_STEPS)
    rows = jax.ShapeDtypeStruct((config.batch_rows, config.context + 1), "int32")
    arguments = jax.tree.map(
        lambda leaf, sharding: leaf.update(sharding=sharding),
        (shapes, jax.eval_shape(optimizer.init, shapes), rows),
        (
            param_shardings(shapes, mesh),
            state_shardings(optimizer, shapes, mesh),
            NamedSharding(mesh, ROWS),
        ),
    )
    _, update = compiled_step(graphdef, config, _N_STEPS, mesh, first_id=0)
    if mesh.is_multi_process:
        # What the processes tell each other.
        where = NamedSharding(mesh, ROWS)
        told = jax.ShapeDtypeStruct((mesh.size, 2), "bool", sharding=where)
        arguments = (*arguments, told)
    return update.lower(*arguments).compile()


def peak_bytes(step: Any) -> int:
    """Most memory of a device while a compiled step runs."""
    memory = step.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return peak + memory.output_size_in_bytes - memory.alias_size_in_bytes


def main() -> int:
    """Command line of `python -m train.dry_run`."""
    return run_module(DryRun, "train.dry_run")


if __name__ == "__main__":
    sys.exit(main())
