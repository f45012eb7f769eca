"""One optimiser step: loss, gradients over the mesh, AdamW with a schedule.

Dimension key
    B  rows a step
    T  targets a row
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from jaxcontam.models.sharding import (
    DATA_AXIS,
    MODEL_AXIS,
    ROWS,
    WeightSharding,
    weight_name,
)
from train.loss import head_loss

Schedule = Literal["cosine", "constant"]

_WARMUP_SHARE = 0.05
_FINAL_SHARE = 0.1
_WEIGHT_DECAY = 0.1
_CLIP_NORM = 1.0
_BETAS = (0.9, 0.95)

_WHOLE = PartitionSpec()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How a step is computed; rounding apart, none of it changes a weight.

    Attributes:
        dtype: Of the operands of matrix products; weights are float32 always.
        remat: Compute each block again for the gradients: less memory, more time.
        n_micro: Parts that a batch is read in, one after the other.
    """

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    n_micro: int = 1


PLAIN = Compute()
"""float32 at once: what small models are trained with."""


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
) -> tuple[Any, Any, jax.Array]:
    """One update on a batch of rows of T + 1 ids.

    Args:
        graphdef: Of the decoder, from `nnx.split`.
        optimizer: From `adamw`.
        params: Its weights, float32.
        opt_state: The optimiser's.
        batch_BT: (B, T + 1) int32 ids; B divides by the devices times `n_micro`.
        compute: How.
        mesh: With axes `data` and `model`; rows are split over both. None is one
            device.
        layout: How the weights lie on the mesh; gradients and the optimiser's state
            lie alike. None has all of them on every device.

    Returns:
        Weights, optimiser state, and the mean loss before the update, nats a token.
    """
    layout = layout or WeightSharding()

    def local(params: nnx.State, batch_BT: jax.Array):
        return _loss_and_gradients(graphdef, params, batch_BT, compute, layout)

    if mesh is not None:
        specs = layout.specs(params)
        n_parts = mesh.shape[MODEL_AXIS]

        def local_mean(params: nnx.State, batch_BT: jax.Array):
            loss, slopes = _loss_and_gradients(
                graphdef, params, batch_BT, compute, layout
            )
            slopes = jax.tree.map_with_path(
                lambda path, slope: _mean(
                    slope, layout.spec(weight_name(path)), n_parts
                ),
                slopes,
            )
            return _mean(loss, _WHOLE, n_parts), slopes

        local = jax.shard_map(
            local_mean,
            mesh=mesh,
            in_specs=(specs, ROWS),
            out_specs=(_WHOLE, specs),
            # Scans start from constants; the check takes them for equal everywhere.
            check_vma=False,
        )
    loss, gradients = local(params, batch_BT)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def adamw(
    peak_rate: float,
    n_steps: int,
    params: nnx.State,
    *,
    schedule: Schedule = "cosine",
) -> optax.GradientTransformation:
    """AdamW, gradients clipped to norm 1.

    Only kernels decay, since norms, biases and embeddings set scales.

    Args:
        peak_rate: Largest learning rate.
        n_steps: Length of the schedule.
        params: Weights that it will update.
        schedule: See `learning_rate`.
    """
    decays = jax.tree.map_with_path(
        lambda path, _: any(getattr(part, "key", None) == "kernel" for part in path),
        params,
    )
    return optax.chain(
        optax.clip_by_global_norm(_CLIP_NORM),
        optax.adamw(
            learning_rate(peak_rate, n_steps, schedule=schedule),
            b1=_BETAS[0],
            b2=_BETAS[1],
            weight_decay=_WEIGHT_DECAY,
            mask=decays,
        ),
    )


def learning_rate(
    peak_rate: float, n_steps: int, *, schedule: Schedule = "cosine"
) -> optax.Schedule:
    """Rate of each step, from 0: 5 % of warm-up, then down a cosine to a tenth.

    `constant` stays at the peak after the same warm-up.
    """
    n_warm = max(1, round(_WARMUP_SHARE * n_steps))
    if schedule == "constant":
        return optax.warmup_constant_schedule(0.0, peak_rate, n_warm)
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=peak_rate,
        warmup_steps=n_warm,
        decay_steps=max(2, n_steps),
        end_value=_FINAL_SHARE * peak_rate,
    )


def _mean(local: jax.Array, spec: PartitionSpec, n_parts: int) -> jax.Array:
    """Mean over all devices, of a loss or of a weight's gradient.

    The gradient of a divided weight comes summed over the devices that divide it: such
    is the gradient of gathering.
    """
    if spec == _WHOLE:
        return jax.lax.pmean(local, (DATA_AXIS, MODEL_AXIS))
    return jax.lax.pmean(local / n_parts, DATA_AXIS)


def _loss_and_gradients(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    batch_BT: jax.Array,
    compute: Compute,
    layout: WeightSharding,
) -> tuple[jax.Array, Any]:
    """Mean over the rows of this device, in `n_micro` equal parts."""
    differentiate = jax.value_and_grad(_loss)
    if compute.n_micro == 1:
        return differentiate(params, graphdef, batch_BT, compute, layout)
    B, width = batch_BT.shape
    if B % compute.n_micro:
        raise ValueError(
            f"rows of a device must divide by n_micro = {compute.n_micro}, got {B}"
        )

    def add(total, part_BT: jax.Array):
        found = differentiate(params, graphdef, part_BT, compute, layout)
        return jax.tree.map(jnp.add, total, found), None

    zero = (jnp.float32(0.0), jax.tree.map(jnp.zeros_like, params))
    parts = batch_BT.reshape(compute.n_micro, B // compute.n_micro, width)
    total, _ = jax.lax.scan(add, zero, parts)
    return jax.tree.map(lambda part: part / compute.n_micro, total)


def _loss(
    params: nnx.State,
    graphdef: nnx.GraphDef,
    batch_BT: jax.Array,
    compute: Compute,
    layout: WeightSharding,
) -> jax.Array:
    """Mean negative log-probability of each row's ids after its first."""
    if compute.dtype != "float32":
        params = _rounded(params, compute.dtype)
    # Rounded first: half the bytes are gathered.
    decoder = nnx.merge(graphdef, layout.gather(params))
    hidden_BTD = decoder(batch_BT[:, :-1], remat=compute.remat, sharding=layout)
    return head_loss(
        hidden_BTD.reshape(-1, hidden_BTD.shape[-1]),
        decoder.head_VD.astype(compute.dtype),
        batch_BT[:, 1:].reshape(-1),
        decoder.config.logit_softcap,
        decoder.hardware.platform,
    )


def _rounded(params: nnx.State, dtype: str) -> nnx.State:
    """The kernels in another dtype.

    The embedding stays, and is rounded as a head alone: what thousands of equal tokens
    add to one of its rows would be lost in a bfloat16 sum.
    """

    def cast(path, leaf: jax.Array) -> jax.Array:
        return leaf.astype(dtype) if weight_name(path).endswith("kernel") else leaf

    return jax.tree.map_with_path(cast, params)
