"""Log-likelihood kernel behind every detector.

One pass computes, for each target token, its log-probability and, if asked, the mean
and variance of the log-probability under the model's own distribution, and the log-
probability of the likeliest token. The head is applied in blocks of the vocabulary, so
no `[B, S, V]` array exists.

Dimension key
    B  sequences in the batch
    S  input positions; position s predicts target s
    N  positions of the whole batch, N = B * S
    D  model width
    V  vocabulary
    C  vocabulary block
    I  prefixes of continuations
    P  ids of a prefix
    K  continuations of each prefix
    T  ids of a continuation

Log-probabilities are float32 and in nats throughout the package.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import softcapped
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import WeightSharding

VERSION = 4
"""Version of the numbers: raised when the same inputs could give others."""

# Widest block of logits that stays in cache on CPUs; measured flat from 256 to 2048.
_VOCAB_BLOCK = 1024
# On accelerators a block is a handful of launches, some 20 us, beside its product: 16 k
# positions, width 2,048 and 4,096 columns take 450 us at 600 TFLOP/s. Not measured.
_VOCAB_BLOCK_ACCELERATOR = 4096
# Columns that matrix units take at once.
_LANES = 128


class TokenScores(NamedTuple):
    """Scores of target tokens; all but `logprobs` are None unless asked for.

    Attributes:
        logprobs: log p(target | inputs up to its position), nats, at most 0.
        means: Mean of log p under the model's distribution at that position, nats.
        variances: Variance of log p there, at least 0.
        tops: log p of the likeliest token there, at most 0 and at least `logprobs`.
    """

    logprobs: jax.Array
    means: jax.Array | None
    variances: jax.Array | None
    tops: jax.Array | None


def score_tokens(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    inputs_BS: jax.Array,
    targets_BS: jax.Array,
    *,
    moments: bool,
    sharding: WeightSharding | None = None,
) -> TokenScores:
    """Score every target of a batch, `[B, S]`; a row does not depend on the others.

    Not compiled: the caller jits it, with everything but the arrays static. Inputs are
    in [0, V); targets may be any at padding, whose scores are to be ignored. Without
    `moments` there are no means, variances and tops. `sharding` is for `shard_map`.
    """
    B, S = inputs_BS.shape
    if targets_BS.shape != (B, S):
        raise ValueError(f"targets must have shape {(B, S)}, got {targets_BS.shape}")
    if sharding is not None:
        state = sharding.gather(state)
    decoder: Decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(decoder.precision):
        hidden_ND = decoder(inputs_BS, sharding=sharding).reshape(B * S, -1)
        scores = target_scores(
            hidden_ND,
            decoder.head_VD,
            targets_BS.reshape(-1),
            moments=moments,
            softcap=decoder.config.logit_softcap,
            platform=decoder.hardware.platform,
        )
    return jax.tree.map(lambda part: part.reshape(B, S), scores)


def score_continuations(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    prefixes_IP: jax.Array,
    lengths_I: jax.Array,
    continuations_IKT: jax.Array,
    *,
    at_once: int = 1,
    sharding: WeightSharding | None = None,
) -> jax.Array:
    """Log-probability of every id of every continuation after its prefix, `[I, K, T]`.

    `at_once` prefixes at a time, so memory does not grow with I. The head is applied to
    the K x T scored places alone: the first id of a continuation is scored from the
    prefix's last hidden state. Not compiled: the caller jits it.

    Padding is at the end, and its scores are to be ignored; a prefix has at least one
    id. The rest is as for `score_tokens`.
    """
    _, K, T = continuations_IKT.shape
    if T == 0:
        raise ValueError("continuations must have at least one id")
    if sharding is not None:
        state = sharding.gather(state)
    decoder: Decoder = nnx.merge(graphdef, state)

    def score(one: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        prefix_P, length, ids_KT = one
        hidden_PD, cache = decoder.prefill(prefix_P, length, sharding=sharding)
        last_KD = jnp.broadcast_to(hidden_PD[length - 1], (K, hidden_PD.shape[-1]))
        hidden_KTD = last_KD[:, None]
        if T > 1:
            # An accelerator pads T - 1 to T, in copies of its own.
            read_KT = ids_KT if decoder.hardware.platform != "cpu" else ids_KT[:, :-1]
            read_KTD = decoder(read_KT, cache, sharding=sharding)[:, : T - 1]
            hidden_KTD = jnp.concatenate([hidden_KTD, read_KTD], axis=1)
        scores = target_scores(
            hidden_KTD.reshape(K * T, -1),
            decoder.head_VD,
            ids_KT.reshape(-1),
            moments=False,
            softcap=decoder.config.logit_softcap,
            platform=decoder.hardware.platform,
        )
        return scores.logprobs.reshape(K, T)

    with jax.default_matmul_precision(decoder.precision):
        return jax.lax.map(
            score,
            (prefixes_IP, lengths_I, continuations_IKT),
            # A batch of one would be the same program with an axis more.
            batch_size=at_once if at_once > 1 else None,
        )


def target_scores(
    hidden_ND: jax.Array,
    head_VD: jax.Array,
    targets_N: jax.Array,
    *,
    moments: bool,
    softcap: float | None = None,
    platform: str = "cpu",
) -> TokenScores:
    """Log-probabilities of targets from hidden states, block of vocabulary by block.

    The log-sum-exp is kept online. Moments are merged block by block around each
    block's own mean, so a variance is a sum of squares and never negative.

    Hidden states are cast to the head's dtype, float32 or bfloat16. With a `softcap`
    logits x become cap * tanh(x / cap). For `platform` see `vocab_block`.

    Source:
        Online softmax: Milakov and Gimelshein, arXiv:1805.02867. Merging of moments:
        Chan, Golub and LeVeque (1983). Moments as in Min-K%++, arXiv:2404.02936.
    """
    N, _ = hidden_ND.shape
    V, _ = head_VD.shape
    C = vocab_block(V, platform)
    hidden_ND = hidden_ND.astype(head_VD.dtype)
    n_blocks = -(-V // C)

    def step(carry: tuple[jax.Array, ...], block: jax.Array):
        # The last block reaches back into the one before it; those columns are masked.
        start = jnp.minimum(block * C, V - C)
        head_CD = jax.lax.dynamic_slice_in_dim(head_VD, start, C, 0)
        logits_NC = jax.lax.dot_general(
            hidden_ND,
            head_CD,
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        fresh_C = start + jnp.arange(C) >= block * C
        logits_NC = softcapped(logits_NC, softcap)
        logits_NC = jnp.where(fresh_C[None], logits_NC, -jnp.inf)
        return _merge(carry, logits_NC, fresh_C, moments=moments), None

    # Like the states, so that within `shard_map` they count as each device's own.
    zeros_N = jnp.zeros_like(hidden_ND, dtype=jnp.float32, shape=(N,))
    carry = (zeros_N - jnp.inf, zeros_N, zeros_N, zeros_N)
    (top_N, total_N, mean_N, square_N), _ = jax.lax.scan(
        step, carry, jnp.arange(n_blocks)
    )
    normaliser_N = top_N + jnp.log(total_N)
    target_logit_N = jnp.einsum(
        "nd,nd->n", hidden_ND, head_VD[targets_N], preferred_element_type=jnp.float32
    )
    target_logit_N = softcapped(target_logit_N, softcap)
    # The sum holds the target's own term; rounding alone could exceed it.
    logprobs_N = jnp.minimum(target_logit_N - normaliser_N, 0.0)
    if not moments:
        return TokenScores(logprobs_N, None, None, None)
    # The target's logit is another dot of the same operands and may round above the
    # largest one of the blocks.
    tops_N = jnp.maximum(jnp.minimum(top_N - normaliser_N, 0.0), logprobs_N)
    return TokenScores(logprobs_N, mean_N - normaliser_N, square_N / total_N, tops_N)


def vocab_block(V: int, platform: str) -> int:
    """C, columns of a block of logits.

    Accelerators take blocks of nearly equal width, so that the last one repeats few
    columns of the one before: 50,257 columns are 13 blocks of 3,968, 3 % too many;
    blocks of 4,096 would be 6 % too many.
    """
    if platform == "cpu":
        return min(_VOCAB_BLOCK, V)
    n_blocks = -(-V // _VOCAB_BLOCK_ACCELERATOR)
    lanes = -(-V // (n_blocks * _LANES))
    return min(lanes * _LANES, V)


def _merge(
    carry: tuple[jax.Array, ...],
    logits_NC: jax.Array,
    fresh_C: jax.Array,
    *,
    moments: bool,
) -> tuple[jax.Array, ...]:
    """Add a block to (largest logit, sum of exp, mean logit, weighted squares)."""
    top_N, total_N, mean_N, square_N = carry
    new_top_N = jnp.maximum(top_N, logits_NC.max(axis=-1))
    shrink_N = jnp.exp(top_N - new_top_N)
    weights_NC = jnp.exp(logits_NC - new_top_N[:, None])
    block_N = weights_NC.sum(axis=-1)
    old_N = total_N * shrink_N
    new_total_N = old_N + block_N
    if not moments:
        return new_top_N, new_total_N, mean_N, square_N
    known_NC = jnp.where(fresh_C[None], logits_NC, 0.0)
    safe_block_N = jnp.maximum(block_N, jnp.finfo(jnp.float32).tiny)
    block_mean_N = (weights_NC * known_NC).sum(axis=-1) / safe_block_N
    centred_NC = known_NC - block_mean_N[:, None]
    block_square_N = (weights_NC * centred_NC * centred_NC).sum(axis=-1)
    share_N = block_N / new_total_N
    gap_N = block_mean_N - mean_N
    return (
        new_top_N,
        new_total_N,
        mean_N + gap_N * share_N,
        square_N * shrink_N + block_square_N + old_N * share_N * gap_N * gap_N,
    )
