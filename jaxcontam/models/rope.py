"""Rotary positions: frequencies, with the ways of slowing them for long contexts.

Dimension key
    T  tokens in a sequence
    R  rotated dimensions of a head
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontam.models.config import DecoderConfig, RopeScaling


def rotation(
    config: DecoderConfig, positions_T: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of the angle of each position, `[T, R / 2]` each."""
    angles = positions_T.astype(jnp.float32)[:, None] * frequencies(config)[None]
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x_BTHE: jax.Array, turn: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotate pairs (r, r + R/2) of each head by the position's angle; keep the rest."""
    cos, sin = (part[None, :, None, :] for part in turn)
    R = 2 * cos.shape[-1]
    first, second = jnp.split(x_BTHE[..., :R], 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate([*turned, x_BTHE[..., R:]], axis=-1)


def frequencies(config: DecoderConfig) -> np.ndarray:
    """Radians a position of each pair, `[R / 2]` float32, the fastest first."""
    # On the host: XLA's float32 power is off by several units in the last place, which
    # thousands of positions multiply.
    R = config.n_rotated
    powers = np.arange(0, R, 2, dtype=np.float32) / np.float32(R)
    plain = np.float32(1) / np.float32(config.rope_theta) ** powers
    scaling = config.rope_scaling
    return plain if scaling is None else _SLOWED[scaling.kind](plain, scaling)


def _linear(plain: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    return plain / np.float32(scaling.factor)


def _llama3(plain: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Slow long periods, keep short ones, with a ramp in turns a context between."""
    turns = scaling.first_context * plain / np.float32(2 * math.pi)
    low, high = scaling.low_factor, scaling.high_factor
    kept = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - kept) * plain / np.float32(scaling.factor) + kept * plain


_SLOWED = {"linear": _linear, "llama3": _llama3}
