"""The training step compiled for devices that are not here; nothing is allocated.

A process of its own, since the number of devices is fixed when JAX first uses one: it
reads a job as JSON from its standard input and prints what it found as JSON. Virtual
CPU devices stand for any hardware. Where libtpu is installed, the compiler of a TPU can
be asked instead, for a slice that is not here either.
"""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import NamedSharding

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import ROWS
from jaxcontam.scoring.mesh import MeshShape, device_mesh
from train.dry_run.collectives import (
    Collective,
    compiled_collectives,
    traced_collectives,
)
from train.loop import compiled_step
from train.placement import abstract_params, param_shardings, state_shardings
from train.presets import Preset, preset_from_json, preset_to_json
from train.step import adamw

# Of the checkout: the other process must read this very code.
_ROOT = Path(__file__).resolve().parents[2]
# What the schedule is made for changes no shape.
_N_STEPS = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStep:
    """What a compiler says of one training step, on each device.

    Attributes:
        compiler: `cpu` or `tpu`.
        state_bytes: Arguments: weights, optimiser and rows.
        peak_bytes: Most memory at any time, arguments included; None if refused.
        traced: Collectives that the program asks for.
        compiled: Those that this compiler made of them; not told by a TPU's, which
            cuts them into pieces that overlap with products.
        seconds: To compile.
        refused: Why there is no such step, such as too little memory.
    """

    compiler: str
    state_bytes: int
    peak_bytes: int | None
    traced: tuple[Collective, ...]
    compiled: tuple[Collective, ...]
    seconds: float
    refused: str | None = None


def compile_elsewhere(
    preset: Preset, model: int, n_devices: int, *, slice_name: str | None = None
) -> CompiledStep:
    """Compile a preset's step in another process.

    Args:
        preset: Model, rows and how to compute.
        model: Devices that divide a copy of the model.
        n_devices: Chips.
        slice_name: Of a TPU, as `v5e:2x4`, to ask its own compiler; None asks that of
            the CPU.

    Raises:
        InputError: If the other process fails.
    """
    job = {
        "preset": preset_to_json(preset),
        "model": model,
        "slice": slice_name,
    }
    found = subprocess.run(
        [sys.executable, "-m", "train.dry_run.compiled"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=environment(n_devices, slice_name),
        check=False,
    )
    if found.returncode:
        reason = (found.stderr.strip() or "no reason given").splitlines()[-1]
        raise InputError(
            f"the step does not compile: {reason}",
            hint="--no-compile answers by formulas alone",
        )
    fields = json.loads(found.stdout.splitlines()[-1])
    for name in ("traced", "compiled"):
        fields[name] = tuple(Collective(**one) for one in fields[name])
    return CompiledStep(**fields)


def has_tpu_compiler() -> bool:
    """Whether libtpu is installed; it compiles on a machine without a TPU too."""
    return importlib.util.find_spec("libtpu") is not None


def compile_here(preset: Preset, devices: Sequence[Any], model: int) -> CompiledStep:
    """Compile the step of a preset, as a run makes it, for devices in this process."""
    mesh = device_mesh(MeshShape(model=model), devices)
    with jax.default_device(devices[0]):  # whose hardware the graph definition names
        graphdef = nnx.split(
            nnx.eval_shape(lambda: Decoder(preset.decoder, rngs=nnx.Rngs(0)))
        )[0]
    jitted: tuple[Any, Any] = compiled_step(graphdef, preset, _N_STEPS, mesh)
    first_state, update = jitted
    shapes = abstract_params(preset.decoder)
    params = jax.tree.map(_placed, shapes, param_shardings(shapes, mesh))
    optimizer = adamw(preset.peak_rate, _N_STEPS, shapes, schedule=preset.schedule)
    state = jax.tree.map(
        _placed,
        jax.eval_shape(first_state, shapes),
        state_shardings(optimizer, shapes, mesh),
    )
    rows = jax.ShapeDtypeStruct((preset.batch_rows, preset.context + 1), "int32")
    begun = time.monotonic()
    traced = update.trace(params, state, _placed(rows, NamedSharding(mesh, ROWS)))
    asked = traced_collectives(traced.jaxpr.jaxpr, dict(mesh.shape))
    compiler = devices[0].platform
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as e:
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        return CompiledStep(
            compiler=compiler,
            state_bytes=0,
            peak_bytes=None,
            traced=asked,
            compiled=(),
            seconds=round(time.monotonic() - begun, 1),
            refused=str(e).splitlines()[0],
        )
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    peak += memory.output_size_in_bytes - memory.alias_size_in_bytes
    made = compiled_collectives(compiled.as_text() or "") if compiler == "cpu" else ()
    if compiler == "tpu":
        # There the temporary part counts gaps between arrays as well.
        peak = memory.peak_memory_in_bytes
    return CompiledStep(
        compiler=compiler,
        state_bytes=memory.argument_size_in_bytes,
        peak_bytes=peak,
        traced=asked,
        compiled=made,
        seconds=round(time.monotonic() - begun, 1),
    )


def _placed(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def environment(n_devices: int, slice_name: str | None = None) -> dict[str, str]:
    """Variables of the other process: virtual devices, and no look for real ones."""
    flags = (
        f"--xla_force_host_platform_device_count={n_devices}",
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        # On a CPU it copies masks for all rows and keeps them through the loop.
        "--xla_disable_hlo_passes=while-loop-invariant-code-motion",
    )
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # A TPU's compiler would read them too.
        "XLA_FLAGS": " ".join(flags) if slice_name is None else "",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def main() -> int:
    """Of the other process."""
    job = json.load(sys.stdin)
    if job["slice"] is None:
        devices = jax.devices()
    else:
        from jax.experimental import topologies

        # A v4 chip has two cores, which a program sees as one device.
        more = {"chip_config_name": "megacore"} if job["slice"][:3] == "v4:" else {}
        found = topologies.get_topology_desc(job["slice"], platform="tpu", **more)
        devices = found.devices
    preset = preset_from_json(job["preset"])
    found = compile_here(preset, devices, job["model"])
    print(json.dumps(dataclasses.asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
