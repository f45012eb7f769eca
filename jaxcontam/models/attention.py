"""Causal attention: blocks of queries over their own prefixes, and over a shared one.

Where the hardware has a fused kernel for the case, that one is used instead; see
`fused_attention`. Gradients are taken of the tokens' own attention alone, block by
block too: weights are computed again from the logarithms of their sums, so none are
kept.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of the prefix that all sequences share
    Q  queries of a block
    S  keys
    L  layers
    G  key and value heads
    R  query heads a key head serves
    E  width of a head
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.fused_attention import (
    Hardware,
    attend_fused,
    attention_scale,
    kernel_of_rows,
)

# Queries attend in blocks of this many, each to its own prefix: most of the upper
# triangle of the score matrix is never computed. Blocks of 128 are as fast and take
# more memory to compile.
_QUERY_BLOCK = 256
# Smaller where gradients are taken: more of the triangle is left out.
_GRADIENT_BLOCK = 128
_NEVER = -1e30


class Memory(NamedTuple):
    """What is kept of a prefix that stands before every sequence of a batch.

    Attributes:
        keys: `[L, P, G, E]` after rotation, or one layer's `[P, G, E]`.
        values: Likewise.
        length: int32, tokens of the prefix that are no padding; `[L]`, or a scalar in
            one layer.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array


class View(NamedTuple):
    """What attention in one layer is told besides the residual stream.

    Attributes:
        turn: Cosines and sines of `rotation`, or None where positions are learned.
        positions: `[T]`, place of each token in its sequence, prefix included.
        window: Tokens that a position sees, or None where no layer has a window.
        memory: The prefix of this layer, or None.
        hardware: Device that chooses between attention kernels.
    """

    turn: tuple[jax.Array, jax.Array] | None
    positions: jax.Array
    window: jax.Array | None
    memory: Memory | None
    hardware: Hardware = Hardware("cpu")


def attend(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    view: View,
    config: DecoderConfig,
) -> jax.Array:
    """Softmax attention to the shared prefix and to the tokens up to the query's own.

    Products add up in float32, and the softmax is float32, whatever the operands are.
    The prefix's keys have no batch axis and are never copied for the rows.

    Returns:
        Mixed values, `[B, T, G, R, E]` float32.
    """
    if view.memory is None:
        T = q_BTGRE.shape[1]
        kernel = kernel_of_rows(config, str(q_BTGRE.dtype), T, view.hardware)
        if kernel != "blocks":
            return attend_fused(kernel, q_BTGRE, k_BTGE, v_BTGE, config)
        return _attend_own(q_BTGRE, k_BTGE, v_BTGE, view.positions, view.window, config)
    return _attend_blocks(
        q_BTGRE, k_BTGE, v_BTGE, view.positions, view.window, config, view.memory
    )


def _attend_blocks(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    positions_T: jax.Array,
    window: jax.Array | None,
    config: DecoderConfig,
    memory: Memory | None = None,
) -> jax.Array:
    T = q_BTGRE.shape[1]
    blocks = []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        q_BQGRE = q_BTGRE[:, start:stop]
        places_Q = positions_T[start:stop]
        scores = _product("bqgre,bsge->bgrqs", q_BQGRE, k_BTGE[:, :stop])
        seen_QS = _seen(places_Q, positions_T[:stop], window)
        parts = [_masked(scores, seen_QS, config)]
        if memory is not None:
            scores = _product("bqgre,sge->bgrqs", q_BQGRE, memory.keys)
            places_S = jnp.arange(memory.keys.shape[0])
            seen_QS = _seen(places_Q, places_S, window)
            seen_QS &= places_S[None] < memory.length
            parts.insert(0, _masked(scores, seen_QS, config))
        weights = jax.nn.softmax(jnp.concatenate(parts, axis=-1), axis=-1)
        weights = weights.astype(v_BTGE.dtype)
        own = weights[..., -stop:]
        mixed = _product("bgrqs,bsge->bqgre", own, v_BTGE[:, :stop])
        if memory is not None:
            before = weights[..., :-stop]
            mixed += _product("bgrqs,sge->bqgre", before, memory.values)
        blocks.append(mixed)
    return jnp.concatenate(blocks, axis=1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend_own(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    positions_T: jax.Array,
    window: jax.Array | None,
    config: DecoderConfig,
) -> jax.Array:
    """Attention without a prefix, whose gradients are written out below."""
    return _attend_blocks(q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config)


def _own_forward(q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config):
    """Mixed values, and what `_own_backward` needs: `[B, G, R, T]` log-sums for all."""
    q_BGRTE = jnp.moveaxis(q_BTGRE, 1, 3)
    k_BGTE, v_BGTE = jnp.moveaxis(k_BTGE, 1, 2), jnp.moveaxis(v_BTGE, 1, 2)
    T = positions_T.shape[0]
    mixed, log_sums = [], []
    for start in range(0, T, _GRADIENT_BLOCK):
        stop = min(start + _GRADIENT_BLOCK, T)
        scores = _own_scores(q_BGRTE, k_BGTE, start, stop, positions_T, window, config)[
            0
        ]
        log_sums.append(jax.nn.logsumexp(scores, axis=-1))
        weights = jnp.exp(scores - log_sums[-1][..., None]).astype(v_BTGE.dtype)
        mixed.append(_product("bgrqs,bgse->bgrqe", weights, v_BGTE[:, :, :stop]))
    mixed_BGRTE = jnp.concatenate(mixed, axis=3)
    log_sums_BGRT = jnp.concatenate(log_sums, axis=3)
    kept = (q_BGRTE, k_BGTE, v_BGTE, mixed_BGRTE, log_sums_BGRT, positions_T, window)
    return jnp.moveaxis(mixed_BGRTE, 3, 1), kept


def _own_backward(config, kept, slope_BTGRE):
    """Gradients by queries, keys and values.

    Source:
        Dao et al. 2022, arXiv:2205.14135, appendix B.4.
    """
    q_BGRTE, k_BGTE, v_BGTE, mixed_BGRTE, log_sums_BGRT, positions_T, window = kept
    slope_BGRTE = jnp.moveaxis(slope_BTGRE, 1, 3)
    mean_BGRT = jnp.sum(slope_BGRTE * mixed_BGRTE, axis=-1)
    dtype = v_BGTE.dtype
    slope_BGRTE = slope_BGRTE.astype(dtype)
    by_k_BGTE = jnp.zeros(k_BGTE.shape, jnp.float32)
    by_v_BGTE = jnp.zeros(v_BGTE.shape, jnp.float32)
    by_q = []
    T = positions_T.shape[0]
    for start in range(0, T, _GRADIENT_BLOCK):
        stop = min(start + _GRADIENT_BLOCK, T)
        block = (..., slice(start, stop), slice(None))
        scores, inner = _own_scores(
            q_BGRTE, k_BGTE, start, stop, positions_T, window, config
        )
        weights = jnp.exp(scores - log_sums_BGRT[..., start:stop, None])
        slope = slope_BGRTE[block]
        by_v = _product("bgrqs,bgrqe->bgse", weights.astype(dtype), slope)
        by_v_BGTE = by_v_BGTE.at[:, :, :stop].add(by_v)
        by_weights = _product("bgrqe,bgse->bgrqs", slope, v_BGTE[:, :, :stop])
        by_scores = weights * (by_weights - mean_BGRT[..., start:stop, None])
        by_scores = (by_scores * inner).astype(dtype)
        by_q.append(_product("bgrqs,bgse->bgrqe", by_scores, k_BGTE[:, :, :stop]))
        by_k = _product("bgrqs,bgrqe->bgse", by_scores, q_BGRTE[block])
        by_k_BGTE = by_k_BGTE.at[:, :, :stop].add(by_k)
    by_q_BGRTE = jnp.concatenate(by_q, axis=3)
    return (
        jnp.moveaxis(by_q_BGRTE, 3, 1).astype(q_BGRTE.dtype),
        jnp.moveaxis(by_k_BGTE, 2, 1).astype(dtype),
        jnp.moveaxis(by_v_BGTE, 2, 1).astype(dtype),
        None,
        None,
    )


_attend_own.defvjp(_own_forward, _own_backward)


def _own_scores(
    q_BGRTE: jax.Array,
    k_BGTE: jax.Array,
    start: int,
    stop: int,
    positions_T: jax.Array,
    window: jax.Array | None,
    config: DecoderConfig,
) -> tuple[jax.Array, jax.Array | float]:
    """Masked scores of a block of queries, and their slope by the raw products."""
    raw = _product(
        "bgrqe,bgse->bgrqs", q_BGRTE[..., start:stop, :], k_BGTE[:, :, :stop]
    )
    seen_QS = _seen(positions_T[start:stop], positions_T[:stop], window)
    scores = _masked(raw, seen_QS, config)
    scale = attention_scale(config)
    if config.attention_softcap is None:
        return scores, scale
    capped = softcapped(raw * scale, config.attention_softcap)
    return scores, scale * (1.0 - jnp.square(capped / config.attention_softcap))


def _product(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)


def _seen(places_Q: jax.Array, places_S: jax.Array, window) -> jax.Array:
    """Whether each query sees each key, `[Q, S]`."""
    distance_QS = places_Q[:, None] - places_S[None]
    seen_QS = distance_QS >= 0
    return seen_QS if window is None else seen_QS & (distance_QS < window)


def _masked(scores: jax.Array, seen_QS: jax.Array, config: DecoderConfig) -> jax.Array:
    scores = softcapped(scores * attention_scale(config), config.attention_softcap)
    return jnp.where(seen_QS[None, None, None], scores, _NEVER)


def softcapped(x: jax.Array, cap: float | None) -> jax.Array:
    """Smoothly limit `x` to plus and minus `cap`; None leaves it."""
    return x if cap is None else cap * jnp.tanh(x / cap)
