"""Many continuations of one prefix, from one prefill whose KV cache they share.

Dimension key
    I  prefixes
    P  ids of a prefix
    K  continuations of each prefix
    T  ids of a continuation
    D  model width
"""

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import WeightSharding
from jaxcontam.scoring.kernel import target_scores


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

    A few prefixes at a time, so memory does not grow with I. The head is applied to the
    K x T scored places alone: the first id of a continuation is scored from the
    prefix's last hidden state, and the state after the last id is not used. Not
    compiled: the caller jits it, with everything but the arrays static.

    Ids are int32, padding at the end, whose scores are to be ignored; a prefix has at
    least one. `at_once` prefixes are a batch; the rest is as for `score_tokens`.
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
