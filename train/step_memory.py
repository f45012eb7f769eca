"""Memory of a training step, compiled for devices that are absent.

Nothing is allocated.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.models.fused_attention import Hardware, hardware_of
from jaxcontam.models.sharding import DATA_AXIS, MODEL_AXIS, ROWS
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.absent import compiled_for
from train.loop import compiled_step
from train.presets import Preset
from train.program import Program, read_program
from train.state_sharding import abstract_params, param_shardings, state_shardings
from train.step import adamw

# Length of the learning-rate schedule; it changes no shape.
_N_STEPS = 1000
_FLOAT = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """Memory of one compiled training step on each device, by its compiler's analysis.

    Attributes:
        compiler: `cpu`, `gpu` or `tpu`.
        argument_bytes: Weights, optimiser state and rows.
        peak_bytes: Largest memory at any time, arguments included; None if refused.
        seconds: Time to compile.
        refused: The compiler's reason for making no such step, or None.
        program: What the step launches, moves and multiplies; None if refused, or from
            the CPU's compiler, whose program says nothing of another device's.
    """

    compiler: str
    argument_bytes: int
    peak_bytes: int | None
    seconds: float
    refused: str | None = None
    program: Program | None = None


def compiled_memory(
    preset: Preset, model: int, devices: Sequence[Any]
) -> CompiledMemory:
    """Compile the step as a run makes it, and read the compiler's memory analysis."""
    begun, compiler = time.monotonic(), devices[0].platform
    memory = refused = program = None
    mesh = device_mesh(MeshShape(model=model), devices)
    lowered = _traced_step(preset, mesh, hardware_of(devices[0])).lower()
    try:
        compiled = compiled_for(lowered, devices[0])
        memory = compiled.memory_analysis()
        if compiler != "cpu":
            program = read_program(compiled.as_text())
    except jax.errors.JaxRuntimeError as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        refused = str(e).splitlines()[0]
    return CompiledMemory(
        compiler=compiler,
        argument_bytes=0 if memory is None else memory.argument_size_in_bytes,
        peak_bytes=None if memory is None else _peak(memory, compiler),
        seconds=round(time.monotonic() - begun, 1),
        refused=refused,
        program=program,
    )


def _peak(memory: Any, compiler: str) -> int:
    if compiler == "tpu":
        # Its temporary part counts gaps between arrays as well.
        return memory.peak_memory_in_bytes
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    return peak + memory.output_size_in_bytes - memory.alias_size_in_bytes


def state_bytes(preset: Preset, model: int) -> int:
    """Weights, two moments and gradients of a device, float32: no step needs less.

    Raises:
        InputError: If `model` devices cannot share the weights.
    """
    mesh: Any = AbstractMesh((1, model), (DATA_AXIS, MODEL_AXIS), (AxisType.Auto,) * 2)
    shapes = abstract_params(preset.decoder)
    n_weights = jax.tree.map(
        lambda leaf, sharding: math.prod(sharding.shard_shape(leaf.shape)),
        shapes,
        param_shardings(shapes, mesh),
    )
    return 4 * _FLOAT * sum(jax.tree.leaves(n_weights))


def divides(preset: Preset, model: int) -> bool:
    """Whether `model` devices can share the weights."""
    try:
        state_bytes(preset, model)
    except InputError:
        return False
    return True


def _traced_step(preset: Preset, mesh: Any, on: Hardware) -> Any:
    """The step as a run jits it."""
    graphdef, shapes = nnx.split(abstract_decoder(preset.decoder, on))
    optimizer = adamw(preset.peak_rate, _N_STEPS, shapes, schedule=preset.schedule)
    rows = jax.ShapeDtypeStruct((preset.batch_rows, preset.context + 1), "int32")
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
    _, update = compiled_step(graphdef, preset, _N_STEPS, mesh)
    return update.trace(*arguments)
