"""Accelerators by the name they are rented under, and compilers for absent ones.

v4-8 and v5p-8 count TensorCores, two a chip; v5e-8, v6e-8 and h100-8 count chips. A
program sees chips. XLA's compiler for TPUs comes with libtpu, that for NVIDIA's cards
with JAX's CUDA plugin; neither needs a device. Virtual CPU devices stand for any
hardware.

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
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.experimental import topologies

from jaxcontam.errors import InputError, unknown_name

_NAME = re.compile(r"([a-z0-9]+(?:-[48]0)?)-(\d+)")
# Read as kind and number, these would be 40 or 80 cards.
_HALF_NAMES = ("a100-40", "a100-80")
_ALSO = {"v5litepod": "v5e", "a100": "a100-80"}
_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
# Without a card none is timed, and products are the library's: the tiles of XLA's own
# are chosen by timing, and its guesses may not fit.
_GPU_OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
# What XLA asks of a card, by generation: streaming multiprocessors, their shared memory
# and the part that one block may take, level-2 cache, clock. Source: NVIDIA's A100 and
# H100 white papers and the CUDA C++ Programming Guide, table of compute capabilities.
_GENERATIONS = {
    8: (108, 167_936, 166_912, 40 << 20, 1.41),
    9: (132, 233_472, 232_448, 50 << 20, 1.98),
}
_CARD = """
gpu_device_info {{
  cuda_compute_capability {{ major: {major} }}
  core_count: {cores}
  shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {optin}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  memory_bandwidth: {bandwidth}
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  threads_per_warp: 32
  fpus_per_core: {fpus}
  shared_memory_per_block: 49152
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Chip:
    """Datasheet of one accelerator.

    Attributes:
        name: Prefix of machine names.
        peak_tflops: bfloat16 products accumulated in float32, 10^12 operations/s.
        memory_gib: Device memory.
        memory_tb_per_second: Its bandwidth, 10^12 bytes/s.
        topologies: TPU slices on offer, as XLA names them.
        name_counts: Units in a machine's name that make one chip.
        generation: Major compute capability of a GPU; None for TPUs.
    """

    name: str
    peak_tflops: float
    memory_gib: int
    memory_tb_per_second: float
    topologies: str = ""
    name_counts: int = 1
    generation: int | None = None

    @property
    def slices(self) -> Mapping[int, str]:
        """Number of chips -> topology; empty for GPUs."""
        words = self.topologies.split()
        return {math.prod(map(int, word.split("x"))): word for word in words}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """A number of chips of one kind; `name` is as the user typed it."""

    name: str
    chip: Chip
    n_chips: int

    @property
    def slice_name(self) -> str | None:
        """Topology name for XLA's TPU compiler; None for GPUs."""
        shape = self.chip.slices.get(self.n_chips)
        return None if shape is None else f"{self.chip.name}:{shape}"


_TORUS_2D = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_TORUS_3D = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16"

CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("v4", 275, 32, 1.2, _TORUS_3D, 2),
        Chip("v5e", 197, 16, 0.82, _TORUS_2D),
        Chip("v5p", 459, 95, 2.77, _TORUS_3D, 2),
        Chip("v6e", 918, 32, 1.64, _TORUS_2D),
        Chip("a100-40", 312, 40, 1.56, generation=8),
        Chip("a100-80", 312, 80, 2.04, generation=8),
        Chip("h100", 989, 80, 3.35, generation=9),
        Chip("h200", 989, 141, 4.8, generation=9),
    )
}


def machine(name: str) -> Machine:
    """Look up a machine name such as v4-8, v5e-64, v5litepod-64 or h100-8.

    Raises:
        InputError: If there is no such chip, or no slice of that size.
    """
    if name.lower() in _HALF_NAMES:
        raise InputError(
            f"{name}: 40 or 80 names the card, and how many there are is missing",
            hint=f"{name}-1 for one of them, {name}-8 for eight",
        )
    found = _NAME.fullmatch(name.lower())
    kind = "" if found is None else _ALSO.get(found[1], found[1])
    if found is None or kind not in CHIPS:
        error = unknown_name("hardware", name, CHIPS)
        hint = f"{error.hint}; each with its number, such as v4-8 or h100-8"
        raise InputError(str(error), hint=hint)
    chip, number = CHIPS[kind], int(found[2])
    n_chips, rest = divmod(number, chip.name_counts)
    if number < 1 or rest or (chip.slices and n_chips not in chip.slices):
        sizes = [f"{kind}-{n * chip.name_counts}" for n in chip.slices] or [f"{kind}-1"]
        raise InputError(f"{name}: no such size", hint=f"choices: {', '.join(sizes)}")
    return Machine(name, chip, n_chips)


def use_virtual_devices(n: int, *, are_compiled_for: bool = True) -> None:
    """Make this process see `n` CPU devices and look for no others.

    Call it before JAX is first used.

    Args:
        n: How many.
        are_compiled_for: Whether the CPU's compiler is asked, in place of another's.
    """
    flags = (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        # On a CPU it copies masks for all rows and keeps them through the loop.
        "--xla_disable_hlo_passes=while-loop-invariant-code-motion",
    )
    if are_compiled_for:
        os.environ["XLA_FLAGS"] = " ".join(flags)
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",
        TPU_ACCELERATOR_TYPE="v5litepod-8",
        TPU_WORKER_HOSTNAMES="localhost",
    )
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", n)


def has_compiler(on: Machine) -> bool:
    """Whether the machine's own compiler is installed."""
    names = _PLUGINS if on.slice_name is None else ("libtpu",)
    return any(importlib.util.find_spec(name) for name in names)


def absent_devices(on: Machine | None) -> Sequence[Any]:
    """Devices of a machine that its own compiler knows; None is the virtual CPUs.

    Raises:
        InputError: If that compiler is not installed.
    """
    if on is None:
        return jax.devices()
    if not has_compiler(on):
        extra = "cuda" if on.slice_name is None else "tpu"
        raise InputError(
            f"{on.name}: its compiler is not installed",
            hint=f"pip install -e '.[{extra}]'; it needs no device",
        )
    if on.slice_name is None:
        card = topologies.get_topology_desc(
            platform="cuda", target_config=_card(on), topology=f"1x1x{on.n_chips}"
        )
        return card.devices
    # A v4 chip has two cores, which a program sees as one device.
    more = {"chip_config_name": "megacore"} if on.slice_name.startswith("v4:") else {}
    return topologies.get_topology_desc(on.slice_name, platform="tpu", **more).devices


def compiled_for(lowered: Any, device: Any) -> Any:
    """Compile what was lowered for devices such as this absent one."""
    is_gpu = device.platform == "gpu"
    return lowered.compile(compiler_options=_GPU_OPTIONS if is_gpu else None)


def _card(on: Machine) -> str:
    """What XLA calls a target, in protobuf's text."""
    chip = on.chip
    assert chip.generation is not None, "a GPU"
    cores, shared, optin, cache, clock = _GENERATIONS[chip.generation]
    return _CARD.format(
        major=chip.generation,
        cores=cores,
        shared=shared,
        optin=optin,
        cache=cache,
        clock=clock,
        memory=chip.memory_gib << 30,
        bandwidth=round(1e12 * chip.memory_tb_per_second),
        fpus=64 if chip.generation == 8 else 128,
        name=f"NVIDIA {chip.name.upper()}",
    )
