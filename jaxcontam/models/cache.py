"""Memory of a decoder: what it keeps of the tokens read, for those that follow.

Dimension key
    L  layers of a stack
    P  tokens of a prefix
    G  key and value heads
    E  width of a head
    N  heads of a delta rule's values
    K  width of its keys
    V  width of its values
    W  tokens that its convolution sees
    C  width of its queries, keys and values
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class KVCache(NamedTuple):
    """Keys and values of a prefix that precedes every sequence of a batch.

    Attributes:
        keys: `[L, P, G, E]` after rotation, or one layer's `[P, G, E]`.
        values: Same shape.
        length: int32, tokens of the prefix that are not padding; `[L]`, or a scalar in
            one layer.
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
