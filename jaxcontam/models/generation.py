"""Continuations of prompts: a prompt is read once, its samples go on from its cache.

Each row has a cache, a length and random numbers of its own, so texts of different
length stand in one batch without padding between a prompt and what follows it.

Dimension key
    B  prompts of a batch
    K  samples of each prompt
    P  ids of a prompt, padding at the end
    N  most new ids
    D  model width
    V  vocabulary
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.attention import Memory, softcapped
from jaxcontam.models.decoder import Decoder

VERSION = 1
"""Changes when the same seed could give other samples."""

# Float32 means float32, as in scoring.
_PRECISION = "highest"
# Prompts are padded to a multiple of this, so that few lengths are compiled.
_PROMPT_STEP = 64
# Most bytes of all caches of a batch: so many, or this share of an accelerator's
# memory, of which XLA may hold two copies. And most rows of a batch.
_CACHE_BYTES = 2**28
_CACHE_SHARE = 1 / 8
_ROWS = {"cpu": 32}
_ROWS_ACCELERATOR = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How continuations are drawn.

    Attributes:
        n_samples: Continuations of each prompt.
        new_tokens: Most ids of a continuation.
        temperature: Divides the logits; 0 takes the likeliest id.
        stop_ids: Ids that end a continuation; they are not part of it.
        seed: With the prompt's ids and the sample's index the seed of each sample.
    """

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


def generate(
    decoder: Decoder, prompts: Sequence[np.ndarray], sampling: Sampling
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Draw continuations from the model's own distribution (multinomial sampling).

    A sample's random numbers follow from the seed, the prompt's ids and the sample's
    index alone, and every batch of one padded length has one shape: what is drawn does
    not depend on which other prompts are asked for, or in which order. One device is
    used. Another device, or another shape, rounds differently and can flip a draw that
    is almost a tie.

    Args:
        decoder: The model.
        prompts: int32 ids, at least one each. A prompt longer than the context leaves
            room for keeps its end.
        sampling: How.

    Yields:
        (index of the prompt, its `n_samples` arrays of new int32 ids), batch by batch
        in an order of its own.

    Raises:
        ValueError: If a prompt is empty or `new_tokens` leaves no room for one.
    """
    context = decoder.config.context
    room = context - sampling.new_tokens
    if room < 1:
        raise ValueError(
            f"new_tokens must be below the context of {context}, "
            f"got {sampling.new_tokens}"
        )
    if any(len(prompt) == 0 for prompt in prompts):
        raise ValueError("prompts must have at least one id")
    kept = [np.asarray(prompt[-room:], np.int32) for prompt in prompts]
    of_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(kept):
        padded = min(-(-len(prompt) // _PROMPT_STEP) * _PROMPT_STEP, context)
        of_length.setdefault(padded, []).append(i)
    graphdef, state = nnx.split(decoder)
    for P, indices in sorted(of_length.items()):
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
                ids_BKN, counts_BK = _sample(
                    graphdef,
                    state,
                    prompts_BP,
                    lengths_B,
                    np.arange(B) < len(batch),
                    _keys([prompts[j] for j in batch], B, first, K, sampling.seed),
                    n_new=sampling.new_tokens,
                    temperature=float(sampling.temperature),
                    stop_ids=sampling.stop_ids,
                )
                ids_host, counts = np.asarray(ids_BKN), np.asarray(counts_BK)
                for i, samples in enumerate(drawn):
                    samples += [
                        ids_host[i, k, : counts[i, k]]
                        for k in range(min(K, sampling.n_samples - first))
                    ]
            yield from zip(batch, drawn, strict=True)


def _batch_shape(decoder: Decoder, P: int, sampling: Sampling) -> tuple[int, int]:
    """Prompts and samples of each that go through the model side by side."""
    config = decoder.config
    platform = jax.default_backend()
    width = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    row_bytes = (P + sampling.new_tokens) * width * jnp.dtype(decoder.dtype).itemsize
    memory = jax.local_devices()[0].memory_stats() or {}
    most_bytes = max(_CACHE_BYTES, _CACHE_SHARE * memory.get("bytes_limit", 0))
    most_rows = _ROWS.get(platform, _ROWS_ACCELERATOR)
    n_rows = int(max(1, min(most_rows, most_bytes // row_bytes)))
    K = min(sampling.n_samples, n_rows)
    return n_rows // K, K


def _keys(
    prompts: Sequence[np.ndarray], B: int, first: int, K: int, seed: int
) -> np.ndarray:
    """Key data of each sample, `[B, K, 2]` uint32; zeros where no prompt stands."""
    keys_BK2 = np.zeros((B, K, 2), np.uint32)
    for i, prompt in enumerate(prompts):
        ids = np.asarray(prompt, "<i4").tobytes()
        for k in range(K):
            digest = hashlib.sha256(f"{seed}:{first + k}:".encode() + ids).digest()
            keys_BK2[i, k] = np.frombuffer(digest[:8], "<u4")
    return keys_BK2


@functools.partial(
    jax.jit, static_argnames=("graphdef", "n_new", "temperature", "stop_ids")
)
def _sample(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    prompts_BP: jax.Array,
    lengths_B: jax.Array,
    wanted_B: jax.Array,
    keys_BK2: jax.Array,
    *,
    n_new: int,
    temperature: float,
    stop_ids: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """New ids `[B, K, N]` of a batch, and how many of them count `[B, K]`."""
    B, K, _ = keys_BK2.shape
    decoder: Decoder = nnx.merge(graphdef, state)
    cap = decoder.config.logit_softcap

    def read(prompt_P: jax.Array, length: jax.Array) -> tuple[jax.Array, Memory]:
        hidden_PD, memory = decoder.remember(prompt_P, length)
        room = ((0, 0), (0, n_new), (0, 0), (0, 0))
        longer = Memory(
            jnp.pad(memory.keys, room), jnp.pad(memory.values, room), memory.length
        )
        return hidden_PD[length - 1], longer

    def next_id(hidden_D: jax.Array, key_2: jax.Array, step: jax.Array) -> jax.Array:
        logits_V = jnp.einsum(
            "d,vd->v",
            hidden_D.astype(decoder.head_VD.dtype),
            decoder.head_VD,
            preferred_element_type=jnp.float32,
        )
        logits_V = softcapped(logits_V, cap)
        if temperature == 0:
            return jnp.argmax(logits_V).astype(jnp.int32)
        key = jax.random.wrap_key_data(key_2, impl="threefry2x32")
        key = jax.random.fold_in(key, step)
        return jax.random.categorical(key, logits_V / temperature).astype(jnp.int32)

    each_row = functools.partial(jax.vmap, in_axes=(0, 0, None))
    each_next = each_row(each_row(next_id))
    each_extended = jax.vmap(jax.vmap(decoder.extend))

    def go_on(carry) -> jax.Array:
        step, _, _, _, _, going_BK = carry
        return (step < n_new) & going_BK.any()

    def one_more(carry):
        step, hidden_BKD, memory, ids_BKN, counts_BK, going_BK = carry
        next_BK = each_next(hidden_BKD, keys_BK2, step)
        for stop in stop_ids:
            going_BK &= next_BK != stop
        ids_BKN = jax.lax.dynamic_update_index_in_dim(ids_BKN, next_BK, step, axis=2)
        counts_BK += going_BK.astype(jnp.int32)
        hidden_BKD, memory = each_extended(next_BK, memory)
        return step + 1, hidden_BKD, memory, ids_BKN, counts_BK, going_BK

    with jax.default_matmul_precision(_PRECISION):
        read_B = jax.vmap(read)(prompts_BP, lengths_B)
        # The samples of a prompt part from the same cache.
        hidden_BKD, memory = jax.tree.map(
            lambda part: jnp.broadcast_to(part[:, None], (B, K, *part.shape[1:])),
            read_B,
        )
        carry = (
            jnp.int32(0),
            hidden_BKD,
            memory,
            jnp.zeros((B, K, n_new), jnp.int32),
            jnp.zeros((B, K), jnp.int32),
            jnp.broadcast_to(wanted_B[:, None], (B, K)),
        )
        _, _, _, ids_BKN, counts_BK, _ = jax.lax.while_loop(go_on, one_more, carry)
    return ids_BKN, counts_BK


def prompt_ids(ids: Sequence[int], *, prefix_id: int | None, room: int) -> np.ndarray:
    """Ids of a prompt behind the token that texts start with, where there is one.

    Args:
        ids: Of the text, at least one where there is no prefix.
        prefix_id: BOS or EOS, or None.
        room: Most ids in all; a longer text keeps its end, and the prefix before it.

    Raises:
        ValueError: If there is no room for an id of the text.
    """
    before = [] if prefix_id is None else [prefix_id]
    if room <= len(before):
        raise ValueError(f"room must exceed {len(before)}, got {room}")
    return np.array([*before, *ids[-(room - len(before)) :]], np.int32)
