"""Generation on the device: prefill of a batch of prompts, then one token per step.

Dimension key
    B  prompts of a batch
    K  samples of each prompt
    P  ids of a prompt, padding at the end
    N  new ids that there is room for
    M  ids that end a text
    D  model width
    V  vocabulary
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import softcapped
from jaxcontam.models.cache import Cache, with_room
from jaxcontam.models.decoder import Decoder


class Written(NamedTuple):
    """State of the generation of a batch.

    Attributes:
        step: int32, ids drawn for each sample so far.
        hidden_BKD: Hidden state after the last id of each sample.
        cache: What is kept of all ids of each sample.
        ids_BKN: int32 ids drawn.
        counts_BK: int32, how many of them count.
        going_BK: Whether the next one counts too.
    """

    step: jax.Array
    hidden_BKD: jax.Array
    cache: Cache
    ids_BKN: jax.Array
    counts_BK: jax.Array
    going_BK: jax.Array


@functools.partial(jax.jit, static_argnames=("graphdef", "room"))
def read_prompts(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    prompts_BP: jax.Array,
    lengths_B: jax.Array,
    wanted_BK: jax.Array,
    *,
    room: int,
) -> Written:
    """Prefill the prompts of a batch, with room for new ids in the cache.

    Prompts are int32 ids with padding at the end, `lengths_B` those that are none, at
    least 1; samples that are not wanted are padding.
    """
    B, K = wanted_BK.shape
    decoder: Decoder = nnx.merge(graphdef, state)

    def read(prompt_P: jax.Array, length: jax.Array) -> tuple[jax.Array, Cache]:
        hidden_PD, cache = decoder.prefill(prompt_P, length)
        longer = with_room(cache, room)
        return hidden_PD[length - 1], longer

    with jax.default_matmul_precision(decoder.precision):
        read_B = jax.vmap(read)(prompts_BP, lengths_B)
    # The samples of a prompt start from the same cache.
    hidden_BKD, cache = jax.tree.map(
        lambda part: jnp.broadcast_to(part[:, None], (B, K, *part.shape[1:])), read_B
    )
    return Written(
        jnp.int32(0),
        hidden_BKD,
        cache,
        jnp.zeros((B, K, room), jnp.int32),
        jnp.zeros((B, K), jnp.int32),
        wanted_BK,
    )


@functools.partial(
    jax.jit,
    static_argnames=("graphdef", "is_greedy"),
    donate_argnames="written",
)
def go_on(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    written: Written,
    keys_BK2: jax.Array,
    until: jax.Array,
    temperature: jax.Array,
    stops_M: jax.Array,
    *,
    is_greedy: bool,
) -> Written:
    """Decode until each sample has `until` ids, or all samples have ended.

    The buffers of `written` are donated. `keys_BK2` is uint32, key data of each sample;
    `until` is at most the room. The temperature divides the logits unless `is_greedy`.
    `stops_M` are int32 ids that end a sample; they are written and do not count.
    """
    decoder: Decoder = nnx.merge(graphdef, state)
    cap, head_VD = decoder.config.logit_softcap, decoder.head_VD

    def next_id(hidden_D: jax.Array, key_2: jax.Array, step: jax.Array) -> jax.Array:
        logits_V = jnp.einsum(
            "d,vd->v",
            hidden_D.astype(head_VD.dtype),
            head_VD,
            preferred_element_type=jnp.float32,
        )
        logits_V = softcapped(logits_V, cap)
        if is_greedy:
            return jnp.argmax(logits_V).astype(jnp.int32)
        key = jax.random.wrap_key_data(key_2, impl="threefry2x32")
        key = jax.random.fold_in(key, step)
        return jax.random.categorical(key, logits_V / temperature).astype(jnp.int32)

    each_row = functools.partial(jax.vmap, in_axes=(0, 0, None))
    next_ids = each_row(each_row(next_id))
    decode = jax.vmap(jax.vmap(decoder.decode))

    def is_unfinished(now: Written) -> jax.Array:
        return (now.step < until) & now.going_BK.any()

    def one_more(now: Written) -> Written:
        next_BK = next_ids(now.hidden_BKD, keys_BK2, now.step)
        is_stop_BK = (next_BK[..., None] == stops_M[None, None]).any(axis=-1)
        going_BK = now.going_BK & ~is_stop_BK
        hidden_BKD, cache = decode(next_BK, now.cache)
        return Written(
            now.step + 1,
            hidden_BKD,
            cache,
            jax.lax.dynamic_update_index_in_dim(now.ids_BKN, next_BK, now.step, axis=2),
            now.counts_BK + going_BK.astype(jnp.int32),
            going_BK,
        )

    with jax.default_matmul_precision(decoder.precision):
        return jax.lax.while_loop(is_unfinished, one_more, written)
