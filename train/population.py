"""Populations of small models: one compiled program trains each model in one call.

On a CPU a scan over the steps is faster than one call a step, and models one after the
other are faster than models side by side, which miss the caches.

Dimension key
    R  rows of the stream
    N  steps
    B  rows a step
    T  targets a row
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from flax import nnx

from jaxcontam.models.decoder import Decoder
from train.presets import Preset
from train.step import adamw, training_step


def train_scanned(
    preset: Preset, rows_RT: np.ndarray, *, seed: int
) -> tuple[Decoder, np.ndarray]:
    """Train a decoder on each row once, in one call; as `train_decoder`, but faster.

    Models of one preset and one number of steps share what is compiled, so a
    population should cut its rows to one number.

    Args:
        preset: Shape, batch and learning rate.
        rows_RT: (R, T + 1) int32 ids, in the order of training.
        seed: Seeds the weights; the same seed and rows give the same weights.

    Returns:
        The decoder and the loss of each step, nats a token.

    Raises:
        ValueError: If there are fewer rows than one batch.
    """
    R, width = rows_RT.shape
    N = R // preset.batch_rows
    if N < 1:
        raise ValueError(f"rows must fill a batch of {preset.batch_rows}, got {R}")
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(seed)))
    rows_NBT = rows_RT[: N * preset.batch_rows].reshape(N, preset.batch_rows, width)
    train = _compiled(graphdef, preset.peak_rate, N)
    params, losses_N = train(params, rows_NBT)
    return nnx.merge(graphdef, params), np.asarray(losses_N)


@functools.lru_cache(maxsize=8)
def _compiled(
    graphdef: nnx.GraphDef, peak_rate: float, n_steps: int
) -> Callable[..., tuple[nnx.State, jax.Array]]:
    """One jitted training run a shape, rate and length."""

    @functools.partial(jax.jit, donate_argnums=0)
    def train(params: nnx.State, rows_NBT: jax.Array):
        optimizer = adamw(peak_rate, n_steps, params)

        def step(carry, batch_BT: jax.Array):
            params, opt_state, loss = training_step(
                graphdef, optimizer, carry[0], carry[1], batch_BT
            )
            return (params, opt_state), loss

        start = (params, optimizer.init(params))
        (params, _), losses_N = jax.lax.scan(step, start, rows_NBT)
        return params, losses_N

    return train
