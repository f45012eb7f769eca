"""Sampling of continuations: one prefill per prompt, whose KV cache its samples share.

Each sample has a cache, a length and a random key of its own, so prompts of different
length share a batch without padding between a prompt and its continuation.

Dimension key
    B  prompts of a batch
    K  samples of each prompt
    P  ids of a prompt, padding at the end
    N  new ids that there is room for
    M  ids that end a text
    D  model width
    V  vocabulary
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.data.encoding import own_ids
from jaxcontam.models.attention import Cache, softcapped, with_room
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.stacks import REUSED, layer_stacks, stack_config

VERSION = 2
"""Version of the samples: raised when the same seed could give others."""


# Prompts, the room for new ids and the stop ids are padded to multiples of these, so
# that few shapes are compiled.
_PROMPT_STEP, _ROOM_STEP, _STOP_STEP = 64, 32, 4
# New ids between two checks of the host whether a text has ended.
_LOOK_STEPS = 16
# Most bytes of all KV caches of a batch: the larger of this number and this share of an
# accelerator's memory, of which XLA may hold two copies.
_CACHE_BYTES, _CACHE_SHARE = 2**28, 1 / 8
# Most samples of a batch.
_ROWS, _ROWS_ACCELERATOR = {"cpu": 32}, 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Settings of the sampler; `stop_ids` end a continuation and are no part of it."""

    n_samples: int
    new_tokens: int
    temperature: float = 1.0
    stop_ids: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_samples < 1 or self.new_tokens < 1:
            raise ValueError(
                "n_samples and new_tokens must be at least 1, "
                f"got {self.n_samples} and {self.new_tokens}"
            )
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")


def continuations(
    decoder: Decoder,
    prompts: Sequence[np.ndarray],
    sampling: Sampling,
    *,
    has_ended: Callable[[int, np.ndarray], bool] | None = None,
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Sample continuations from the model's own distribution (multinomial sampling).

    The random numbers of a sample depend on the seed, the prompt's ids and the sample's
    index alone, and every batch of one padded length has one shape: a sample does not
    depend on the other prompts or their order. Another device rounds differently and
    can flip a draw that is almost a tie. One device is used.

    Prompts are int32 ids, at least one each; one that exceeds the context less
    `new_tokens` loses its beginning. `has_ended` takes the index of the prompt and the
    new ids so far, every few ids, so a continuation may be some ids too long.

    Yields:
        (index of the prompt, new int32 ids of its `n_samples` continuations without the
        stop id), in order of batches.
    """
    kept = _kept(prompts, decoder.config.context, sampling)
    model = nnx.split(decoder)
    for P, indices in _by_length(kept, decoder.config.context).items():
        B, K = _batch_shape(decoder, P, sampling)
        for start in range(0, len(indices), B):
            batch = indices[start : start + B]
            prompts_BP = np.zeros((B, P), np.int32)
            lengths_B = np.ones(B, np.int32)
            for i, index in enumerate(batch):
                prompts_BP[i, : len(kept[index])] = kept[index]
                lengths_B[i] = len(kept[index])
            drawn: list[list[np.ndarray]] = [[] for _ in batch]
            for first in range(0, sampling.n_samples, K):
                n_wanted = min(K, sampling.n_samples - first)
                wanted_BK = np.zeros((B, K), bool)
                wanted_BK[: len(batch), :n_wanted] = True
                keys_BK2 = _keys(
                    [prompts[j] for j in batch], sampling.seed, B, first, K
                )
                found = _write(
                    model,
                    (prompts_BP, lengths_B),
                    wanted_BK,
                    keys_BK2,
                    sampling,
                    batch,
                    has_ended,
                )
                for samples, row in zip(drawn, found, strict=False):
                    samples += row[:n_wanted]
            yield from zip(batch, drawn, strict=True)


def most_seconds(
    decoder: Decoder, prompts: Sequence[np.ndarray], sampling: Sampling
) -> float:
    """Time of `continuations` of one sample each, if none ends early.

    A batch of each padded length is read and goes on for a few ids, twice after what
    compiles, which the run takes from the cache.
    """
    # Stop ids are left out: a text that ends at once would say nothing.
    sampling = dataclasses.replace(sampling, stop_ids=())
    kept = _kept(prompts, decoder.config.context, sampling)
    total = 0.0
    for P, indices in _by_length(kept, decoder.config.context).items():
        B, _ = _batch_shape(decoder, P, sampling)
        batch = [kept[i] for i in indices[:B]]
        _, few, more = (
            _seconds(decoder, batch, sampling, n_ids)
            for n_ids in (_LOOK_STEPS, _LOOK_STEPS, 2 * _LOOK_STEPS)
        )
        a_step = max(0.0, more - few) / _LOOK_STEPS
        a_batch = few + a_step * max(0, sampling.new_tokens - _LOOK_STEPS)
        total += a_batch * -(-len(indices) // B)
    return total


def _seconds(
    decoder: Decoder, batch: Sequence[np.ndarray], sampling: Sampling, n_ids: int
) -> float:
    """Time of a batch that ends after so many ids."""
    started = time.perf_counter()
    for _ in continuations(
        decoder, batch, sampling, has_ended=lambda _, ids: len(ids) >= n_ids
    ):
        pass
    return time.perf_counter() - started


def _kept(
    prompts: Sequence[np.ndarray], context: int, sampling: Sampling
) -> list[np.ndarray]:
    """Prompts without the beginning for which the context has no room."""
    room = context - sampling.new_tokens
    if room < 1:
        raise ValueError(
            f"new_tokens must be below the context of {context}, "
            f"got {sampling.new_tokens}"
        )
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError("prompts must have at least one id")
    return [np.asarray(prompt[-room:], np.int32) for prompt in prompts]


def _by_length(prompts: Sequence[np.ndarray], context: int) -> dict[int, list[int]]:
    """Indices of prompts by their padded length, shortest first."""
    of_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        padded = min(-(-len(prompt) // _PROMPT_STEP) * _PROMPT_STEP, context)
        of_length.setdefault(padded, []).append(i)
    return dict(sorted(of_length.items()))


def _write(
    model: tuple[nnx.GraphDef, nnx.State],
    prompts: tuple[np.ndarray, np.ndarray],
    wanted_BK: np.ndarray,
    keys_BK2: np.ndarray,
    sampling: Sampling,
    batch: Sequence[int],
    has_ended: Callable[[int, np.ndarray], bool] | None,
) -> list[list[np.ndarray]]:
    """Continuations of a batch of prompts, from them padded and their lengths."""
    n_new = sampling.new_tokens
    room = -(-n_new // _ROOM_STEP) * _ROOM_STEP
    # Stop ids of few lengths; no id is -1.
    n_stops = -(-max(1, len(sampling.stop_ids)) // _STOP_STEP) * _STOP_STEP
    stops_M = np.full(n_stops, -1, np.int32)
    stops_M[: len(sampling.stop_ids)] = sampling.stop_ids
    written = read_prompts(*model, *prompts, wanted_BK, room=room)
    step = 0
    while step < n_new and (step == 0 or np.asarray(written.going_BK).any()):
        step = n_new if has_ended is None else min(step + _LOOK_STEPS, n_new)
        written = go_on(
            *model,
            written,
            keys_BK2,
            np.int32(step),
            np.float32(sampling.temperature),
            stops_M,
            is_greedy=sampling.temperature == 0,
        )
        if has_ended is None or step == n_new:
            continue
        going_BK = np.array(written.going_BK)
        ids_BKN, counts_BK = np.asarray(written.ids_BKN), np.asarray(written.counts_BK)
        for i, k in np.argwhere(going_BK).tolist():
            if has_ended(batch[i], ids_BKN[i, k, : counts_BK[i, k]]):
                going_BK[i, k] = False
        written = written._replace(going_BK=jnp.asarray(going_BK))
    ids_BKN, counts_BK = np.asarray(written.ids_BKN), np.asarray(written.counts_BK)
    return [
        [ids_N[:count] for ids_N, count in zip(*of_prompt, strict=True)]
        for of_prompt in zip(ids_BKN, counts_BK, strict=True)
    ]


def _batch_shape(decoder: Decoder, P: int, sampling: Sampling) -> tuple[int, int]:
    """(B, K) of a batch: prompts, and samples of each."""
    config = decoder.config
    itemsize = jnp.dtype(decoder.dtype).itemsize
    row_bytes = 0
    for stack in layer_stacks(config):
        shape = stack_config(config, stack)
        if shape.delta is not None:
            row_bytes += 4 * shape.delta.d_state
        elif stack not in REUSED:
            width = shape.n_kv_heads * (shape.head_dim + shape.d_values)
            row_bytes += (P + sampling.new_tokens) * width * itemsize
    memory = jax.local_devices()[0].memory_stats() or {}
    most_bytes = max(_CACHE_BYTES, _CACHE_SHARE * memory.get("bytes_limit", 0))
    most_rows = _ROWS.get(jax.default_backend(), _ROWS_ACCELERATOR)
    n_rows = int(max(1, min(most_rows, most_bytes // row_bytes)))
    K = min(sampling.n_samples, n_rows)
    return n_rows // K, K


def _keys(
    prompts: Sequence[np.ndarray], seed: int, B: int, first: int, K: int
) -> np.ndarray:
    """Key data of samples, `[B, K, 2]` uint32, from prompts, or zeros."""
    keys_BK2 = np.zeros((B, K, 2), np.uint32)
    for i, prompt in enumerate(prompts):
        ids = np.asarray(prompt, "<i4").tobytes()
        for k in range(K):
            digest = hashlib.sha256(f"{seed}:{first + k}:".encode() + ids).digest()
            keys_BK2[i, k] = np.frombuffer(digest[:8], "<u4")
    return keys_BK2


def prompt_ids(
    ids: Sequence[int] | np.ndarray, *, prefix_id: int | None, room: int | None = None
) -> np.ndarray:
    """Ids of a prompt, once after the token that texts start with if there is one.

    `room` is the most ids in all; a longer text loses its beginning, never the prefix.
    """
    before = [] if prefix_id is None else [prefix_id]
    own = own_ids(np.asarray(ids, np.int32), prefix_id)
    if room is not None:
        if room <= len(before):
            raise ValueError(f"room must exceed {len(before)}, got {room}")
        own = own[-(room - len(before)) :]
    return np.array([*before, *own], np.int32)


class Written(NamedTuple):
    """State of the generation of a batch: `step` ids drawn for each sample so far.

    `counts_BK` of them count, and where `going_BK` is true the next one too.
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

    Prompts have padding at the end, `lengths_B` ids that are none, at least 1; samples
    that are not wanted are padding.
    """
    B, K = wanted_BK.shape
    decoder: Decoder = nnx.merge(graphdef, state)

    def read(prompt_P: jax.Array, length: jax.Array) -> tuple[jax.Array, Cache]:
        hidden_PD, cache = decoder.prefill(prompt_P, length)
        return hidden_PD[length - 1], with_room(cache, room)

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
    jax.jit, static_argnames=("graphdef", "is_greedy"), donate_argnames="written"
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

    The buffers of `written` are donated. `keys_BK2` is key data of each sample, `until`
    at most the room. `stops_M` end a sample; they are written and do not count.
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
