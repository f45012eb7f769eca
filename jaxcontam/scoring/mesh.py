"""Scoring over a device mesh: rows over all devices, weights along the axis `fsdp`.

With one device on the axis `fsdp` the weights are replicated, and devices do not
communicate. With more, a device gathers a layer's weights before it computes the layer.
A mesh may span processes: each calls with the same rows, puts its own devices' rows on
them, and receives all scores.

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
from jaxcontam.models.fused_attention import compiler_options, hardware_of
from jaxcontam.models.sharding import (
    DATA_AXIS,
    FSDP_AXIS,
    ROWS,
    WeightSharding,
    mesh_sharding,
    place,
)
from jaxcontam.scoring.kernel import TokenScores, score_continuations, score_tokens
from jaxcontam.scoring.parts import MeshShape, parse_mesh

__all__ = ["MeshShape", "device_mesh", "parse_mesh"]


def device_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Mesh:
    """Devices on the axes `data` and `fsdp`; None takes those of all processes."""
    devices = jax.devices() if devices is None else devices
    n = len(devices)
    if shape.data is None and n % shape.fsdp:
        raise InputError(
            f"--mesh {shape} needs a multiple of {shape.fsdp} devices, found {n}"
        )
    data = n // shape.fsdp if shape.data is None else shape.data
    if data * shape.fsdp != n:
        raise InputError(
            f"--mesh {shape} needs {data * shape.fsdp} devices, found {n}",
            hint="leave out data to use all",
        )
    sizes, names = (data, shape.fsdp), (DATA_AXIS, FSDP_AXIS)
    # Written out: the default differs between versions of JAX.
    kinds = (AxisType.Auto, AxisType.Auto)
    try:
        return jax.make_mesh(sizes, names, kinds, devices=devices)
    except NotImplementedError:
        # No assignment to the torus of a TPU keeps each axis on its own dimensions.
        return Mesh(np.array(devices).reshape(sizes), names, axis_types=kinds)


def weights_mesh(state: Any) -> Mesh:
    """Mesh that the weights are sharded over; all local devices if over none."""
    for leaf in jax.tree.leaves(state):
        # Some leaves' shardings have no mesh, or one of no devices.
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if isinstance(mesh, Mesh) and mesh.axis_names == (DATA_AXIS, FSDP_AXIS):
            return mesh
    return device_mesh(MeshShape(), jax.local_devices())


def sharded_forward(
    graphdef: nnx.GraphDef, state: nnx.State, mesh: Mesh, *, moments: bool
) -> Callable[[Any, Any], TokenScores]:
    """The kernel over a mesh, (inputs_BS, targets_BS) -> scores `[B, S]`.

    Each device scores its own rows; weights are put on the mesh unless they are there.
    """
    placed, sharding = on_mesh(state, mesh)
    scores = compiled_tokens(graphdef, mesh, sharding, moments)

    def forward(inputs_BS, targets_BS) -> TokenScores:
        return scores(placed, *rows_on_mesh(mesh, ROWS, inputs_BS, targets_BS))

    return forward


def sharded_pairs(
    graphdef: nnx.GraphDef, state: nnx.State, mesh: Mesh
) -> Callable[..., jax.Array]:
    """`score_continuations` over a mesh: each device takes its own prefixes.

    (prefixes_IP, lengths_I, continuations_IKT, at_once) -> log-probabilities
    `[I, K, T]`; I is a multiple of the number of devices.
    """
    placed, sharding = on_mesh(state, mesh)

    def forward(prefixes_IP, lengths_I, continuations_IKT, at_once: int) -> jax.Array:
        rows = rows_on_mesh(mesh, ROWS, prefixes_IP, lengths_I, continuations_IKT)
        return compiled_pairs(graphdef, mesh, sharding, at_once)(placed, *rows)

    return forward


def on_mesh(state: nnx.State, mesh: Mesh) -> tuple[nnx.State, WeightSharding]:
    """Shard weights over a mesh; those that are so already are not copied."""
    sharding = mesh_sharding(state, mesh)

    def put(leaf: Any, spec: PartitionSpec) -> jax.Array:
        wanted = NamedSharding(mesh, spec)
        found = getattr(leaf, "sharding", None)
        if found is not None and found.is_equivalent_to(wanted, leaf.ndim):
            return leaf
        if wanted.is_fully_addressable:
            return jax.device_put(leaf, wanted)
        host = np.asarray(leaf)
        return place(host.shape, lambda cut: host[cut], wanted)

    return jax.tree.map(put, state, sharding.specs(state)), sharding


def rows_on_mesh(
    mesh: Mesh, rows: PartitionSpec, *arrays: np.ndarray
) -> tuple[Any, ...]:
    """Put rows, the same on every process, on the devices that compute them."""
    sharding = NamedSharding(mesh, rows)
    if sharding.is_fully_addressable:
        return tuple(jax.device_put(array, sharding) for array in arrays)
    return tuple(
        jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        for array in arrays
    )


def over_mesh(
    mesh: Mesh, sharding: WeightSharding, rows: PartitionSpec, score: Callable[..., Any]
) -> Callable[..., Any]:
    """`score(state, *arrays)` mapped over a mesh: each device scores its own rows.

    Where devices of other processes take part, every process receives all rows. The
    result is not compiled. `rows` is the spec of the first axis of all arrays.
    """

    def whole(state: nnx.State, *arrays: jax.Array) -> Any:
        found = score(state, *arrays)
        if not mesh.is_multi_process:
            return found
        return jax.tree.map(
            lambda part: jax.lax.all_gather(part, rows[0], tiled=True), found
        )

    def mapped(state: nnx.State, *arrays: jax.Array) -> Any:
        sharded = jax.shard_map(
            whole,
            mesh=mesh,
            in_specs=(sharding.specs(state), *(rows for _ in arrays)),
            out_specs=PartitionSpec() if mesh.is_multi_process else rows,
            # Scans start from constants; the check takes them for equal everywhere.
            check_vma=False,
        )
        return sharded(state, *arrays)

    return mapped


def _compiled(score: Callable[..., Any], mesh: Mesh) -> Any:
    """Compiled with options of the devices, which no outer `jit` would take."""
    options = compiler_options(hardware_of(mesh.devices.flat[0]))
    return jax.jit(score, compiler_options=options)


@functools.lru_cache(maxsize=64)
def compiled_tokens(
    graphdef: nnx.GraphDef, mesh: Mesh, sharding: WeightSharding, moments: bool
) -> Any:
    """`score_tokens` over a mesh, compiled: (state, inputs_BS, targets_BS) -> scores.

    Scorers of one shape share what is compiled.
    """

    def score(state: nnx.State, inputs_BS: jax.Array, targets_BS: jax.Array):
        return score_tokens(
            graphdef, state, inputs_BS, targets_BS, moments=moments, sharding=sharding
        )

    return _compiled(over_mesh(mesh, sharding, ROWS, score), mesh)


@functools.lru_cache(maxsize=64)
def compiled_pairs(
    graphdef: nnx.GraphDef, mesh: Mesh, sharding: WeightSharding, at_once: int
) -> Any:
    """`score_continuations` over a mesh, compiled: (state, *its arrays) -> scores."""

    def score(state: nnx.State, *pairs: jax.Array) -> jax.Array:
        return score_continuations(
            graphdef, state, *pairs, at_once=at_once, sharding=sharding
        )

    return _compiled(over_mesh(mesh, sharding, ROWS, score), mesh)
