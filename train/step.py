"""One optimiser step: the loss and its gradients over the mesh, and the update.

A model larger than a device is initialised sharded, and gathered on a host only, piece
by piece.

Dimension key
    N  micro-batches
    B  rows a step, or of a micro-batch
    T  targets a row
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.decoder import Decoder, abstract_decoder
from jaxcontam.models.fused_attention import matmul_precision
from jaxcontam.models.sharding import (
    DATA_AXIS,
    FSDP_AXIS,
    ROWS,
    WeightSharding,
    mesh_sharding,
    place,
    weight_name,
)
from train.config import Config
from train.loss import PLAIN, Compute, Numbers, batch_loss
from train.optimizer import make_optimizer

_REPLICATED = PartitionSpec()
# Kernels whose products are added to the residual stream.
_RESIDUAL = (".out.kernel", "mlp.down.kernel", "shared.down.kernel")
# A weight is gathered in pieces of at most this many bytes, or of one layer.
_PIECE_BYTES = 1 << 27


class Step(NamedTuple):
    """One training step as pure functions, not compiled.

    Attributes:
        optimizer: Its state is part of what is saved.
        update: (weights, optimiser state, batch_BT of T + 1 ids) -> both after the
            step, and its numbers: float32 scalars `loss` (before the update, nats per
            token), `gradient_norm` (before clipping), `parameter_norm`, and what
            `train.loss` reports beside the loss.
    """

    optimizer: optax.GradientTransformation
    update: Callable[[Any, Any, jax.Array], tuple[Any, Any, Numbers]]


def build_step(
    graphdef: nnx.GraphDef,
    config: Config,
    n_steps: int,
    *,
    first_id: int | None,
    mesh: Mesh | None = None,
) -> Step:
    """The step of a configuration: what every kind of training calls.

    Rows are split over both axes of a mesh, weights as `mesh_sharding` says; None is
    one device. `first_id` begins each document: used if these are isolated.
    """
    optimizer = make_optimizer(config.optimizer, n_steps)

    def update(params: Any, opt_state: Any, batch_BT: jax.Array):
        return training_step(
            graphdef,
            optimizer,
            params,
            opt_state,
            batch_BT,
            compute=config.compute,
            mesh=mesh,
            first_id=isolated_id(config, first_id),
        )

    return Step(optimizer, update)


def isolated_id(config: Config, first_id: int | None) -> int | None:
    """Id that begins a document, within which attention stays; None lets it cross."""
    if config.isolate_documents and first_id is None:
        raise ValueError("first_id must be given where documents are isolated")
    return first_id if config.isolate_documents else None


def training_step(
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    opt_state: optax.OptState,
    batch_BT: jax.Array,
    *,
    compute: Compute = PLAIN,
    mesh: Mesh | None = None,
    first_id: int | None = None,
) -> tuple[Any, Any, Numbers]:
    """`Step.update` by any optimiser; B divides by the devices times `micro_batches`.

    `first_id` begins each document, within which attention stays; None lets it cross.
    """
    local = functools.partial(_with_gradients, n=compute.micro_batches)
    numbers, gradients = _over_devices(
        local, graphdef, params, batch_BT, compute, mesh, first_id
    )
    numbers |= {
        "gradient_norm": optax.tree.norm(gradients),
        "parameter_norm": optax.tree.norm(params),
    }
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, numbers


def mean_loss(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    batch_BT: jax.Array,
    *,
    compute: Compute = PLAIN,
    mesh: Mesh | None = None,
    first_id: int | None = None,
) -> jax.Array:
    """Cross-entropy of a batch, nats per token; arguments as of `training_step`."""
    numbers, _ = _over_devices(
        _without_gradients, graphdef, params, batch_BT, compute, mesh, first_id
    )
    return numbers["loss"]


def _over_devices(
    compute_part: Callable[..., tuple[Numbers, Any]],
    graphdef: nnx.GraphDef,
    params: nnx.State,
    batch_BT: jax.Array,
    compute: Compute,
    mesh: Mesh | None,
    first_id: int | None,
) -> tuple[Numbers, Any]:
    """The mean over all devices of what each makes of its rows."""
    layout = WeightSharding() if mesh is None else mesh_sharding(params, mesh)
    on = nnx.merge(graphdef, params).hardware
    loss = functools.partial(
        batch_loss, graphdef=graphdef, compute=compute, layout=layout, first_id=first_id
    )

    def local(params: nnx.State, batch_BT: jax.Array) -> tuple[Numbers, Any]:
        # No product of float32 is rounded to fewer bits.
        is_whole = compute.dtype == "float32"
        precision = matmul_precision(compute.dtype, on) if is_whole else None
        with jax.default_matmul_precision(precision):
            return compute_part(loss, params, batch_BT)

    if mesh is None:
        return local(params, batch_BT)
    specs, n_parts = layout.specs(params), mesh.shape[FSDP_AXIS]

    def own(params: nnx.State, batch_BT: jax.Array) -> tuple[Numbers, Any]:
        # Each device's own, or each use of a weight would sum over all devices.
        params = jax.tree.map_with_path(
            lambda path, leaf: _own(leaf, layout.spec(weight_name(path))), params
        )
        numbers, gradients = local(params, batch_BT)
        gradients = jax.tree.map_with_path(
            lambda path, gradient: _mean(
                gradient, layout.spec(weight_name(path)), n_parts
            ),
            gradients,
        )
        numbers = {k: _mean(one, _REPLICATED, n_parts) for k, one in numbers.items()}
        return numbers, gradients

    return jax.shard_map(
        own,
        mesh=mesh,
        in_specs=(specs, ROWS),
        out_specs=(_REPLICATED, specs),
        # Checks what is equal on all devices; JAX's splash kernel does not say.
        check_vma=on.platform != "tpu",
    )(params, batch_BT)


def _own(leaf: jax.Array, spec: PartitionSpec) -> jax.Array:
    """A weight as the device's own: what is equal on several becomes a copy of each."""
    axes = (DATA_AXIS, FSDP_AXIS) if spec == _REPLICATED else (DATA_AXIS,)
    return jax.lax.pcast(leaf, axes, to="varying")


def _mean(local: jax.Array, spec: PartitionSpec, n_parts: int) -> jax.Array:
    """Mean over all devices of a loss or of a weight's gradient.

    The gradient of a sharded weight is already summed over its shards by the backward
    pass of all-gather.
    """
    if spec == _REPLICATED:
        return jax.lax.pmean(local, (DATA_AXIS, FSDP_AXIS))
    return jax.lax.pmean(local / n_parts, DATA_AXIS)


_Loss = Callable[[nnx.State, jax.Array], tuple[jax.Array, Numbers]]


def _without_gradients(
    loss: _Loss, params: nnx.State, batch_BT: jax.Array
) -> tuple[Numbers, Any]:
    """The loss, with zeros where gradients stand, which nobody reads."""
    total, numbers = loss(params, batch_BT)
    return {**numbers, "loss": total}, jax.tree.map(jnp.zeros_like, params)


def _with_gradients(
    loss: _Loss, params: nnx.State, batch_BT: jax.Array, n: int
) -> tuple[Numbers, Any]:
    """Mean over the rows of this device, in `n` equal parts."""
    with_numbers = jax.value_and_grad(loss, has_aux=True)

    def differentiate(params: nnx.State, part_BT: jax.Array) -> tuple[Numbers, Any]:
        (total, numbers), gradients = with_numbers(params, part_BT)
        return {**numbers, "loss": total}, gradients

    if n == 1:
        return differentiate(params, batch_BT)
    B, width = batch_BT.shape
    if B % n:
        raise ValueError(f"rows of a device must divide by {n} micro-batches, got {B}")
    parts_NBT = batch_BT.reshape(n, B // n, width)

    def add(total: Any, part_BT: jax.Array) -> tuple[Any, Numbers]:
        numbers, gradients = differentiate(params, part_BT)
        return jax.tree.map(jnp.add, total, gradients), numbers

    zero = jax.tree.map(jnp.zeros_like, params)
    total, numbers = jax.lax.scan(add, zero, parts_NBT)
    mean = functools.partial(jnp.mean, axis=0, dtype=jnp.float32)
    return jax.tree.map(mean, numbers), jax.tree.map(lambda part: part / n, total)


def abstract_params(config: DecoderConfig) -> nnx.State:
    """Shapes of a decoder's weights; nothing is allocated."""
    return nnx.state(abstract_decoder(config))


def param_shardings(params: Any, mesh: Mesh) -> Any:
    """Sharding of each weight, a tree like `params`, which may be shapes."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        mesh_sharding(params, mesh).specs(params),
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )


def state_shardings(
    optimizer: optax.GradientTransformation, params: Any, mesh: Mesh
) -> Any:
    """Sharding of the optimiser's state, a tree like it.

    What has the name and shape of a weight lies as the weight does, however deep an
    optimiser of several parts keeps it; counters and the like are on every device.
    """
    layout = mesh_sharding(params, mesh)
    leaves = jax.tree.leaves_with_path(params)
    shapes = {weight_name(path): leaf.shape for path, leaf in leaves}

    def sharding(path, leaf: Any) -> NamedSharding:
        for i in range(len(path)):
            name = weight_name(path[i:])
            if shapes.get(name) == leaf.shape:
                return NamedSharding(mesh, layout.spec(name))
        return NamedSharding(mesh, _REPLICATED)

    return jax.tree.map_with_path(sharding, jax.eval_shape(optimizer.init, params))


def fresh_decoder(config: DecoderConfig, *, seed: int, mesh: Mesh | None) -> Decoder:
    """Initialise random weights, each device its own shard of the same numbers."""
    graphdef, init = _compiled_init(config, mesh)
    return nnx.merge(graphdef, init(jax.random.key(seed)))


def residuals_scaled(params: nnx.State, config: DecoderConfig) -> nnx.State:
    """Random weights whose L layers add 2 L sums that are no larger than one was.

    Source:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
        section 2.3: 1 / sqrt(N) for N residual layers, two in each of L blocks.
    """
    scale = (2 * config.n_layers) ** -0.5

    def scaled(path, leaf: jax.Array) -> jax.Array:
        return leaf * scale if weight_name(path).endswith(_RESIDUAL) else leaf

    return jax.tree.map_with_path(scaled, params)


@functools.lru_cache(maxsize=4)
def _compiled_init(
    config: DecoderConfig, mesh: Mesh | None
) -> tuple[nnx.GraphDef, Any]:
    """(key) -> weights, compiled once a shape and mesh."""
    decoder = abstract_decoder(config)
    graphdef, shapes = nnx.split(decoder)

    def init(key: jax.Array) -> nnx.State:
        fresh = Decoder(config, rngs=nnx.Rngs(key), on=decoder.hardware)
        return residuals_scaled(nnx.state(fresh), config)

    out = None if mesh is None else param_shardings(shapes, mesh)
    return graphdef, jax.jit(init, out_shardings=out)


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
