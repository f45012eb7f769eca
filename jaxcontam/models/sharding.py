"""Weights sharded over devices (ZeRO stage 3, or FSDP), gathered layer by layer.

The devices of a mesh's `fsdp` axis keep a shard of each large weight. Rows are divided
among all devices; before a layer is computed its weights are gathered, and dropped
after it. A model needs the memory of its shards, one whole layer and the embedding.

Source:
    Rajbhandari et al. 2020, arXiv:1910.02054, section 5.3.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcontam.errors import InputError
from jaxcontam.models.stacks import STACKS

DATA_AXIS, FSDP_AXIS = "data", "fsdp"
"""Axes of a mesh: rows are divided among all of its devices, weights along `fsdp`."""
ROWS = PartitionSpec((DATA_AXIS, FSDP_AXIS))
"""Spec of arrays whose first axis is rows."""

_STACKED = tuple(f"{stack}." for stack in STACKS)
EMBEDDINGS = ("embedding", "layer_inputs.embedding")
"""Weights with a row for each token, but the head."""


def weight_name(path) -> str:
    """Dotted name of a weight from its path in a decoder's state."""
    keys = [str(getattr(part, "key", getattr(part, "name", part))) for part in path]
    return ".".join(key for key in keys if key != "value")


def divided_axis(name: str, shape: tuple[int, ...], n_parts: int) -> int | None:
    """Axis along which a weight is sharded; None where each device keeps the whole.

    Kernels are sharded by their inputs, which no file joins or reorders, so that a part
    is a range of each tensor on disk; the embedding and the head by the model's width.
    The shape is that of the whole weight, layers first where blocks are stacked.
    """
    if name.endswith(".kernel"):
        axis = len(shape) - 2
    elif name in (*EMBEDDINGS, "head"):
        axis = len(shape) - 1
    else:
        return None
    return axis if n_parts > 1 and shape[axis] % n_parts == 0 else None


@dataclasses.dataclass(frozen=True, slots=True)
class WeightSharding:
    """Axes of weights that are sharded over a mesh's `fsdp` axis; others are whole."""

    axes: tuple[tuple[str, int], ...] = ()

    def spec(self, name: str) -> PartitionSpec:
        """Partition spec of one weight."""
        axis = dict(self.axes).get(name)
        if axis is None:
            return PartitionSpec()
        return PartitionSpec(*(None,) * axis, FSDP_AXIS)

    def specs(self, state: Any) -> Any:
        """Partition specs of all weights, in the structure of the state."""
        return jax.tree.map_with_path(
            lambda path, _: self.spec(weight_name(path)), state
        )

    def gather(self, state: nnx.State) -> nnx.State:
        """Gather all weights but the layers', within `shard_map`."""
        axes = {k: v for k, v in self.axes if not k.startswith(_STACKED)}
        return jax.tree.map_with_path(
            lambda path, leaf: _gathered(leaf, axes.get(weight_name(path))), state
        )

    def gather_layer(self, weights: nnx.State, stack: str) -> nnx.State:
        """Gather the weights of one layer of a stack, within `shard_map`."""
        axes = dict(self.axes)

        def whole(path, leaf: jax.Array) -> jax.Array:
            axis = axes.get(f"{stack}.{weight_name(path)}")
            return _gathered(leaf, None if axis is None else axis - 1)

        return jax.tree.map_with_path(whole, weights)


def weight_sharding(state: Any, n_parts: int) -> WeightSharding:
    """Sharding of a decoder's weights, or of their shapes, over `n_parts` devices."""
    axes = {}
    for path, leaf in jax.tree.leaves_with_path(state):
        name = weight_name(path)
        if (axis := divided_axis(name, leaf.shape, n_parts)) is not None:
            axes[name] = axis
    return WeightSharding(tuple(axes.items()))


def mesh_sharding(state: Any, mesh: Mesh) -> WeightSharding:
    """Sharding of a decoder's weights, or of their shapes, on a mesh.

    A mesh that divides less than half of the weights is refused.
    """
    n_parts = mesh.shape[FSDP_AXIS]
    sharding = weight_sharding(state, n_parts)
    leaves = jax.tree.leaves_with_path(state)
    sizes = {weight_name(path): leaf.size for path, leaf in leaves}
    share = sum(sizes[name] for name, _ in sharding.axes) / sum(sizes.values())
    if n_parts > 1 and share < 0.5:
        width = state["embedding"].shape[-1]
        raise InputError(
            f"--mesh fsdp={n_parts}: only {share:.0%} of this model's weights can be "
            f"divided by {n_parts}",
            hint=f"choose a divisor of the model's width {width:,}, such as a power of "
            "two",
        )
    return sharding


def place(
    shape: tuple[int, ...],
    part: Callable[[tuple[slice, ...]], np.ndarray],
    sharding: NamedSharding,
) -> jax.Array:
    """A sharded array; this process makes the shards of its own devices.

    One shard is in the host's memory at a time, and it is made once, however many
    devices keep it. `part` gives the values at the slices of all axes.
    """
    devices_of: dict[tuple[tuple[int, int, int], ...], list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        pairs = zip(index, shape, strict=True)
        ranges = tuple(one.indices(size) for one, size in pairs)
        devices_of.setdefault(ranges, []).append(device)
    arrays: list[jax.Array] = []
    for ranges, devices in devices_of.items():
        host = part(tuple(slice(start, stop) for start, stop, _ in ranges))
        # Waiting frees the host's array, where it was copied, before the next.
        arrays += jax.block_until_ready(
            [jax.device_put(host, device) for device in devices]
        )
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def saves_no_gathered(primitive: Any, *_: Any, **__: Any) -> bool:
    """Policy of `jax.checkpoint`: save everything but gathered weights.

    `save_anything_except_these_names` would not do: the value that is named from is
    another one, and would be saved.
    """
    return primitive.name != "all_gather"


def _gathered(leaf: jax.Array, axis: int | None) -> jax.Array:
    return leaf if axis is None else _gather(leaf, axis)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gather(leaf: jax.Array, axis: int) -> jax.Array:
    return jax.lax.all_gather(leaf, FSDP_AXIS, axis=axis, tiled=True)


def _gather_forward(leaf: jax.Array, axis: int) -> tuple[jax.Array, None]:
    return jax.lax.all_gather(leaf, FSDP_AXIS, axis=axis, tiled=True), None


def _gather_backward(axis: int, _: None, cotangent: jax.Array) -> tuple[jax.Array]:
    """Each device's shard, summed over devices in float32 whatever the dtype."""
    summed = jax.lax.psum_scatter(
        cotangent.astype(jnp.float32), FSDP_AXIS, scatter_dimension=axis, tiled=True
    )
    return (summed.astype(cotangent.dtype),)


_gather.defvjp(_gather_forward, _gather_backward)
