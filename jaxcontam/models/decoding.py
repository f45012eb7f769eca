"""Steps of generation on the device: read prompts once, then one id a step.

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

from jaxcontam.models.attention import Memory, softcapped
from jaxcontam.models.decoder import Decoder

# Float32 means float32, as in scoring.
_PRECISION = "highest"


class Written(NamedTuple):
    """Where the samples of a batch stand.

    Attributes:
        step: Ids that were drawn for each row.
        hidden_BKD: After the last id of each.
        memory: Of all ids of each.
        ids_BKN: What was drawn.
        counts_BK: How many of them count.
        going_BK: Whether the next one counts too.
    """

    step: jax.Array
    hidden_BKD: jax.Array
    memory: Memory
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
    """Read the prompts of a batch, and leave room for new ids.

    Args:
        graphdef: Of the decoder, from `nnx.split`.
        state: Its weights.
        prompts_BP: int32 ids, padding at the end.
        lengths_B: int32, ids of each that are no padding, at least 1.
        wanted_BK: Which samples are drawn; the others are padding.
        room: N, new ids that each row has room for.
    """
    B, K = wanted_BK.shape
    decoder: Decoder = nnx.merge(graphdef, state)

    def read(prompt_P: jax.Array, length: jax.Array) -> tuple[jax.Array, Memory]:
        hidden_PD, memory = decoder.remember(prompt_P, length)
        after = ((0, 0), (0, room), (0, 0), (0, 0))
        longer = Memory(
            jnp.pad(memory.keys, after), jnp.pad(memory.values, after), memory.length
        )
        return hidden_PD[length - 1], longer

    with jax.default_matmul_precision(_PRECISION):
        read_B = jax.vmap(read)(prompts_BP, lengths_B)
    # The samples of a prompt part from the same cache.
    hidden_BKD, memory = jax.tree.map(
        lambda part: jnp.broadcast_to(part[:, None], (B, K, *part.shape[1:])), read_B
    )
    return Written(
        jnp.int32(0),
        hidden_BKD,
        memory,
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
    """Draw ids until there are `until` of each row, or every row has ended.

    Args:
        graphdef: Of the decoder.
        state: Its weights.
        written: Where the rows stand; its memory is used again and cannot be read.
        keys_BK2: uint32, key data of each sample.
        until: int32, at most the room.
        temperature: float32, divides the logits; of no meaning if `is_greedy`.
        stops_M: int32, ids that end a row; they are written and do not count.
        is_greedy: Take the likeliest id.
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
    each_next = each_row(each_row(next_id))
    each_extended = jax.vmap(jax.vmap(decoder.extend))

    def is_unfinished(now: Written) -> jax.Array:
        return (now.step < until) & now.going_BK.any()

    def one_more(now: Written) -> Written:
        next_BK = each_next(now.hidden_BKD, keys_BK2, now.step)
        is_stop_BK = (next_BK[..., None] == stops_M[None, None]).any(axis=-1)
        going_BK = now.going_BK & ~is_stop_BK
        hidden_BKD, memory = each_extended(next_BK, now.memory)
        return Written(
            now.step + 1,
            hidden_BKD,
            memory,
            jax.lax.dynamic_update_index_in_dim(now.ids_BKN, next_BK, now.step, axis=2),
            now.counts_BK + going_BK.astype(jnp.int32),
            going_BK,
        )

    with jax.default_matmul_precision(_PRECISION):
        return jax.lax.while_loop(is_unfinished, one_more, written)
