"""Is a shared prefix worth its cache? Twenty continuations of one prefix, 30 M model.

Scratch scores each concatenation in a call of its own, head on all tokens, full logits.
Batched reads all concatenations in one call and applies the head to the continuations
alone. Shared reads the prefix once.

Dimension key
    K  continuations
    P  ids of the prefix
    T  ids of a continuation
    V  vocabulary
    D  model width
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from eval.speed.measure import interleaved
from eval.speed.subjects import decoder_of
from jaxcontam.scoring.kernel import PRECISION, target_scores
from jaxcontam.scoring.pairs import score_continuations

K = 20
SHAPES = ((64, 64), (256, 64))

_score_continuations = jax.jit(score_continuations, static_argnames="graphdef")


def measure_pairs(rounds: int, *, tiny: bool) -> dict:
    """Seconds and ratios for prefixes of 64 and 256 ids, continuations of 64."""
    graphdef, state = nnx.split(decoder_of("30m", tiny=tiny))
    return {
        f"{P}/{T}": _measure(graphdef, state, P, T, rounds)
        for P, T in (((16, 8),) if tiny else SHAPES)
    }


def _measure(graphdef, state, P: int, T: int, rounds: int) -> dict:
    vocab_size = nnx.merge(graphdef, state).config.vocab_size
    rng = np.random.default_rng(P)
    prefix_P = rng.integers(vocab_size, size=P, dtype=np.int32)
    ids_KT = rng.integers(vocab_size, size=(K, T), dtype=np.int32)
    whole = [np.concatenate([prefix_P, ids_T]) for ids_T in ids_KT]

    def scratch() -> np.ndarray:
        return np.stack(
            [np.asarray(_full_logits(graphdef, state, ids))[P - 1 :] for ids in whole]
        )

    def batched() -> np.ndarray:
        return np.asarray(_ends(graphdef, state, np.stack(whole), P))

    def shared() -> np.ndarray:
        lengths_I = np.array([P], np.int32)
        found = _score_continuations(
            graphdef, state, prefix_P[None], lengths_I, ids_KT[None]
        )
        return np.asarray(found.logprobs)[0]

    timed = interleaved(
        {"scratch": scratch, "batched": batched, "shared": shared}, rounds
    )
    return {
        "n_continuations": K,
        "seconds": timed.seconds,
        "ratio_to_scratch": timed.ratio("scratch", "shared"),
        "ratio_to_batched": timed.ratio("batched", "shared"),
        "largest_difference": float(
            np.abs(timed.last["scratch"] - timed.last["shared"]).max()
        ),
    }


@functools.partial(jax.jit, static_argnames="graphdef")
def _full_logits(graphdef, state, ids_T: jax.Array) -> jax.Array:
    """Log-probability of every id after the first, through all logits."""
    decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(PRECISION):
        hidden_TD = decoder(ids_T[None, :-1])[0]
        logits_TV = hidden_TD @ decoder.head_VD.T
    logprobs_TV = jax.nn.log_softmax(logits_TV, axis=-1)
    return jnp.take_along_axis(logprobs_TV, ids_T[1:, None], axis=-1)[:, 0]


@functools.partial(jax.jit, static_argnames=("graphdef", "P"))
def _ends(graphdef, state, whole_KU: jax.Array, P: int) -> jax.Array:
    """Log-probabilities of the ids after the first P of each row."""
    decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(PRECISION):
        hidden_KTD = decoder(whole_KU[:, :-1])[:, P - 1 :]
        n_rows, T, D = hidden_KTD.shape
        scores = target_scores(
            hidden_KTD.reshape(n_rows * T, D),
            decoder.head_VD,
            whole_KU[:, P:].reshape(-1),
            moments=False,
        )
    return scores.logprobs.reshape(n_rows, T)
