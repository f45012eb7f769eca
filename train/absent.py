"""Devices that are not here, and the compilers that know them.

XLA's compiler for TPUs comes with libtpu, that for NVIDIA's cards with JAX's CUDA
plugin; neither needs a device. Virtual CPU devices stand for any hardware.
"""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

from jaxcontam.errors import InputError
from train.hardware import Machine

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
