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

Turn = tuple[jax.Array, jax.Array]
"""Cosines and sines of the angle of each position, `[T, R / 2]` each."""


def rotation(
    config: DecoderConfig, positions_T: jax.Array, *, local: bool = False
) -> Turn:
    """How far positions turn; `local`: in layers with a window."""
    rates = frequencies(config, local=local)
    angles = positions_T.astype(jnp.float32)[:, None] * rates[None]
    turn = jnp.cos(angles), jnp.sin(angles)
    scaling = None if local else config.rope_scaling
    if scaling is None or scaling.magnitude == 1.0:
        return turn
    return turn[0] * scaling.magnitude, turn[1] * scaling.magnitude


def rotate(x_BTHE: jax.Array, turn: Turn, config: DecoderConfig) -> jax.Array:
    """Rotate the pairs of each head by the position's angle; keep the rest."""
    cos, sin = (part[None, :, None, :] for part in turn)
    R = 2 * cos.shape[-1]
    rotated, rest = x_BTHE[..., :R], x_BTHE[..., R:]
    if config.rotary_pairs == "neighbours":
        first, second = rotated[..., ::2], rotated[..., 1::2]
        turned = [first * cos - second * sin, second * cos + first * sin]
        pairs = jnp.stack(turned, axis=-1).reshape(rotated.shape)
        return jnp.concatenate([pairs, rest], axis=-1)
    first, second = jnp.split(rotated, 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate([*turned, rest], axis=-1)


def frequencies(config: DecoderConfig, *, local: bool = False) -> np.ndarray:
    """Radians a position of each pair, `[R / 2]` float32, the fastest first."""
    # On the host: XLA's float32 power is off by several units in the last place, which
    # thousands of positions multiply.
    R = config.n_rotated
    powers = np.arange(0, R, 2, dtype=np.float32) / np.float32(R)
    theta, scaling = config.rope_theta, config.rope_scaling
    if local:
        theta, scaling = config.local_rope_theta or theta, None
    periods = np.float32(theta) ** powers
    plain = np.float32(1) / periods
    if scaling is None:
        return plain
    if scaling.kind == "each":
        return np.float32(1) / (np.array(scaling.factors, np.float32) * periods)
    return _SLOWED[scaling.kind](plain, scaling)


def _linear(plain: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    return plain / np.float32(scaling.factor)


def _llama3(plain: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Slow long periods, keep short ones, with a ramp in turns a context between."""
    turns = scaling.first_context * plain / np.float32(2 * math.pi)
    low, high = scaling.low_factor, scaling.high_factor
    kept = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - kept) * plain / np.float32(scaling.factor) + kept * plain


_SLOWED = {"linear": _linear, "llama3": _llama3}
