"""Shardings of a run's weights and optimiser state on a mesh.

A model larger than a device is initialised sharded, and gathered on a host only, piece
by piece.
"""

import functools
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder, abstract_decoder
from jaxcontam.models.sharding import mesh_sharding, place

# A weight is gathered in pieces of at most this many bytes, or of one layer.
_PIECE_BYTES = 1 << 27
_REPLICATED = PartitionSpec()


def abstract_params(config: DecoderConfig) -> nnx.State:
    """Shapes of a decoder's weights; nothing is allocated."""
    return nnx.state(abstract_decoder(config))


def param_shardings(params: Any, mesh: Mesh) -> Any:
    """Sharding of each weight, a tree like `params`, which may be shapes."""
    return _on(mesh, mesh_sharding(params, mesh).specs(params))


def state_shardings(
    optimizer: optax.GradientTransformation, params: Any, mesh: Mesh
) -> Any:
    """Sharding of the optimiser state: moments like weights, counters replicated."""
    specs = optax.tree.map_params(
        optimizer,
        lambda _, spec: spec,
        jax.eval_shape(optimizer.init, params),
        mesh_sharding(params, mesh).specs(params),
        transform_non_params=lambda _: _REPLICATED,
    )
    return _on(mesh, specs)


def fresh_decoder(config: DecoderConfig, *, seed: int, mesh: Mesh | None) -> Decoder:
    """Initialise random weights, each device its own shard.

    The numbers do not depend on the mesh. Without one they are computed eagerly, which
    rounds some of them differently, by one unit in the last place.
    """
    if mesh is None:
        return Decoder(config, rngs=nnx.Rngs(seed))
    graphdef, init = _sharded_init(config, mesh)
    return nnx.merge(graphdef, init(jax.random.key(seed)))


@functools.lru_cache(maxsize=4)
def _sharded_init(config: DecoderConfig, mesh: Mesh) -> tuple[nnx.GraphDef, Any]:
    """(key) -> weights, compiled once a shape and mesh."""
    decoder = abstract_decoder(config)
    graphdef, shapes = nnx.split(decoder)

    def init(key: jax.Array) -> nnx.State:
        return nnx.state(Decoder(config, rngs=nnx.Rngs(key), on=decoder.hardware))

    return graphdef, jax.jit(init, out_shardings=param_shardings(shapes, mesh))


def placed(params: Any, mesh: Mesh) -> Any:
    """Move weights to their shardings on a mesh; those already there stay.

    They are equal on every process, or on this mesh.
    """

    def put(leaf: jax.Array, sharding: NamedSharding) -> jax.Array:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        host = np.asarray(leaf)
        return place(host.shape, host.__getitem__, sharding)

    return jax.tree.map(put, params, param_shardings(params, mesh))


def whole_decoder(decoder: Decoder, *, keep: bool = True) -> Decoder | None:
    """Gather the decoder in host memory, piece by piece; None without `keep`.

    Every process of the mesh has to call it, since each holds shards.
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
    """(leaf, begin) -> `n_rows` of its rows, replicated."""

    def take(leaf: jax.Array, begin: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(leaf, begin, n_rows)

    return jax.jit(take, out_shardings=NamedSharding(mesh, _REPLICATED))


def _on(mesh: Mesh, specs: Any) -> Any:
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
