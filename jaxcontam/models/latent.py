"""Attention whose keys and values are made of a narrow vector of each position.

The cache holds the keys and values themselves: scores are then those of any other
attention. Its memory is that of a model without narrow vectors.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    H  heads
    E  width of a head's query and key
    R  rotated dimensions of them, the first
    V  width of a head's values
    K  width of the vector of keys and values

Source:
    DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import AttentionContext, attend
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.layers import Linear, Norm
from jaxcontam.models.rope import rotate

# Of the narrow vectors' norms, whatever the others have.
_NORM_EPS = 1e-6


class LatentAttention(nnx.Module):
    """Causal self-attention over keys and values made of narrow vectors."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        assert config.latent is not None
        self.config, self.latent = config, config.latent
        D, H, E, R = config.d_model, config.n_heads, config.head_dim, config.n_rotated
        V, K, Q = self.latent.d_values, self.latent.rank, self.latent.query_rank
        narrow = dataclasses.replace(config, norm_eps=_NORM_EPS)
        if Q is not None:
            self.query_down = Linear(D, Q, bias=False, rngs=rngs)
            self.query_norm = Norm(narrow, Q)
        self.query = Linear(D if Q is None else Q, H * E, bias=False, rngs=rngs)
        self.down = Linear(D, K + R, bias=False, rngs=rngs)
        self.norm = Norm(narrow, K)
        self.key_value = Linear(K, H * (E - R + V), bias=False, rngs=rngs)
        self.out = Linear(H * V, D, bias=False, rngs=rngs)

    def __call__(
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Mixed values after the output projection, `[B, T, D]`; keys and values."""
        B, T, _ = hidden_BTD.shape
        config, rotary = self.config, context.rotary
        assert rotary is not None
        H, E, R, V = config.n_heads, config.head_dim, config.n_rotated, config.d_values
        narrow_BTQ = hidden_BTD
        if self.latent.query_rank is not None:
            narrow_BTQ = self.query_norm(self.query_down(hidden_BTD))
        q_BTHE = self.query(narrow_BTQ).reshape(B, T, H, E)
        # On disk the rotated dimensions are the last.
        q_BTHE = jnp.concatenate(
            [rotate(q_BTHE[..., E - R :], rotary, config), q_BTHE[..., : E - R]],
            axis=-1,
        )
        narrow_BTK, k_BTR = jnp.split(self.down(hidden_BTD), [self.latent.rank], -1)
        both_BTHE = self.key_value(self.norm(narrow_BTK)).reshape(B, T, H, E - R + V)
        k_BT1R = rotate(k_BTR[:, :, None], rotary, config)
        k_BTHR = jnp.broadcast_to(k_BT1R, (B, T, H, R))
        k_BTHE = jnp.concatenate([k_BTHR, both_BTHE[..., : E - R]], axis=-1)
        dtype = self.query.kernel[...].dtype
        k_BTHE = k_BTHE.astype(dtype)
        v_BTHV = both_BTHE[..., E - R :].astype(dtype)
        q_BTH1E = q_BTHE[:, :, :, None].astype(dtype)
        mixed_BTH1V = attend(q_BTH1E, k_BTHE, v_BTHV, context, config)
        return self.out(mixed_BTH1V.reshape(B, T, H * V)), (k_BTHE, v_BTHV)
