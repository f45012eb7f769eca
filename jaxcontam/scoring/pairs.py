"""Many continuations of one prefix: the prefix is read once, its cache is shared.

For tests of pairs of examples; not yet behind a method, and not kept in the store.

Dimension key
    I  prefixes
    P  ids of a prefix
    K  continuations of each prefix
    T  ids of a continuation
    D  model width
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.batching import bucket_lengths
from jaxcontam.scoring.kernel import PRECISION, TokenScores, target_scores


@functools.partial(jax.jit, static_argnames=("graphdef", "moments"))
def score_continuations(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    prefixes_IP: jax.Array,
    lengths_I: jax.Array,
    continuations_IKT: jax.Array,
    *,
    moments: bool = False,
) -> TokenScores:
    """Score every id of every continuation after its prefix.

    One prefix after the other, so memory does not grow with I. The head is applied to
    the K x T scored places alone: the first id of a continuation is scored from the
    prefix's last hidden state, and the last id is never read.

    Args:
        graphdef: Of the decoder, from `nnx.split`.
        state: Its weights.
        prefixes_IP: int32 ids, padding at the end.
        lengths_I: int32, ids of each prefix that are no padding, at least 1.
        continuations_IKT: int32 ids, padding at the end; its scores are to be ignored.
        moments: Also return means and variances.

    Returns:
        Scores of shape `[I, K, T]`.

    Raises:
        ValueError: If T is 0.
    """
    _, K, T = continuations_IKT.shape
    if T == 0:
        raise ValueError("continuations must have at least one id")
    decoder: Decoder = nnx.merge(graphdef, state)

    def score(one: tuple[jax.Array, jax.Array, jax.Array]) -> TokenScores:
        prefix_P, length, ids_KT = one
        hidden_PD, memory = decoder.remember(prefix_P, length)
        last_KD = jnp.broadcast_to(hidden_PD[length - 1], (K, hidden_PD.shape[-1]))
        hidden_KTD = last_KD[:, None]
        if T > 1:
            read_KTD = decoder(ids_KT[:, :-1], memory)
            hidden_KTD = jnp.concatenate([hidden_KTD, read_KTD], axis=1)
        scores = target_scores(
            hidden_KTD.reshape(K * T, -1),
            decoder.head_VD,
            ids_KT.reshape(-1),
            moments=moments,
            softcap=decoder.config.logit_softcap,
        )
        return jax.tree.map(lambda part: part.reshape(K, T), scores)

    with jax.default_matmul_precision(PRECISION):
        return jax.lax.map(score, (prefixes_IP, lengths_I, continuations_IKT))


def continuation_logprobs(
    decoder: Decoder,
    prefixes: Sequence[np.ndarray],
    continuations: Sequence[Sequence[np.ndarray]],
) -> list[list[np.ndarray]]:
    """Log-probabilities of continuations of many lengths, in few compiled shapes.

    Args:
        decoder: The model.
        prefixes: I int32 id arrays, each with at least one id.
        continuations: For each prefix the same number K of int32 id arrays.

    Returns:
        For each prefix and continuation one float32 array, nats an id.

    Raises:
        ValueError: If a prefix or a continuation is empty, their numbers do not fit, or
            the two together exceed the context.
    """
    counts = {len(group) for group in continuations}
    if len(prefixes) != len(continuations) or len(counts) > 1:
        raise ValueError(
            f"every prefix needs the same number of continuations, got {sorted(counts)}"
            f" for {len(prefixes)} prefixes"
        )
    graphdef, state = nnx.split(decoder)
    buckets = bucket_lengths(decoder.config.context)
    of_shape: dict[tuple[int, int], list[int]] = {}
    for i, (prefix, group) in enumerate(zip(prefixes, continuations, strict=True)):
        longest = max(len(ids) for ids in group)
        if not len(prefix) or not min(len(ids) for ids in group):
            raise ValueError(f"prefix {i}: it or a continuation of it is empty")
        if len(prefix) + longest > decoder.config.context + 1:
            raise ValueError(
                f"prefix {i}: {len(prefix)} + {longest} ids exceed the context of "
                f"{decoder.config.context}"
            )
        P, T = (
            buckets[int(np.searchsorted(buckets, n))] for n in (len(prefix), longest)
        )
        of_shape.setdefault((P, T), []).append(i)
    found: dict[int, list[np.ndarray]] = {}
    for (P, T), members in sorted(of_shape.items()):
        (K,) = counts
        prefixes_IP = np.zeros((len(members), P), np.int32)
        ids_IKT = np.zeros((len(members), K, T), np.int32)
        for row, i in enumerate(members):
            prefixes_IP[row, : len(prefixes[i])] = prefixes[i]
            for k, ids in enumerate(continuations[i]):
                ids_IKT[row, k, : len(ids)] = ids
        lengths_I = np.array([len(prefixes[i]) for i in members], np.int32)
        scores = score_continuations(graphdef, state, prefixes_IP, lengths_I, ids_IKT)
        logprobs_IKT = np.asarray(scores.logprobs)
        for row, i in enumerate(members):
            found[i] = [
                logprobs_IKT[row, k, : len(ids)]
                for k, ids in enumerate(continuations[i])
            ]
    return [found[i] for i in range(len(prefixes))]
