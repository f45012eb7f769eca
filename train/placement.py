"""Where the state of a run lies: weights and the optimiser's state on a mesh.

A model that no device could hold is born divided, and is made whole on a host alone,
piece by piece.
"""

import functools
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import mesh_sharding, place

# A weight is made whole in pieces of at most so many bytes, or of one layer.
_PIECE_BYTES = 1 << 27
_WHOLE = PartitionSpec()


def abstract_params(config: DecoderConfig) -> nnx.State:
    """Shapes of a decoder's weights; nothing is allocated."""
    return nnx.state(_abstract(config))


def param_shardings(params: Any, mesh: Mesh) -> Any:
    """Of each weight: a tree of the form of `params`, which may be shapes."""
    return _on(mesh, mesh_sharding(params, mesh).specs(params))


def state_shardings(
    optimizer: optax.GradientTransformation, params: Any, mesh: Mesh
) -> Any:
    """Of the optimiser's state: each average lies as its weight, counters everywhere.

    Args:
        optimizer: Whose state.
        params: Weights or their shapes.
        mesh: With axes `data` and `model`.
    """
    specs = optax.tree.map_params(
        optimizer,
        lambda _, spec: spec,
        jax.eval_shape(optimizer.init, params),
        mesh_sharding(params, mesh).specs(params),
        transform_non_params=lambda _: _WHOLE,
    )
    return _on(mesh, specs)


def fresh_decoder(config: DecoderConfig, *, seed: int, mesh: Mesh | None) -> Decoder:
    """Random weights, each device making its own part.

    The numbers do not depend on the mesh. Without one they are made eagerly, which
    rounds some of them otherwise, by one unit in the last place.

    Args:
        config: Shape.
        seed: The same seed gives the same weights.
        mesh: Of several devices, maybe of other processes too; None is one device.
    """
    if mesh is None:
        return Decoder(config, rngs=nnx.Rngs(seed))
    graphdef, make_parts = _born_divided(config, mesh)
    return nnx.merge(graphdef, make_parts(jax.random.key(seed)))


@functools.lru_cache(maxsize=4)
def _born_divided(config: DecoderConfig, mesh: Mesh) -> tuple[nnx.GraphDef, Any]:
    """(key) -> weights, compiled once a shape and mesh."""
    graphdef, shapes = nnx.split(_abstract(config))

    def make(key: jax.Array) -> nnx.State:
        return nnx.state(Decoder(config, rngs=nnx.Rngs(key)))

    return graphdef, jax.jit(make, out_shardings=param_shardings(shapes, mesh))


def _abstract(config: DecoderConfig) -> Decoder:
    return nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))


def placed(params: Any, mesh: Mesh) -> Any:
    """Weights laid out on a mesh; what lies there already stays.

    Args:
        params: Equal on every process, or on this mesh.
        mesh: With axes `data` and `model`.
    """

    def laid(leaf: jax.Array, sharding: NamedSharding) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        host = np.asarray(leaf)
        return place(host.shape, host.__getitem__, sharding)

    return jax.tree.map(laid, params, param_shardings(params, mesh))


def whole_decoder(decoder: Decoder, *, keep: bool = True) -> Decoder | None:
    """The decoder in host memory, gathered piece by piece.

    Every process of the mesh has to call it, since each gives its parts.

    Args:
        decoder: Its weights lie on a mesh.
        keep: Whether this process wants it; else it only gives.
    """
    graphdef, params = nnx.split(decoder)
    leaves, form = jax.tree.flatten(params)
    found = [_whole_leaf(leaf, keep=keep) for leaf in leaves]
    return nnx.merge(graphdef, jax.tree.unflatten(form, found)) if keep else None


def _whole_leaf(leaf: jax.Array, *, keep: bool) -> np.ndarray | None:
    sharding = leaf.sharding
    if leaf.is_fully_addressable or not isinstance(sharding, NamedSharding):
        return np.asarray(leaf) if keep else None
    if leaf.is_fully_replicated:
        return np.asarray(leaf.addressable_data(0)) if keep else None
    n_rows = max(1, leaf.shape[0] * _PIECE_BYTES // max(1, leaf.nbytes))
    whole = np.empty(leaf.shape, leaf.dtype) if keep else None
    for begin in range(0, leaf.shape[0], n_rows):
        end = min(begin + n_rows, leaf.shape[0])
        piece = _gathered(sharding.mesh, end - begin)(leaf, np.int32(begin))
        if whole is not None:
            whole[begin:end] = piece.addressable_data(0)
    return whole


@functools.lru_cache(maxsize=16)
def _gathered(mesh: Mesh, n_rows: int) -> Any:
    """(leaf, begin) -> so many of its rows, on every device."""

    def take(leaf: jax.Array, begin: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(leaf, begin, n_rows)

    return jax.jit(take, out_shardings=NamedSharding(mesh, _WHOLE))


def _on(mesh: Mesh, specs: Any) -> Any:
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
