"""Causal attention: blocks of queries over their own prefixes, and over a shared one.

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

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontam.models.config import DecoderConfig

# Queries attend in blocks of this many, each to its own prefix: most of the upper
# triangle of the score matrix is never computed. Blocks of 128 are as fast and take
# more memory to compile.
_QUERY_BLOCK = 256
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
    """

    turn: tuple[jax.Array, jax.Array] | None
    positions: jax.Array
    window: jax.Array | None
    memory: Memory | None


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
    T, E = q_BTGRE.shape[1], q_BTGRE.shape[-1]
    scale = config.attention_scale or E**-0.5
    blocks = []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        q_BQGRE = q_BTGRE[:, start:stop]
        places_Q = view.positions[start:stop]
        scores = _product("bqgre,bsge->bgrqs", q_BQGRE, k_BTGE[:, :stop])
        seen_QS = _seen(places_Q, view.positions[:stop], view.window)
        parts = [_masked(scores, seen_QS, scale, config)]
        if view.memory is not None:
            memory = view.memory
            scores = _product("bqgre,sge->bgrqs", q_BQGRE, memory.keys)
            places_S = jnp.arange(memory.keys.shape[0])
            seen_QS = _seen(places_Q, places_S, view.window)
            seen_QS &= places_S[None] < memory.length
            parts.insert(0, _masked(scores, seen_QS, scale, config))
        weights = jax.nn.softmax(jnp.concatenate(parts, axis=-1), axis=-1)
        weights = weights.astype(v_BTGE.dtype)
        own = weights[..., -stop:]
        mixed = _product("bgrqs,bsge->bqgre", own, v_BTGE[:, :stop])
        if view.memory is not None:
            before = weights[..., :-stop]
            mixed += _product("bgrqs,sge->bqgre", before, view.memory.values)
        blocks.append(mixed)
    return jnp.concatenate(blocks, axis=1)


def _product(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)


def _seen(places_Q: jax.Array, places_S: jax.Array, window) -> jax.Array:
    """Whether each query sees each key, `[Q, S]`."""
    distance_QS = places_Q[:, None] - places_S[None]
    seen_QS = distance_QS >= 0
    return seen_QS if window is None else seen_QS & (distance_QS < window)


def _masked(
    scores: jax.Array, seen_QS: jax.Array, scale: float, config: DecoderConfig
) -> jax.Array:
    scores = softcapped(scores * scale, config.attention_softcap)
    return jnp.where(seen_QS[None, None, None], scores, _NEVER)


def softcapped(x: jax.Array, cap: float | None) -> jax.Array:
    """Smoothly limit `x` to plus and minus `cap`; None leaves it."""
    return x if cap is None else cap * jnp.tanh(x / cap)
