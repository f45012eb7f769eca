"""Two forms of training many small models; both call `training_step`.

On a CPU a scan over the steps, called once a model, is faster than one call a step, and
models side by side miss the caches. On an accelerator one small model leaves the chip
idle, and models side by side fill it; over several devices they are split.

Dimension key
    M  models
    R  rows of a stream
    N  steps
    B  rows a step
    T  targets a row
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import hardware
from train.population_scores import models_mesh
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


def train_together(
    preset: Preset, rows_MRT: np.ndarray, *, seeds: Sequence[int]
) -> tuple[nnx.GraphDef, nnx.State, np.ndarray]:
    """Train models side by side, each on its own rows, in one call.

    As `train_scanned` for each seed but for rounding. Memory grows with the number of
    models; over several devices it is split, and the last models are trained twice
    where their number does not divide.

    Args:
        preset: Shape, batch and learning rate.
        rows_MRT: (M, R, T + 1) int32 ids of each model.
        seeds: Seed of each model's weights.

    Returns:
        The graph, weights with an axis of models in front, and (M, N) losses.

    Raises:
        ValueError: If there are fewer rows than one batch, or not as many seeds as
            models.
    """
    if len(seeds) != len(rows_MRT):
        raise ValueError(f"seeds must be {len(rows_MRT)}, got {len(seeds)}")
    mesh = models_mesh()
    M = len(seeds)
    padded = [*range(M), *[M - 1] * (-M % mesh.size)]
    rows_MNBT = np.stack([_batches(preset, rows_MRT[m]) for m in padded])
    graphdef = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(0)))[0]
    train = _compiled_together(graphdef, preset, rows_MNBT.shape[1], mesh)
    keys = [jax.random.key_data(jax.random.key(seeds[m])) for m in padded]
    params, losses_MN = train(np.stack(jax.device_get(keys)), rows_MNBT)
    return graphdef, jax.tree.map(lambda x: x[:M], params), np.asarray(losses_MN)[:M]


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


@functools.lru_cache(maxsize=8)
def _compiled_together(
    graphdef: nnx.GraphDef, preset: Preset, n_steps: int, mesh: Mesh
) -> Callable[..., tuple[nnx.State, jax.Array]]:
    """(key data of each model, rows_MNBT) -> weights and losses of every model."""
    on = hardware()

    def one(key: jax.Array, rows_NBT: jax.Array):
        # Initialised on the device: a call per model would cost more than its training.
        rngs = nnx.Rngs(jax.random.wrap_key_data(key))
        params = nnx.split(Decoder(preset.decoder, rngs=rngs, on=on))[1]
        return _run(graphdef, preset, n_steps, params, rows_NBT)

    models = PartitionSpec("models")
    return jax.jit(
        jax.shard_map(
            jax.vmap(one),
            mesh=mesh,
            in_specs=(models, models),
            out_specs=models,
            check_vma=False,
        )
    )
