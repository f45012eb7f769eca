"""Layers with a gated delta rule in place of attention.

Each head keeps a matrix S that maps keys to values. A token with key k and value v
lets it fade by a factor a, then moves what it holds for k towards v by a share b:

    S <- a S;  S <- S + b k (v - k S);  its output is q S

The scan goes over chunks of tokens. Within one, all differences v - k S are the
solution of one triangular system, and the rest is products.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    G  heads of queries and keys
    N  heads of values
    K  width of queries and keys
    V  width of values
    W  tokens that the convolution sees
    C  width of all queries, keys and values
    I  tokens of a chunk, those that read
    J  tokens of a chunk, those that are read

Source:
    Yang et al. 2024, arXiv:2412.06464, section 3.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import AttentionContext, DeltaCache
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.layers import Linear, Norm, init_weight


class GatedDelta(nnx.Module):
    """Gated delta rule over convolved queries, keys and values, with an output gate."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        assert config.delta is not None
        self.shape = shape = config.delta
        D, N, V = config.d_model, shape.n_values, shape.d_values
        self.qkv = Linear(D, shape.d_mixed, bias=False, rngs=rngs, rounds=True)
        self.gate = Linear(D, N * V, bias=False, rngs=rngs, rounds=True)
        self.rates = Linear(D, 2 * N, bias=False, rngs=rngs)
        self.convolution = init_weight(rngs, (shape.window, 1, shape.d_mixed))
        self.log_decay = nnx.Param(jnp.zeros((N,)))
        self.decay_bias = nnx.Param(jnp.ones((N,)))
        self.norm = Norm(dataclasses.replace(config, norm_offset=0.0), V)
        self.out = Linear(N * V, D, bias=False, rngs=rngs)

    def __call__(
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Output of the layer, `[B, T, D]`; states and inputs of a `DeltaCache`."""
        B, T, _ = hidden_BTD.shape
        shape, cache, length = self.shape, context.cache, context.length
        G, N, K, V = shape.n_keys, shape.n_values, shape.d_keys, shape.d_values
        W, C = shape.window, shape.d_mixed
        assert not cache or isinstance(cache, DeltaCache)
        inputs_BTC = self.qkv(hidden_BTD)
        before = jnp.zeros((W - 1, C)) if cache is None else cache.inputs
        before_BWC = jnp.broadcast_to(before.astype(inputs_BTC.dtype), (B, W - 1, C))
        # Of the tokens before, then the row's own.
        all_BTC = jnp.concatenate([before_BWC, inputs_BTC], axis=1)
        filters_W1C = self.convolution[...]
        mixed_BTC = sum(
            all_BTC[:, w : w + T].astype(jnp.float32) * filters_W1C[w][None]
            for w in range(W)
        )
        q_BTX, k_BTX, v_BTX = jnp.split(
            jax.nn.silu(mixed_BTC), [G * K, 2 * G * K], axis=-1
        )
        q_BTNK, k_BTNK = (
            jnp.repeat(_unit(x.reshape(B, T, G, K)), N // G, axis=2)
            for x in (q_BTX, k_BTX)
        )
        share_BTN, decay_BTN = jnp.split(self.rates(hidden_BTD), 2, axis=-1)
        share_BTN = jax.nn.sigmoid(share_BTN)
        decay_BTN = jax.nn.softplus(decay_BTN + self.decay_bias[...][None, None])
        decay_BTN *= -jnp.exp(self.log_decay[...])[None, None]
        if length is not None:
            # Padding neither fades nor moves the state.
            counts_T1 = (jnp.arange(T) < length)[None, :, None]
            share_BTN, decay_BTN = (
                jnp.where(counts_T1, x, 0.0) for x in (share_BTN, decay_BTN)
            )
        states = jnp.zeros((N, K, V)) if cache is None else cache.states
        mixed_BTNV, states_BNKV = delta_rule(
            (q_BTNK * K**-0.5, k_BTNK, v_BTX.reshape(B, T, N, V)),
            (share_BTN, decay_BTN),
            jnp.broadcast_to(states, (B, N, K, V)),
        )
        gate_BTNV = self.gate(hidden_BTD).astype(jnp.float32).reshape(B, T, N, V)
        mixed_BTNV = self.norm(mixed_BTNV) * jax.nn.silu(gate_BTNV)
        last_BWC = jax.lax.dynamic_slice_in_dim(
            all_BTC, T if length is None else length, W - 1, axis=1
        )
        return self.out(mixed_BTNV.reshape(B, T, N * V)), (states_BNKV, last_BWC)


def delta_rule(
    qkv: tuple[jax.Array, jax.Array, jax.Array],
    rates: tuple[jax.Array, jax.Array],
    states_BNKV: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The rule over whole sequences, all float32.

    Args:
        qkv: Queries and keys, `[B, T, N, K]`, and values, `[B, T, N, V]`.
        rates: Share b and logarithm of the factor a, `[B, T, N]`.
        states_BNKV: States before the first token.

    Returns:
        Outputs `[B, T, N, V]`, and the states after the last token.
    """
    B, T, N, V = qkv[2].shape
    # Tokens of a chunk, as in the authors' code.
    size = min(64, T)
    n_chunks = -(-T // size)

    def chunks(x_BT: jax.Array) -> jax.Array:
        """Chunks first, then `[B, N, I]` and the width where there is one."""
        after = [(0, 0)] * x_BT.ndim
        after[1] = (0, n_chunks * size - T)
        x_BT = jnp.pad(x_BT, after)
        x = x_BT.reshape(B, n_chunks, size, *x_BT.shape[2:])
        return jnp.moveaxis(jnp.moveaxis(x, 3, 2), 1, 0)

    is_later_IJ = jnp.tri(size, dtype=bool)

    # The backward pass recomputes a chunk from the state before it.
    @jax.checkpoint
    def step(states_BNKV: jax.Array, chunk) -> tuple[jax.Array, jax.Array]:
        q_BNIK, k_BNIK, v_BNIV, share_BNI, decay_BNI = chunk
        faded_BNI = jnp.cumsum(decay_BNI, axis=-1)
        between_BNIJ = faded_BNI[..., :, None] - faded_BNI[..., None, :]
        # Masked before the exponential, which overflows on the other side.
        between_BNIJ = jnp.exp(
            jnp.where(is_later_IJ[None, None], between_BNIJ, -jnp.inf)
        )
        since_BNI1 = jnp.exp(faded_BNI)[..., None]
        k_BNKJ = jnp.swapaxes(k_BNIK, -1, -2)
        missed_BNIV = v_BNIV - (k_BNIK * since_BNI1) @ states_BNKV
        moved_BNIV = jax.lax.linalg.triangular_solve(
            share_BNI[..., None] * (k_BNIK @ k_BNKJ) * between_BNIJ,
            share_BNI[..., None] * missed_BNIV,
            left_side=True,
            lower=True,
            unit_diagonal=True,
        )
        out_BNIV = (q_BNIK * since_BNI1) @ states_BNKV
        out_BNIV += ((q_BNIK @ k_BNKJ) * between_BNIJ) @ moved_BNIV
        left_BNI = jnp.exp(faded_BNI[..., -1:] - faded_BNI)
        states_BNKV = states_BNKV * since_BNI1[..., -1:, :]
        states_BNKV += (k_BNKJ * left_BNI[..., None, :]) @ moved_BNIV
        return states_BNKV, out_BNIV

    states_BNKV, out = jax.lax.scan(
        step, states_BNKV, tuple(chunks(x) for x in (*qkv, *rates))
    )
    out_BTNV = jnp.moveaxis(jnp.moveaxis(out, 0, 1), 2, 3)
    return out_BTNV.reshape(B, n_chunks * size, N, V)[:, :T], states_BNKV


def _unit(x: jax.Array) -> jax.Array:
    """Vectors of length 1 along the last axis."""
    # The number is transformers' and the authors' own.
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)
