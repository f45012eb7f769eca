"""One optimiser step: loss, gradients over the mesh, AdamW with a schedule.

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
from jaxcontam.models.fused_attention import Hardware, matmul_precision
from jaxcontam.models.sharding import (
    DATA_AXIS,
    FSDP_AXIS,
    ROWS,
    WeightSharding,
    mesh_sharding,
    place,
    weight_name,
)
from train.config import PLAIN, Compute, Optimizer
from train.loss import head_loss

_REPLICATED = PartitionSpec()
# Kernels whose products are added to the residual stream.
_RESIDUAL = (".out.kernel", "mlp.down.kernel", "shared.down.kernel")
# A weight is gathered in pieces of at most this many bytes, or of one layer.
_PIECE_BYTES = 1 << 27


class StepMetrics(NamedTuple):
    """Numbers of one step, float32 scalars; `(n,)` where they are of n steps.

    Attributes:
        loss: Mean over the batch's targets before the update, nats per token.
        gradient_norm: Before it is clipped.
        parameter_norm: Of all weights, before the update.
    """

    loss: Any
    gradient_norm: Any
    parameter_norm: Any


def training_step(
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    opt_state: optax.OptState,
    batch_BT: jax.Array,
    *,
    compute: Compute = PLAIN,
    mesh: Mesh | None = None,
    layout: WeightSharding | None = None,
    first_id: int | None = None,
) -> tuple[Any, Any, StepMetrics]:
    """One update on a batch of rows of T + 1 ids.

    Args:
        graphdef: Graph definition of the decoder, from `nnx.split`.
        optimizer: From `adamw`.
        params: Its weights, float32.
        opt_state: State of the optimiser.
        batch_BT: (B, T + 1) int32 ids; B divides by the devices times `micro_batches`.
        compute: Precision, rematerialisation and micro-batches.
        mesh: With axes `data` and `fsdp`; rows are split over both. None is one
            device.
        layout: Sharding of the weights, gradients and optimiser state. None replicates
            them.
        first_id: Id that begins each document, within which attention stays; None lets
            it cross.

    Returns:
        Weights, optimiser state, and the numbers of the step.
    """
    layout = layout or WeightSharding()
    on = nnx.merge(graphdef, params).hardware

    def local(params: nnx.State, batch_BT: jax.Array):
        loss = functools.partial(
            _loss, graphdef=graphdef, compute=compute, layout=layout, first_id=first_id
        )
        return _loss_and_gradients(loss, params, batch_BT, compute, on)

    if mesh is not None:
        on_device, specs = local, layout.specs(params)
        n_parts = mesh.shape[FSDP_AXIS]

        def local_mean(params: nnx.State, batch_BT: jax.Array):
            # Each device's own, or each use of a weight would sum over all devices.
            params = jax.tree.map_with_path(
                lambda path, leaf: _own(leaf, layout.spec(weight_name(path))), params
            )
            loss, gradients = on_device(params, batch_BT)
            gradients = jax.tree.map_with_path(
                lambda path, gradient: _mean(
                    gradient, layout.spec(weight_name(path)), n_parts
                ),
                gradients,
            )
            return _mean(loss, _REPLICATED, n_parts), gradients

        local = jax.shard_map(
            local_mean,
            mesh=mesh,
            in_specs=(specs, ROWS),
            out_specs=(_REPLICATED, specs),
            check_vma=_checked(on),
        )
    loss, gradients = local(params, batch_BT)
    norms = optax.tree.norm(gradients), optax.tree.norm(params)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, StepMetrics(loss, *norms)


def adamw(
    config: Optimizer, n_steps: int, params: nnx.State
) -> optax.GradientTransformation:
    """AdamW on clipped gradients; only kernels of `params` decay."""
    decays = jax.tree.map_with_path(
        lambda path, _: any(getattr(part, "key", None) == "kernel" for part in path),
        params,
    )
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            learning_rate(config, n_steps),
            b1=config.beta1,
            b2=config.beta2,
            weight_decay=config.weight_decay,
            mask=decays,
        ),
    )


def learning_rate(config: Optimizer, n_steps: int) -> optax.Schedule:
    """Rate of each of `n_steps`, from 0."""
    n_warm = max(1, round(config.warmup * n_steps))
    if config.schedule == "constant":
        return optax.warmup_constant_schedule(0.0, config.peak_rate, n_warm)
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=config.peak_rate,
        warmup_steps=n_warm,
        decay_steps=max(2, n_steps),
        end_value=config.final_rate * config.peak_rate,
    )


def _checked(on: Hardware) -> bool:
    """Check what is equal on all devices; JAX's splash kernel does not say."""
    return on.platform != "tpu"


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


def batch_loss(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    batch_BT: jax.Array,
    *,
    compute: Compute = PLAIN,
    mesh: Mesh | None = None,
    layout: WeightSharding | None = None,
    first_id: int | None = None,
) -> jax.Array:
    """Mean loss of a batch, nats per token; arguments as of `training_step`."""
    layout = layout or WeightSharding()
    whole = functools.partial(
        _loss, graphdef=graphdef, compute=compute, layout=layout, first_id=first_id
    )
    on = nnx.merge(graphdef, params).hardware

    def local(params: nnx.State, batch_BT: jax.Array) -> jax.Array:
        with jax.default_matmul_precision(_precision(compute, on)):
            return whole(params, batch_BT)

    if mesh is None:
        return local(params, batch_BT)
    n_parts = mesh.shape[FSDP_AXIS]
    return jax.shard_map(
        lambda *own: _mean(local(*own), _REPLICATED, n_parts),
        mesh=mesh,
        in_specs=(layout.specs(params), ROWS),
        out_specs=_REPLICATED,
        check_vma=_checked(on),
    )(params, batch_BT)


def _precision(compute: Compute, on: Hardware) -> str | None:
    """JAX's matmul precision: no product of float32 is rounded to fewer bits."""
    if compute.dtype == "float32":
        return matmul_precision(compute.dtype, on)
    return None


def _loss_and_gradients(
    loss: Callable[[nnx.State, jax.Array], jax.Array],
    params: nnx.State,
    batch_BT: jax.Array,
    compute: Compute,
    on: Hardware,
) -> tuple[jax.Array, Any]:
    """Mean over the rows of this device, in equal parts."""
    with jax.default_matmul_precision(_precision(compute, on)):
        differentiate = jax.value_and_grad(loss)
        n = compute.micro_batches
        if n == 1:
            return differentiate(params, batch_BT)
        B, width = batch_BT.shape
        if B % n:
            raise ValueError(
                f"rows of a device must divide by micro_batches = {n}, got {B}"
            )

        def add(total, part_BT: jax.Array):
            found = differentiate(params, part_BT)
            return jax.tree.map(jnp.add, total, found), None

        no_loss = jnp.zeros_like(batch_BT, shape=(), dtype=jnp.float32)
        zero = no_loss, jax.tree.map(jnp.zeros_like, params)
        parts_NBT = batch_BT.reshape(
            compute.micro_batches, B // compute.micro_batches, width
        )
        total, _ = jax.lax.scan(add, zero, parts_NBT)
        return jax.tree.map(lambda part: part / n, total)


def _loss(
    params: nnx.State,
    batch_BT: jax.Array,
    *,
    graphdef: nnx.GraphDef,
    compute: Compute,
    layout: WeightSharding,
    first_id: int | None,
) -> jax.Array:
    """Mean negative log-probability of each row's ids after its first."""
    if compute.dtype != "float32":
        params = _cast_kernels(params, compute.dtype)
    # Cast before the all-gather: half the bytes are sent.
    decoder = nnx.merge(graphdef, layout.gather(params))
    # A scan copies what its layers save: on an H200 a quarter of a step's bytes. But
    # where a layer is computed or gathered again, the scan keeps both times apart.
    is_plain = not compute.remat and not layout.axes
    inputs_BT, segments_BT = batch_BT[:, :-1], None
    if first_id is not None:
        segments_BT = jnp.cumsum(inputs_BT == first_id, axis=1)
    hidden_BTD = decoder(
        inputs_BT,
        remat=compute.remat,
        unroll=is_plain and decoder.hardware.platform == "cuda",
        sharding=layout,
        segments_BT=segments_BT,
    )
    return head_loss(
        hidden_BTD.reshape(-1, hidden_BTD.shape[-1]),
        decoder.head_VD.astype(compute.dtype),
        batch_BT[:, 1:].reshape(-1),
        decoder.config.logit_softcap,
        decoder.hardware.platform,
    )


def _cast_kernels(params: nnx.State, dtype: str) -> nnx.State:
    """Cast the kernels to another dtype.

    The embedding stays float32 and is cast only as a head: the gradients of thousands
    of equal tokens would be lost in a bfloat16 sum over one of its rows.
    """

    def cast(path, leaf: jax.Array) -> jax.Array:
        return leaf.astype(dtype) if weight_name(path).endswith("kernel") else leaf

    return jax.tree.map_with_path(cast, params)


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


def _on(mesh: Mesh, specs: Any) -> Any:
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        specs,
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
