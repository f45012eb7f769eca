"""Self-attention: heads in groups, or with keys and values made of a narrow vector.

The cache of the second holds the keys and values themselves: scores are then those of
any other attention. Its memory is that of a model without narrow vectors.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    H  query heads
    G  key and value heads
    R  query heads a key head serves, R = H / G
    E  width of a head
    Y  width of all query heads, Y = H * E
    Z  width of all key or value heads, Z = G * E

And in `LatentAttention`
    R  rotated dimensions of a head's query and key, the first
    V  width of a head's values
    K  width of the vector of keys and values
    Q  width of that of queries

Source:
    DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import AttentionContext, attend, kernel_for
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.layers import Linear, Norm
from jaxcontam.models.rope import rotate


class Attention(nnx.Module):
    """Causal self-attention with grouped key and value heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs, reuses: bool = False):
        """Random weights; those of queries alone where it reuses keys and values."""
        self.config, self.reuses = config, reuses
        D, E = config.d_model, config.head_dim
        n_queries = config.n_heads * (2 if config.attention_gate else 1)
        n_kv = 0 if reuses else config.n_kv_heads
        n_values = 0 if config.values_are_keys else n_kv
        n_fused = (n_queries + n_kv + n_values) * E
        self.qkv = Linear(D, n_fused, bias=config.qkv_bias, rngs=rngs, rounds=True)
        self.out = Linear(config.n_heads * E, D, bias=config.output_bias, rngs=rngs)
        if config.attention_sinks:
            self.sinks = nnx.Param(jnp.zeros((config.n_heads,)))
        if config.value_norm and not reuses:
            self.value_norm = Norm(dataclasses.replace(config, norm_weights=False), E)
        if config.query_key_norm is not None:
            is_whole = config.query_key_norm == "whole"
            self.query_norm = Norm(config, config.n_heads * E if is_whole else E)
            if not reuses:
                self.key_norm = Norm(config, config.n_kv_heads * E if is_whole else E)

    def __call__(
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        """Mixed values after the output projection, `[B, T, D]`; keys and values."""
        B, T, _ = hidden_BTD.shape
        config = self.config
        H, G, E = config.n_heads, config.n_kv_heads, config.head_dim
        # Where heads are wanted as axes of their own: blocks would copy them back.
        dtype = self.qkv.kernel[...].dtype
        kernel = kernel_for(context, config, str(dtype), T)
        at_once = kernel == "splash"
        if self.reuses:
            return self._reusing(hidden_BTD, context, at_once=at_once)
        counts = [H * (2 if config.attention_gate else 1), G]
        counts += [] if config.values_are_keys else [G]
        q_BTHE, k_BTGE, *own = self.qkv.to_heads(hidden_BTD, counts, at_once=at_once)
        # Gemma 4's layers of all tokens have keys for values.
        (v_BTGE,) = own or [k_BTGE]
        gate_BTHE = None
        if config.attention_gate:
            # Of each head its query, then its gate.
            q_BTHE, gate_BTHE = q_BTHE[:, :, 0::2], q_BTHE[:, :, 1::2]
        if config.query_key_norm == "whole":
            q_BTHE = self.query_norm(q_BTHE.reshape(B, T, H * E)).reshape(B, T, H, E)
            k_BTGE = self.key_norm(k_BTGE.reshape(B, T, G * E)).reshape(B, T, G, E)
        if (clip := config.qkv_clip) is not None:
            q_BTHE, k_BTGE, v_BTGE = (
                jnp.clip(x, -clip, clip) for x in (q_BTHE, k_BTGE, v_BTGE)
            )
        if config.query_key_norm == "head":
            q_BTHE, k_BTGE = self.query_norm(q_BTHE), self.key_norm(k_BTGE)
        if config.value_norm:
            v_BTGE = self.value_norm(v_BTGE)
        if context.rotary is not None:
            q_BTHE = rotate(q_BTHE, context.rotary, config)
            k_BTGE = rotate(k_BTGE, context.rotary, config)
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E).astype(dtype)
        k_BTGE, v_BTGE = k_BTGE.astype(dtype), v_BTGE.astype(dtype)
        if config.attention_sinks:
            context = context._replace(sinks=self.sinks[...].reshape(G, H // G))
        mixed_BTGRE = attend(q_BTGRE, k_BTGE, v_BTGE, context, config)
        mixed_BTHE = mixed_BTGRE.reshape(B, T, H, E)
        if gate_BTHE is not None:
            mixed_BTHE *= jax.nn.sigmoid(gate_BTHE.astype(jnp.float32))
        return self.out.of_heads(mixed_BTHE, at_once=at_once), (k_BTGE, v_BTGE)

    def _reusing(
        self, hidden_BTD: jax.Array, context: AttentionContext, *, at_once: bool
    ) -> tuple[jax.Array, None]:
        """Mixed values of an earlier layer's keys and values; nothing is kept."""
        B, T, _ = hidden_BTD.shape
        config = self.config
        assert context.reused is not None and context.rotary is not None
        H, G, E = config.n_heads, config.n_kv_heads, config.head_dim
        (q_BTHE,) = self.qkv.to_heads(hidden_BTD, [H], at_once=at_once)
        q_BTHE = self.query_norm(q_BTHE)
        q_BTHE = rotate(q_BTHE, context.rotary, config)
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E).astype(self.qkv.kernel[...].dtype)
        mixed_BTGRE = attend(q_BTGRE, *context.reused, context, config)
        mixed_BTHE = mixed_BTGRE.reshape(B, T, H, E)
        return self.out.of_heads(mixed_BTHE, at_once=at_once), None


class LatentAttention(nnx.Module):
    """Causal self-attention over keys and values made of narrow vectors."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        assert config.latent is not None
        self.config, self.latent = config, config.latent
        D, H, E, R = config.d_model, config.n_heads, config.head_dim, config.n_rotated
        V, K, Q = self.latent.d_values, self.latent.rank, self.latent.query_rank
        # Whatever the other norms have.
        narrow = dataclasses.replace(config, norm_eps=1e-6)
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
        plain_BTHX, rotated_BTHR = jnp.split(q_BTHE, [E - R], axis=-1)
        rotated_BTHR = rotate(rotated_BTHR, rotary, config)
        q_BTHE = jnp.concatenate([rotated_BTHR, plain_BTHX], axis=-1)
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
