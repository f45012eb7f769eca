"""Causal attention in blocks of queries: over their own tokens, and a shared prefix.

Where the hardware has a fused kernel for the case, that one is used instead; see
`fused_attention`. Only attention without a prefix has gradients. They are computed
block by block from the logarithms of the softmax sums, so no weights are kept (with
sinks they are).

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of the prefix that all sequences share
    Q  queries of a block
    S  keys
    G  key and value heads
    R  query heads a key head serves
    E  width of a head

And in caches
    L  layers of a stack
    N  heads of a delta rule's values
    K  width of its keys
    V  width of its values
    W  tokens that its convolution sees
    C  width of its queries, keys and values
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.fused_attention import (
    Hardware,
    attend_after_prefix,
    attend_fused,
    attention_scale,
    fuses_prefix,
    kernel_of_rows,
)
from jaxcontam.models.rope import CosSin

# Queries attend in blocks of this many, each to its own prefix: most of the upper
# triangle of the score matrix is never computed. Blocks of 128 are as fast and take
# more memory to compile.
_QUERY_BLOCK = 256
# Smaller where gradients are taken: more of the triangle is left out.
_GRADIENT_BLOCK = 128
_MASKED_SCORE = -1e30


class KVCache(NamedTuple):
    """Keys and values of a prefix that precedes every sequence of a batch.

    Attributes:
        keys: `[L, P, G, E]` after rotation, or one layer's `[P, G, E]`; so are values.
        length: Tokens that are not padding; `[L]`, or a scalar in one layer.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array


class DeltaCache(NamedTuple):
    """State of a delta rule after a prefix; its size does not depend on the prefix.

    Attributes:
        states: `[L, N, K, V]` float32, or one layer's `[N, K, V]`.
        inputs: `[L, W - 1, C]`, last inputs of the convolution.
        length: As in `KVCache`.
    """

    states: jax.Array
    inputs: jax.Array
    length: jax.Array


Cache = dict[str, KVCache | DeltaCache]
"""Memory of the layers of each stack, by its name."""


class AttentionContext(NamedTuple):
    """Inputs of attention in one layer besides queries, keys and values.

    Attributes:
        rotary: From `rotary_cos_sin`; None where positions are learned.
        positions: `[T]` int32, prefix included.
        window: int32 scalar; None where no layer has a window.
        sinks: `[G, R]` float32; None where the softmax is over tokens alone.
        length: int32 scalar, tokens that are not padding; None: all.
        reused: Keys and values of an earlier layer, for one that makes none.
        layer_input: `[B, T, P]`, this layer's input beside the stream, or None.
        segments: `[B, T]` int32: tokens see those of their own segment alone; None:
            each row is one.
    """

    rotary: CosSin | None
    positions: jax.Array
    window: jax.Array | None
    cache: KVCache | DeltaCache | None
    hardware: Hardware = Hardware("cpu")
    sinks: jax.Array | None = None
    length: jax.Array | None = None
    reused: tuple[jax.Array, jax.Array] | None = None
    layer_input: jax.Array | None = None
    segments: jax.Array | None = None


def attend(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    context: AttentionContext,
    config: DecoderConfig,
) -> jax.Array:
    """Softmax attention to the shared prefix and to all tokens up to the query's own.

    Queries and keys come rotated; the mixed values, `[B, T, G, R, E]`, are float32.
    Products accumulate in float32, and the softmax is float32. The prefix's keys have
    no batch axis and are never copied for the rows.
    """
    positions_T, window = context.positions, context.window
    cache, dtype, T = context.cache, str(q_BTGRE.dtype), q_BTGRE.shape[1]
    assert not isinstance(cache, DeltaCache)
    if cache is not None:
        P = cache.keys.shape[0]
        if fuses_prefix(config, dtype, T, P, context.hardware):
            return attend_after_prefix(q_BTGRE, k_BTGE, v_BTGE, *cache, config)
    own = (q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config)
    if cache is not None or context.sinks is not None:
        return _attend_blocks(*own, cache, context.sinks, context.segments)
    kernel = kernel_of_rows(config, dtype, T, context.hardware)
    if kernel != "blocks" and context.segments is None:
        return attend_fused(kernel, q_BTGRE, k_BTGE, v_BTGE, config)
    return _attend_own(*own, context.segments)


def _attend_blocks(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    positions_T: jax.Array,
    window: jax.Array | None,
    config: DecoderConfig,
    cache: KVCache | None = None,
    sinks_GR: jax.Array | None = None,
    segments_BT: jax.Array | None = None,
) -> jax.Array:
    T = q_BTGRE.shape[1]
    blocks = []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        q_BQGRE = q_BTGRE[:, start:stop]
        positions_Q = positions_T[start:stop]
        raw_BGRQS = _product("bqgre,bsge->bgrqs", q_BQGRE, k_BTGE[:, :stop])
        seen_BQS = _seen(positions_Q, positions_T[:stop], window)
        seen_BQS &= _shared(segments_BT, start, stop)
        scores = [_masked(raw_BGRQS, seen_BQS, config)]
        if cache is not None:
            raw_BGRQP = _product("bqgre,sge->bgrqs", q_BQGRE, cache.keys)
            positions_P = jnp.arange(cache.keys.shape[0])
            seen_1QP = _seen(positions_Q, positions_P, window)
            seen_1QP &= positions_P[None, None] < cache.length
            scores.insert(0, _masked(raw_BGRQP, seen_1QP, config))
        # S here counts the prefix's keys, then the block's own.
        scores_BGRQS = jnp.concatenate(scores, axis=-1)
        if sinks_GR is not None:
            # One more score, whose weight is left out.
            sinks_1GR11 = sinks_GR[None, :, :, None, None]
            sinks_BGRQ1 = jnp.broadcast_to(sinks_1GR11, (*scores_BGRQS.shape[:-1], 1))
            scores_BGRQS = jnp.concatenate([scores_BGRQS, sinks_BGRQ1], axis=-1)
        weights_BGRQS = jax.nn.softmax(scores_BGRQS, axis=-1)
        if sinks_GR is not None:
            weights_BGRQS = weights_BGRQS[..., :-1]
        weights_BGRQS = weights_BGRQS.astype(v_BTGE.dtype)
        mixed_BQGRE = _product(
            "bgrqs,bsge->bqgre", weights_BGRQS[..., -stop:], v_BTGE[:, :stop]
        )
        if cache is not None:
            mixed_BQGRE += _product(
                "bgrqs,sge->bqgre", weights_BGRQS[..., :-stop], cache.values
            )
        blocks.append(mixed_BQGRE)
    return jnp.concatenate(blocks, axis=1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attend_own(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    positions_T: jax.Array,
    window: jax.Array | None,
    config: DecoderConfig,
    segments_BT: jax.Array | None = None,
) -> jax.Array:
    """Attention without a prefix, with the gradient defined below."""
    own = (q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config)
    return _attend_blocks(*own, segments_BT=segments_BT)


def _own_forward(
    q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config, segments_BT=None
):
    """Mixed values, and the residuals of `_own_backward`: `[B, G, R, T]` log-sums."""
    q_BGRTE = jnp.moveaxis(q_BTGRE, 1, 3)
    k_BGTE, v_BGTE = jnp.moveaxis(k_BTGE, 1, 2), jnp.moveaxis(v_BTGE, 1, 2)
    T = positions_T.shape[0]
    places = (positions_T, window, segments_BT)
    mixed, log_sums = [], []
    for start in range(0, T, _GRADIENT_BLOCK):
        stop = min(start + _GRADIENT_BLOCK, T)
        scores_BGRQS, _ = _own_scores(q_BGRTE, k_BGTE, start, stop, places, config)
        log_sums_BGRQ = jax.nn.logsumexp(scores_BGRQS, axis=-1)
        weights_BGRQS = jnp.exp(scores_BGRQS - log_sums_BGRQ[..., None])
        weights_BGRQS = weights_BGRQS.astype(v_BTGE.dtype)
        log_sums.append(log_sums_BGRQ)
        mixed.append(_product("bgrqs,bgse->bgrqe", weights_BGRQS, v_BGTE[:, :, :stop]))
    mixed_BGRTE = jnp.concatenate(mixed, axis=3)
    log_sums_BGRT = jnp.concatenate(log_sums, axis=3)
    kept = (q_BGRTE, k_BGTE, v_BGTE, mixed_BGRTE, log_sums_BGRT, places)
    return jnp.moveaxis(mixed_BGRTE, 3, 1), kept


def _own_backward(config, kept, cotangent_BTGRE):
    """Cotangents of queries, keys and values; Dao et al., arXiv:2205.14135, B.4."""
    q_BGRTE, k_BGTE, v_BGTE, mixed_BGRTE, log_sums_BGRT, places = kept
    cotangent_BGRTE = jnp.moveaxis(cotangent_BTGRE, 1, 3)
    mean_BGRT = jnp.sum(cotangent_BGRTE * mixed_BGRTE, axis=-1)
    dtype = v_BGTE.dtype
    cotangent_BGRTE = cotangent_BGRTE.astype(dtype)
    dk_BGTE = jnp.zeros(k_BGTE.shape, jnp.float32)
    dv_BGTE = jnp.zeros(v_BGTE.shape, jnp.float32)
    dq = []
    T = q_BGRTE.shape[3]
    for start in range(0, T, _GRADIENT_BLOCK):
        stop = min(start + _GRADIENT_BLOCK, T)
        block = (..., slice(start, stop), slice(None))
        scores_BGRQS, derivative = _own_scores(
            q_BGRTE, k_BGTE, start, stop, places, config
        )
        weights_BGRQS = jnp.exp(scores_BGRQS - log_sums_BGRT[..., start:stop, None])
        cotangent_BGRQE = cotangent_BGRTE[block]
        dv_BGSE = _product(
            "bgrqs,bgrqe->bgse", weights_BGRQS.astype(dtype), cotangent_BGRQE
        )
        dv_BGTE = dv_BGTE.at[:, :, :stop].add(dv_BGSE)
        dweights_BGRQS = _product(
            "bgrqe,bgse->bgrqs", cotangent_BGRQE, v_BGTE[:, :, :stop]
        )
        dscores_BGRQS = weights_BGRQS * (
            dweights_BGRQS - mean_BGRT[..., start:stop, None]
        )
        dscores_BGRQS = (dscores_BGRQS * derivative).astype(dtype)
        dq.append(_product("bgrqs,bgse->bgrqe", dscores_BGRQS, k_BGTE[:, :, :stop]))
        dk_BGSE = _product("bgrqs,bgrqe->bgse", dscores_BGRQS, q_BGRTE[block])
        dk_BGTE = dk_BGTE.at[:, :, :stop].add(dk_BGSE)
    dq_BGRTE = jnp.concatenate(dq, axis=3)
    return (
        jnp.moveaxis(dq_BGRTE, 3, 1).astype(q_BGRTE.dtype),
        jnp.moveaxis(dk_BGTE, 2, 1).astype(dtype),
        jnp.moveaxis(dv_BGTE, 2, 1).astype(dtype),
        None,
        None,
        None,
    )


_attend_own.defvjp(_own_forward, _own_backward)


def _own_scores(
    q_BGRTE: jax.Array,
    k_BGTE: jax.Array,
    start: int,
    stop: int,
    places: tuple[jax.Array, jax.Array | None, jax.Array | None],
    config: DecoderConfig,
) -> tuple[jax.Array, jax.Array | float]:
    """Masked scores of a block of queries, and their derivative by the raw products."""
    positions_T, window, segments_BT = places
    raw_BGRQS = _product(
        "bgrqe,bgse->bgrqs", q_BGRTE[..., start:stop, :], k_BGTE[:, :, :stop]
    )
    seen_BQS = _seen(positions_T[start:stop], positions_T[:stop], window)
    seen_BQS &= _shared(segments_BT, start, stop)
    scores_BGRQS = _masked(raw_BGRQS, seen_BQS, config)
    scale, cap = attention_scale(config), config.attention_softcap
    if cap is None:
        return scores_BGRQS, scale
    capped_BGRQS = softcapped(raw_BGRQS * scale, cap)
    return scores_BGRQS, scale * (1.0 - jnp.square(capped_BGRQS / cap))


def _product(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)


def _seen(
    positions_Q: jax.Array, positions_S: jax.Array, window: jax.Array | None
) -> jax.Array:
    """True where a query sees a key by its place, `[1, Q, S]`."""
    distance_QS = positions_Q[:, None] - positions_S[None]
    seen_QS = distance_QS >= 0
    if window is not None:
        seen_QS &= distance_QS < window
    return seen_QS[None]


def _shared(segments_BT: jax.Array | None, start: int, stop: int) -> jax.Array | bool:
    """True where query and key are of one segment, `[B, Q, S]`."""
    if segments_BT is None:
        return True
    return segments_BT[:, start:stop, None] == segments_BT[:, None, :stop]


def _masked(
    raw_BGRQS: jax.Array, seen_BQS: jax.Array, config: DecoderConfig
) -> jax.Array:
    scaled_BGRQS = raw_BGRQS * attention_scale(config)
    scores_BGRQS = softcapped(scaled_BGRQS, config.attention_softcap)
    return jnp.where(seen_BQS[:, None, None], scores_BGRQS, _MASKED_SCORE)


def softcapped(x: jax.Array, cap: float | None) -> jax.Array:
    """Limit `x` smoothly to [-cap, cap]: cap * tanh(x / cap); None leaves it."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def cache_of(kept: dict[str, Any], lengths: dict[str, jax.Array]) -> Cache:
    """The cache of a prefix, from what its layers made, `[L, 1, ...]`, and lengths."""

    def of_stack(stack: str, first: jax.Array, second: jax.Array):
        kind = DeltaCache if stack == "delta_blocks" else KVCache
        return kind(first[:, 0], second[:, 0], lengths[stack])

    return {stack: of_stack(stack, *made) for stack, made in kept.items()}


def length_of(cache: Cache) -> jax.Array:
    """Tokens in a cache, a scalar: as many in all layers."""
    return next(iter(cache.values())).length[0]


def with_room(cache: Cache, room: int) -> Cache:
    """The cache with padding for more tokens."""
    after = ((0, 0), (0, room), (0, 0), (0, 0))
    return {
        stack: one
        if isinstance(one, DeltaCache)
        else KVCache(jnp.pad(one.keys, after), jnp.pad(one.values, after), one.length)
        for stack, one in cache.items()
    }


def extended(cache: Cache, kept: dict[str, Any]) -> Cache:
    """The cache with one more token, from what the layers made of it, `[L, 1, ...]`."""
    write = jax.lax.dynamic_update_slice_in_dim

    def longer(one: KVCache | DeltaCache, first: jax.Array, second: jax.Array):
        if isinstance(one, DeltaCache):
            return DeltaCache(first[:, 0], second[:, 0], one.length + 1)
        return KVCache(
            write(one.keys, first[:, 0], one.length[0], axis=1),
            write(one.values, second[:, 0], one.length[0], axis=1),
            one.length + 1,
        )

    return {stack: longer(one, *kept[stack]) for stack, one in cache.items()}
