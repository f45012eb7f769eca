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
    Kernel,
    attend_after_prefix,
    attend_fused,
    attention_scale,
    fuses_prefix,
    kernel_of_rows,
)
from jaxcontam.models.rope import CosSin

# Queries attend in blocks of this many, each to its own prefix: most of the upper
# triangle of the score matrix is never computed.
_QUERY_BLOCK = 128
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
        return _attend_blocks(*own, cache, context.sinks, context.segments)[0]
    if (kernel := kernel_for(context, config, dtype, T)) != "blocks":
        return attend_fused(kernel, q_BTGRE, k_BTGE, v_BTGE, config, window)
    return _attend_own(*own, context.segments)


def kernel_for(
    context: AttentionContext, config: DecoderConfig, dtype: str, T: int
) -> Kernel:
    """Kernel of rows of T tokens; blocks after a prefix, and where segments are."""
    if context.cache is not None or context.segments is not None:
        return "blocks"
    return kernel_of_rows(config, dtype, T, context.hardware)


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
) -> tuple[jax.Array, jax.Array]:
    """Mixed values `[B, T, G, R, E]`, and logarithms of softmax sums `[G, B, R, T]`.

    Heads come first: products with a prefix, which has no batch axis, and with own keys
    then need no copy of the weights. Values are mixed before they are divided by the
    sum, which takes one pass over the weights less.
    """
    q_GBRTE = _heads_first(q_BTGRE)
    k_GBTE, v_GBTE = _heads_first(k_BTGE), _heads_first(v_BTGE)
    places = (positions_T, window, segments_BT)
    T = positions_T.shape[0]
    mixed, log_sums = [], []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        scores_GBRQS, _ = _own_scores(q_GBRTE, k_GBTE, start, stop, places, config)
        parts = [("gbrqs,gbse->gbrqe", scores_GBRQS, v_GBTE[:, :, :stop])]
        if cache is not None:
            raw_GBRQP = _product(
                "gbrqe,sge->gbrqs", q_GBRTE[..., start:stop, :], cache.keys
            )
            positions_P = jnp.arange(cache.keys.shape[0])
            seen_1QP = _seen(positions_T[start:stop], positions_P, window)
            seen_1QP &= positions_P[None, None] < cache.length
            scores_GBRQP = _masked(raw_GBRQP, seen_1QP, config)
            parts.append(("gbrqs,sge->gbrqe", scores_GBRQP, cache.values))
        tops = [scores.max(axis=-1) for _, scores, _ in parts]
        if sinks_GR is not None:
            tops.append(sinks_GR[:, None, :, None])
        top_GBRQ = jax.lax.stop_gradient(functools.reduce(jnp.maximum, tops))
        # A sink is one more score, of no value.
        sink_GBRQ = 0.0 if sinks_GR is None else jnp.exp(tops[-1] - top_GBRQ)
        total_GBRQ, mixed_GBRQE = jnp.asarray(sink_GBRQ), jnp.asarray(0.0)
        for subscripts, scores, values in parts:
            weights = jnp.exp(scores - top_GBRQ[..., None])
            total_GBRQ += weights.sum(axis=-1)
            mixed_GBRQE += _product(subscripts, weights.astype(values.dtype), values)
        mixed.append(mixed_GBRQE / total_GBRQ[..., None])
        log_sums.append(top_GBRQ + jnp.log(total_GBRQ))
    mixed_BTGRE = _from_heads_first(jnp.concatenate(mixed, axis=3))
    return mixed_BTGRE, jnp.concatenate(log_sums, axis=3)


def _heads_first(x_BTG: jax.Array) -> jax.Array:
    """`[B, T, G, ...]` to `[G, B, ..., T, E]`."""
    return jnp.moveaxis(x_BTG, (2, 1), (0, -2))


def _from_heads_first(x_GBTE: jax.Array) -> jax.Array:
    """The inverse of `_heads_first`."""
    return jnp.moveaxis(x_GBTE, (0, -2), (2, 1))


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
    return _attend_blocks(*own, segments_BT=segments_BT)[0]


def _own_forward(
    q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config, segments_BT=None
):
    """Mixed values, and the residuals of `_own_backward`."""
    own = (q_BTGRE, k_BTGE, v_BTGE, positions_T, window, config)
    mixed_BTGRE, log_sums_GBRT = _attend_blocks(*own, segments_BT=segments_BT)
    kept = map(_heads_first, (q_BTGRE, k_BTGE, v_BTGE, mixed_BTGRE))
    return mixed_BTGRE, (*kept, log_sums_GBRT, (positions_T, window, segments_BT))


def _own_backward(config, kept, cotangent_BTGRE):
    """Cotangents of queries, keys and values; Dao et al., arXiv:2205.14135, B.4."""
    q_GBRTE, k_GBTE, v_GBTE, mixed_GBRTE, log_sums_GBRT, places = kept
    cotangent_GBRTE = _heads_first(cotangent_BTGRE)
    mean_GBRT = jnp.sum(cotangent_GBRTE * mixed_GBRTE, axis=-1)
    dtype = v_GBTE.dtype
    cotangent_GBRTE = cotangent_GBRTE.astype(dtype)
    dk_GBTE = jnp.zeros(k_GBTE.shape, jnp.float32)
    dv_GBTE = jnp.zeros(v_GBTE.shape, jnp.float32)
    dq = []
    T = q_GBRTE.shape[3]
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        block = (..., slice(start, stop), slice(None))
        scores_GBRQS, derivative = _own_scores(
            q_GBRTE, k_GBTE, start, stop, places, config
        )
        weights_GBRQS = jnp.exp(scores_GBRQS - log_sums_GBRT[..., start:stop, None])
        cotangent_GBRQE = cotangent_GBRTE[block]
        dv_GBSE = _product(
            "gbrqs,gbrqe->gbse", weights_GBRQS.astype(dtype), cotangent_GBRQE
        )
        dv_GBTE = dv_GBTE.at[:, :, :stop].add(dv_GBSE)
        dweights_GBRQS = _product(
            "gbrqe,gbse->gbrqs", cotangent_GBRQE, v_GBTE[:, :, :stop]
        )
        dscores_GBRQS = weights_GBRQS * (
            dweights_GBRQS - mean_GBRT[..., start:stop, None]
        )
        dscores_GBRQS = (dscores_GBRQS * derivative).astype(dtype)
        dq.append(_product("gbrqs,gbse->gbrqe", dscores_GBRQS, k_GBTE[:, :, :stop]))
        dk_GBSE = _product("gbrqs,gbrqe->gbse", dscores_GBRQS, q_GBRTE[block])
        dk_GBTE = dk_GBTE.at[:, :, :stop].add(dk_GBSE)
    dq_GBRTE = jnp.concatenate(dq, axis=3)
    return (
        _from_heads_first(dq_GBRTE).astype(q_GBRTE.dtype),
        _from_heads_first(dk_GBTE).astype(dtype),
        _from_heads_first(dv_GBTE).astype(dtype),
        None,
        None,
        None,
    )


_attend_own.defvjp(_own_forward, _own_backward)


def _own_scores(
    q_GBRTE: jax.Array,
    k_GBTE: jax.Array,
    start: int,
    stop: int,
    places: tuple[jax.Array, jax.Array | None, jax.Array | None],
    config: DecoderConfig,
) -> tuple[jax.Array, jax.Array | float]:
    """Masked scores of a block of queries, and their derivative by the raw products."""
    positions_T, window, segments_BT = places
    raw_GBRQS = _product(
        "gbrqe,gbse->gbrqs", q_GBRTE[..., start:stop, :], k_GBTE[:, :, :stop]
    )
    seen_BQS = _seen(positions_T[start:stop], positions_T[:stop], window)
    seen_BQS &= _shared(segments_BT, start, stop)
    scores_GBRQS = _masked(raw_GBRQS, seen_BQS, config)
    scale, cap = attention_scale(config), config.attention_softcap
    if cap is None:
        return scores_GBRQS, scale
    capped_GBRQS = softcapped(raw_GBRQS * scale, cap)
    return scores_GBRQS, scale * (1.0 - jnp.square(capped_GBRQS / cap))


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
    raw_GBRQS: jax.Array, seen_BQS: jax.Array, config: DecoderConfig
) -> jax.Array:
    scaled_GBRQS = raw_GBRQS * attention_scale(config)
    scores_GBRQS = softcapped(scaled_GBRQS, config.attention_softcap)
    return jnp.where(seen_BQS[None, :, None], scores_GBRQS, _MASKED_SCORE)


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
