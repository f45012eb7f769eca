"""The training loop: AdamW with a cosine, one jitted step.

Dimension key
    R  rows of the stream
    B  rows a step
    T  targets a row
    V  vocabulary
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxcontam.models.attention import softcapped
from jaxcontam.models.decoder import Decoder
from train.presets import Preset

_WARMUP_SHARE = 0.05
_WEIGHT_DECAY = 0.1
_CLIP_NORM = 1.0
_BETAS = (0.9, 0.95)
# Losses are fetched this often: the device runs ahead, the bar still moves.
_STEPS_A_FETCH = 16


def train_decoder(
    preset: Preset,
    rows_RT: np.ndarray,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Decoder, np.ndarray]:
    """Train a decoder from scratch on each row once.

    Args:
        preset: Shape, batch and learning rate.
        rows_RT: (R, T + 1) int32 ids, in the order of training.
        seed: Seeds the weights; the same seed and rows give the same weights.
        progress: Called with targets done and targets in all.

    Returns:
        The decoder and the loss of each step, nats a token.

    Raises:
        ValueError: If there are fewer rows than one batch.
    """
    n_steps = len(rows_RT) // preset.batch_rows
    if n_steps < 1:
        raise ValueError(
            f"rows must fill a batch of {preset.batch_rows}, got {len(rows_RT)}"
        )
    decoder = Decoder(preset.decoder, rngs=nnx.Rngs(seed))
    graphdef, params = nnx.split(decoder)
    optimizer = adamw(preset.peak_rate, n_steps, params)
    opt_state = optimizer.init(params)
    step = jax.jit(
        functools.partial(training_step, graphdef, optimizer), donate_argnums=(0, 1)
    )
    losses: list[jax.Array] = []
    per_step = preset.batch_rows * (rows_RT.shape[1] - 1)
    for i in range(n_steps):
        batch_BT = rows_RT[i * preset.batch_rows : (i + 1) * preset.batch_rows]
        params, opt_state, loss = step(params, opt_state, batch_BT)
        losses.append(loss)
        if (i + 1) % _STEPS_A_FETCH == 0 or i + 1 == n_steps:
            loss.block_until_ready()
            if progress is not None:
                progress((i + 1) * per_step, n_steps * per_step)
    return nnx.merge(graphdef, params), np.array(jax.device_get(losses))


def training_step(
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    opt_state: optax.OptState,
    batch_BT: jax.Array,
) -> tuple[Any, Any, jax.Array]:
    """One update on a batch; returns weights, optimiser state and the loss before."""
    loss, gradients = jax.value_and_grad(_loss)(params, graphdef, batch_BT)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def adamw(
    peak_rate: float, n_steps: int, params: nnx.State
) -> optax.GradientTransformation:
    """AdamW with warm-up and a cosine, gradients clipped.

    Only kernels decay, since norms, biases and embeddings set scales.

    Args:
        peak_rate: Largest learning rate.
        n_steps: Length of the schedule.
        params: Weights that it will update.
    """
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=peak_rate,
        warmup_steps=max(1, round(_WARMUP_SHARE * n_steps)),
        decay_steps=max(2, n_steps),
        end_value=0.1 * peak_rate,
    )
    decays = jax.tree.map_with_path(
        lambda path, _: any(getattr(part, "key", None) == "kernel" for part in path),
        params,
    )
    return optax.chain(
        optax.clip_by_global_norm(_CLIP_NORM),
        optax.adamw(
            schedule,
            b1=_BETAS[0],
            b2=_BETAS[1],
            weight_decay=_WEIGHT_DECAY,
            mask=decays,
        ),
    )


def _loss(params: nnx.State, graphdef: nnx.GraphDef, batch_BT: jax.Array) -> jax.Array:
    """Mean negative log-probability of each row's ids after its first."""
    decoder = nnx.merge(graphdef, params)
    hidden_BTD = decoder(batch_BT[:, :-1])
    logits_BTV = jnp.einsum("btd,vd->btv", hidden_BTD, decoder.head_VD)
    logits_BTV = softcapped(logits_BTV, decoder.config.logit_softcap)
    losses_BT = optax.losses.softmax_cross_entropy_with_integer_labels(
        logits_BTV.astype(jnp.float32), batch_BT[:, 1:]
    )
    return losses_BT.mean()
