"""A whole training run of a small model in one call: a scan over its steps.

On a CPU this is faster than one call a step; both call `training_step`.

Dimension key
    R  rows of a stream
    N  steps
    B  rows a step
    T  targets a row
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxcontam.models.decoder import Decoder
from train.presets import Preset
from train.step import adamw, training_step


def train_scanned(
    preset: Preset, rows_RT: np.ndarray, *, seed: int
) -> tuple[Decoder, np.ndarray]:
    """Train a decoder on each row once, in one call.

    Models of one preset and one number of steps share what is compiled, so a
    population should cut its rows to one number.

    Args:
        preset: Shape, batch and learning rate.
        rows_RT: (R, T + 1) int32 ids, in the order of training.
        seed: Seeds the weights; the same seed and rows give the same weights.

    Returns:
        The decoder and the loss of each step, nats per token.

    Raises:
        ValueError: If there are fewer rows than one batch.
    """
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(seed)))
    rows_NBT = _batches(preset, rows_RT)
    train = _compiled_scan(graphdef, preset, len(rows_NBT))
    params, losses_N = train(params, rows_NBT)
    return nnx.merge(graphdef, params), np.asarray(losses_N)


def _batches(preset: Preset, rows_RT: np.ndarray) -> np.ndarray:
    """(N, B, T + 1) of whole batches."""
    R, width = rows_RT.shape
    B = preset.batch_rows
    if R < B:
        raise ValueError(f"rows must fill a batch of {B}, got {R}")
    return rows_RT[: R // B * B].reshape(R // B, B, width)


def _run(
    graphdef: nnx.GraphDef,
    preset: Preset,
    n_steps: int,
    params: nnx.State,
    rows_NBT: jax.Array,
) -> tuple[nnx.State, jax.Array]:
    """All steps of one model."""
    optimizer = adamw(preset.peak_rate, n_steps, params, schedule=preset.schedule)

    def step(carry: tuple[Any, Any], batch_BT: jax.Array):
        params, opt_state, loss = training_step(
            graphdef, optimizer, *carry, batch_BT, compute=preset.compute
        )
        return (params, opt_state), loss

    start = (params, optimizer.init(params))
    (params, _), losses_N = jax.lax.scan(step, start, rows_NBT)
    return params, losses_N


@functools.lru_cache(maxsize=8)
def _compiled_scan(
    graphdef: nnx.GraphDef, preset: Preset, n_steps: int
) -> Callable[..., tuple[nnx.State, jax.Array]]:
    """One jitted training run a preset and length."""
    run = functools.partial(_run, graphdef, preset, n_steps)
    return jax.jit(run, donate_argnums=0)
