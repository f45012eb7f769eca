"""Scoring on every device: rows split over a `data` axis, weights on each.

`jax.pmap` is today a wrapper over `jit` and `shard_map`, so these are used directly.

Dimension key
    B  sequences in the batch, a multiple of the number of devices
    S  input positions
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxcontam.errors import InputError
from jaxcontam.models.sharding import DATA_AXIS, MODEL_AXIS
from jaxcontam.scoring.kernel import TokenScores, score_tokens
from jaxcontam.scoring.mesh_shape import MeshShape, parse_mesh
from jaxcontam.scoring.pairs import score_continuations

__all__ = ["MeshShape", "device_mesh", "parse_mesh"]


def device_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Mesh:
    """Devices on the axes `data` and `model`.

    Args:
        shape: Without a number of copies, all devices are used.
        devices: Those of the mesh; None is all, of all processes.

    Raises:
        InputError: If so many devices do not make this shape.
    """
    devices = jax.devices() if devices is None else devices
    n = len(devices)
    if shape.data is None and n % shape.model:
        raise InputError(
            f"--mesh {shape} needs a multiple of {shape.model} devices, here are {n}"
        )
    data = n // shape.model if shape.data is None else shape.data
    if data * shape.model != n:
        raise InputError(
            f"--mesh {shape} needs {data * shape.model} devices, here are {n}",
            hint="leave data out to use all",
        )
    sizes, names = (data, shape.model), (DATA_AXIS, MODEL_AXIS)
    # Written out: the default differs between versions of JAX.
    kinds = (AxisType.Auto, AxisType.Auto)
    try:
        return jax.make_mesh(sizes, names, kinds, devices=devices)
    except NotImplementedError:
        # No assignment to the torus of a TPU keeps each axis on its own dimensions.
        return Mesh(np.array(devices).reshape(sizes), names, axis_types=kinds)


def data_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """All devices (or those given) on one axis named `data`."""
    devices = jax.devices() if devices is None else devices
    # Written out: the default differs between versions of JAX.
    return jax.make_mesh(
        (len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices
    )


def sharded_forward(
    graphdef: nnx.GraphDef, state: nnx.State, mesh: Mesh, *, moments: bool
) -> Callable[[Any, Any], TokenScores]:
    """The kernel over a mesh: each device scores its own rows, none talks to another.

    Args:
        graphdef: Of the decoder, from `nnx.split`.
        state: Its weights; copied to every device.
        mesh: From `data_mesh`.
        moments: Also return means, variances and tops.

    Returns:
        (inputs_BS, targets_BS) -> scores `[B, S]`.
    """
    replicated = on_every_device(state, mesh)
    sharded = _compiled(graphdef, mesh, moments)
    return lambda inputs_BS, targets_BS: sharded(replicated, inputs_BS, targets_BS)


def sharded_pairs(
    graphdef: nnx.GraphDef, state: nnx.State, mesh: Mesh
) -> Callable[..., jax.Array]:
    """`score_continuations` over a mesh: each device takes its own prefixes.

    Returns:
        (prefixes_IP, lengths_I, continuations_IKT, at_once) -> log-probabilities
        `[I, K, T]`; I is a multiple of the number of devices.
    """
    replicated = on_every_device(state, mesh)

    def forward(prefixes_IP, lengths_I, continuations_IKT, at_once: int) -> jax.Array:
        sharded = _compiled_pairs(graphdef, mesh, at_once)
        return sharded(replicated, prefixes_IP, lengths_I, continuations_IKT)

    return forward


def on_every_device(state: Any, mesh: Mesh) -> Any:
    """Weights, or another tree of arrays, copied to every device of a mesh.

    What is there already stays.
    """
    return jax.device_put(state, NamedSharding(mesh, PartitionSpec()))


@functools.lru_cache(maxsize=8)
def _compiled(graphdef: nnx.GraphDef, mesh: Mesh, moments: bool):
    """One jitted function a model shape, so that its scorers share what is compiled."""
    rows = PartitionSpec("data")

    def score(state: nnx.State, inputs_BS: jax.Array, targets_BS: jax.Array):
        return score_tokens(graphdef, state, inputs_BS, targets_BS, moments=moments)

    return jax.jit(
        jax.shard_map(
            score,
            mesh=mesh,
            in_specs=(PartitionSpec(), rows, rows),
            out_specs=rows,
            # Scans start from constants; the check takes them for equal everywhere.
            check_vma=False,
        )
    )


@functools.lru_cache(maxsize=32)
def _compiled_pairs(graphdef: nnx.GraphDef, mesh: Mesh, at_once: int):
    rows = PartitionSpec("data")

    def score(state: nnx.State, prefixes_IP, lengths_I, continuations_IKT):
        return score_continuations(
            graphdef,
            state,
            prefixes_IP,
            lengths_I,
            continuations_IKT,
            at_once=at_once,
        ).logprobs

    return jax.jit(
        jax.shard_map(
            score,
            mesh=mesh,
            in_specs=(PartitionSpec(), rows, rows, rows),
            out_specs=rows,
            check_vma=False,
        )
    )
