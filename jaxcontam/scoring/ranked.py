"""Log-probabilities of tokens beside those of the likeliest tokens at their places.

Dimension key
    B  sequences in the batch
    S  input positions; position s predicts target s
    N  positions of the whole batch, N = B * S
    D  model width
    V  vocabulary
    J  likeliest tokens that are kept of a place
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.attention import softcapped
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.batching import bucket_lengths
from jaxcontam.scoring.kernel import PRECISION, target_scores
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.stored import NonFiniteScoreError

# Places whose logits over the whole vocabulary exist at once.
_PLACES = 64


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RankedSequence:
    """Scores of a sequence's ids after the first, and the likeliest ids there.

    Attributes:
        logprobs: (n_ids - 1,) float32, nats.
        ranks: (n_ids - 1,) int32, 1 for the likeliest id.
        top_ids: (n_ids - 1, n_top) int32, the likeliest first.
        top_logprobs: (n_ids - 1, n_top) float32, theirs.
    """

    logprobs: np.ndarray
    ranks: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray


def rank_sequences(
    decoder: Decoder, sequences: Sequence[np.ndarray], *, n_top: int
) -> list[RankedSequence]:
    """Score every id after each sequence's first, and name the likeliest ids there.

    One device is used. Batches have few shapes, so few are compiled.

    Args:
        decoder: The model.
        sequences: int32 ids, from 1 to the context and one more.
        n_top: At least 1; more than the vocabulary are as many as it has.

    Raises:
        NonFiniteScoreError: Names the sequence and the id.
    """
    model = nnx.split(decoder)
    n_top = min(n_top, decoder.config.vocab_size)
    buckets = bucket_lengths(decoder.config.context)
    of_bucket: dict[int, list[int]] = {}
    for index, ids in enumerate(sequences):
        bucket = buckets[int(np.searchsorted(buckets, len(ids) - 1))]
        of_bucket.setdefault(bucket, []).append(index)
    found: dict[int, RankedSequence] = {}
    for S, indices in of_bucket.items():
        most = max(1, default_batch_tokens() // S)
        for start in range(0, len(indices), most):
            batch = indices[start : start + most]
            B = min(most, _next_power(len(batch)))
            inputs_BS = np.zeros((B, S), np.int32)
            targets_BS = np.zeros((B, S), np.int32)
            for i, index in enumerate(batch):
                ids = sequences[index]
                inputs_BS[i, : len(ids) - 1] = ids[:-1]
                targets_BS[i, : len(ids) - 1] = ids[1:]
            ranked = rank_tokens(*model, inputs_BS, targets_BS, n_top=n_top)
            host = [np.asarray(part) for part in ranked]
            for i, index in enumerate(batch):
                n = len(sequences[index]) - 1
                found[index] = RankedSequence(*(part[i, :n] for part in host))
    in_order = [found[index] for index in range(len(sequences))]
    for index, one in enumerate(in_order):
        finite = np.isfinite(one.logprobs) & np.isfinite(one.top_logprobs).all(axis=-1)
        if not finite.all():
            raise NonFiniteScoreError(index, 1 + int(np.argmin(finite)))
    return in_order


class RankedTokens(NamedTuple):
    """Scores of target tokens and of the likeliest ones.

    Attributes:
        logprobs: `[B, S]`, log p(target), nats; the kernel's own numbers.
        ranks: `[B, S]` int32, 1 for the likeliest token.
        top_ids: `[B, S, J]` int32, the likeliest first.
        top_logprobs: `[B, S, J]`, theirs; where the target is among them, its number
            is that of `logprobs` to the bit.
    """

    logprobs: jax.Array
    ranks: jax.Array
    top_ids: jax.Array
    top_logprobs: jax.Array


@functools.partial(jax.jit, static_argnames=("graphdef", "n_top"))
def rank_tokens(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    inputs_BS: jax.Array,
    targets_BS: jax.Array,
    *,
    n_top: int,
) -> RankedTokens:
    """Score every target of a batch and name the `n_top` likeliest tokens there.

    Args:
        graphdef: Of the decoder, from `nnx.split`.
        state: Its weights.
        inputs_BS: int32 ids in [0, V).
        targets_BS: int32 ids; padding may hold any id, its scores are to be ignored.
        n_top: J, from 1 to V.
    """
    B, S = inputs_BS.shape
    decoder = nnx.merge(graphdef, state)
    cap = decoder.config.logit_softcap
    head_VD = decoder.head_VD

    def rank(place):
        hidden_D, target, logprob = place
        logits_V = jnp.einsum(
            "d,vd->v",
            hidden_D.astype(head_VD.dtype),
            head_VD,
            preferred_element_type=jnp.float32,
        )
        logits_V = softcapped(logits_V, cap)
        top_logits_J, top_ids_J = jax.lax.top_k(logits_V, n_top)
        top_logprobs_J = top_logits_J - jax.nn.logsumexp(logits_V)
        # Another sum of the same terms: a client compares the two for equality.
        top_logprobs_J = jnp.where(
            top_ids_J == target, logprob, jnp.minimum(top_logprobs_J, 0.0)
        )
        n_better = jnp.sum(logits_V > logits_V[target], dtype=jnp.int32)
        return n_better + 1, top_ids_J, top_logprobs_J

    with jax.default_matmul_precision(PRECISION):
        hidden_ND = decoder(inputs_BS).reshape(B * S, -1)
        targets_N = targets_BS.reshape(-1)
        logprobs_N = target_scores(
            hidden_ND,
            head_VD,
            targets_N,
            moments=False,
            softcap=cap,
            platform=decoder.hardware.platform,
        ).logprobs
        ranked = jax.lax.map(
            rank, (hidden_ND, targets_N, logprobs_N), batch_size=min(_PLACES, B * S)
        )
    return RankedTokens(
        *(part.reshape(B, S, *part.shape[1:]) for part in (logprobs_N, *ranked))
    )


def _next_power(n: int) -> int:
    """The smallest power of two that is not below `n`."""
    return 1 << (n - 1).bit_length()
