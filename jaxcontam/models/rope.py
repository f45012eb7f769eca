"""Rotary position embeddings: frequencies, and how long contexts scale them.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    H  heads
    E  width of a head
    R  rotated dimensions of a head
    F  rotated pairs, F = R / 2
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontam.models.config import DecoderConfig, RopeScaling

CosSin = tuple[jax.Array, jax.Array]
"""Cosines and sines of the angle of each position, `[T, F]` float32 each."""


def rotary_cos_sin(
    config: DecoderConfig, positions_T: jax.Array, *, local: bool = False
) -> CosSin:
    """Cosines and sines of the angles by which queries and keys are rotated.

    `local` is for layers with a window, whose frequencies are not scaled.
    """
    rates_F = frequencies(config, local=local)
    angles_TF = positions_T.astype(jnp.float32)[:, None] * rates_F[None]
    cos_TF, sin_TF = jnp.cos(angles_TF), jnp.sin(angles_TF)
    scaling = None if local else config.rope_scaling
    if scaling is None or scaling.magnitude == 1.0:
        return cos_TF, sin_TF
    return cos_TF * scaling.magnitude, sin_TF * scaling.magnitude


def unrotated(rotary: CosSin) -> CosSin:
    """Angles of 0, with which `rotate` changes nothing."""
    return jnp.ones_like(rotary[0]), jnp.zeros_like(rotary[1])


def rotate(x_BTHE: jax.Array, rotary: CosSin, config: DecoderConfig) -> jax.Array:
    """Rotate the first R dimensions of each head by the position's angle."""
    cos_1T1F, sin_1T1F = (part[None, :, None, :] for part in rotary)
    x_BTHE = x_BTHE.astype(jnp.float32)
    R = 2 * cos_1T1F.shape[-1]
    rotated_BTHR, rest = x_BTHE[..., :R], x_BTHE[..., R:]
    if config.rotary_pairs == "neighbours":
        first_BTHF, second_BTHF = rotated_BTHR[..., ::2], rotated_BTHR[..., 1::2]
    else:
        first_BTHF, second_BTHF = jnp.split(rotated_BTHR, 2, axis=-1)
    pairs = [
        first_BTHF * cos_1T1F - second_BTHF * sin_1T1F,
        second_BTHF * cos_1T1F + first_BTHF * sin_1T1F,
    ]
    if config.rotary_pairs == "neighbours":
        pairs = [jnp.stack(pairs, axis=-1).reshape(rotated_BTHR.shape)]
    return jnp.concatenate([*pairs, rest], axis=-1)


def frequencies(config: DecoderConfig, *, local: bool = False) -> np.ndarray:
    """Radians per position of each pair, `[F]` float32, the fastest first."""
    # Thousands of positions multiply an error in the last place, so powers are taken in
    # float64 and rounded once, as torch's are in 99 of 100 cases; float32 powers differ
    # by CPU, and XLA's by several places.
    R = config.n_rotated
    powers_F = np.arange(0, R, 2, dtype=np.float32) / np.float32(R)
    theta, scaling = config.rope_theta, config.rope_scaling
    if local:
        theta, scaling = config.local_rope_theta or theta, None
    periods_F = (np.float64(theta) ** powers_F).astype(np.float32)
    plain_F = np.float32(1) / periods_F
    if scaling is None:
        return plain_F
    if scaling.kind == "each":
        # One choice for all texts: were it each text's own, a token's log-probability
        # would depend on how long its text is.
        is_long = config.context > scaling.first_context
        factors = scaling.long_factors if is_long else scaling.factors
        return np.float32(1) / (np.array(factors, np.float32) * periods_F)
    if scaling.kind == "yarn":
        return _yarn(periods_F, theta, scaling)
    if scaling.kind == "linear":
        return plain_F / np.float32(scaling.factor)
    # LLaMA 3 scales long periods, keeps short ones, and interpolates linearly.
    turns_F = scaling.first_context * plain_F / np.float32(2 * math.pi)
    low, high = scaling.low_factor, scaling.high_factor
    kept_F = np.clip((turns_F - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - kept_F) * plain_F / np.float32(scaling.factor) + kept_F * plain_F


def _yarn(periods_F: np.ndarray, theta: float, scaling: RopeScaling) -> np.ndarray:
    """Scale slow pairs, keep fast ones, and interpolate by the pair's number.

    Peng et al., arXiv:2309.00071, section 3.2; limits rounded as transformers does.
    """
    F = len(periods_F)

    def pair(turns: float) -> float:
        """The pair, in fractions, that turns this often in the first context."""
        period = scaling.first_context / (turns * 2 * math.pi)
        return 2 * F * math.log(period) / (2 * math.log(theta))

    first, last = pair(scaling.high_factor), pair(scaling.low_factor)
    if scaling.whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * F - 1)
    last += 0.001 if first == last else 0
    places_F = np.arange(F, dtype=np.float32) - np.float32(first)
    kept_F = np.float32(1) - np.clip(places_F / np.float32(last - first), 0, 1)
    slow_F = np.float32(1) / (np.float32(scaling.factor) * periods_F)
    return slow_F * (1 - kept_F) + np.float32(1) / periods_F * kept_F
