"""Forward passes: shared prefixes, a cache for generation, moments, membership scores.

Pairs: twenty continuations of one prefix. Scratch scores each concatenation in a call
of its own, head on all tokens, full logits. Batched reads all concatenations in one
call and applies the head to the continuations alone. Shared reads the prefix once.

Generation: both ways are compiled and take a batch of prompts a step. Anew reads the
whole text again for each id, padded to the next multiple of 64 ids, so that it is
compiled for few lengths and reads little that is not there; the head is applied to the
last place alone.

Dimension key
    B  prompts
    K  continuations
    P  ids of the prefix
    T  ids of a continuation or a padded text
    V  vocabulary
    D  model width
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from eval.speed.measure import SIZES, decoder_of, interleaved, random_ids
from jaxcontam.models.generation import Sampling, continuations
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


_N_PROMPTS = 4
_STEP = 64


def measure_generation(rounds: int, *, tiny: bool) -> dict:
    """New ids a second of each way, in each round, and how often both write the same.

    Returns:
        Rates, the median ratio, and the share of prompts after which both ways wrote
        the same ids: below 1 only where two ids are all but equally likely.
    """
    decoder = decoder_of("30m", tiny=tiny)
    n_read = n_new = 24 if tiny else 200
    lengths = [n_read] * _N_PROMPTS
    prompts = random_ids(decoder.config.vocab_size, lengths, seed=0)
    sampling = Sampling(n_samples=1, new_tokens=n_new, temperature=0.0)

    def cached() -> np.ndarray:
        found = continuations(decoder, prompts, sampling, most_rows=_N_PROMPTS)
        return np.stack([one.ids for _, (one,) in sorted(found)])

    timed = interleaved(
        {
            "anew": lambda: _anew(decoder, np.stack(prompts), n_new),
            "cached": cached,
        },
        rounds,
    )
    n_ids = _N_PROMPTS * n_new
    same = (timed.last["anew"] == timed.last["cached"]).all(axis=1)
    return {
        "shape": [_N_PROMPTS, n_read, n_new],
        "ids_per_second": {
            way: [n_ids / seconds for seconds in found]
            for way, found in timed.seconds.items()
        },
        "ratio": timed.ratio("anew", "cached"),
        "share_same": float(same.mean()),
    }


def _anew(decoder, prompts_BP: np.ndarray, n_new: int) -> np.ndarray:
    """Greedy ids `[B, n_new]`, the whole text read again for each."""
    graphdef, state = nnx.split(decoder)
    B, P = prompts_BP.shape
    ids_BT = np.zeros((B, P + n_new), np.int32)
    ids_BT[:, :P] = prompts_BP
    for length in range(P, P + n_new):
        padded = min(-(-length // _STEP) * _STEP, P + n_new)
        ids_BT[:, length] = _next(graphdef, state, ids_BT[:, :padded], length)
    return ids_BT[:, P:]


@functools.partial(jax.jit, static_argnames="graphdef")
def _next(graphdef, state, ids_BT: jax.Array, length: jax.Array) -> jax.Array:
    """The likeliest id after the first `length` of each row."""
    decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(PRECISION):
        hidden_BTD = decoder(ids_BT)
        logits_BV = hidden_BTD[:, length - 1] @ decoder.head_VD.T
    return jnp.argmax(logits_BV, axis=-1)


def measure_moments(rounds: int, *, tiny: bool) -> dict:
    """Seconds with and without moments, and what they add, by model; 4 x 512 ids."""
    from jaxcontam.scoring.local import local_scorer

    found = {}
    for size in SIZES:
        decoder = decoder_of(size, tiny=tiny)
        plain, full = local_scorer(decoder), local_scorer(decoder, moments=True)
        shape = (2, 64) if tiny else (4, 512)
        ids = random_ids(decoder.config.vocab_size, [shape[1]] * shape[0], seed=0)
        timed = interleaved(
            {
                "logprobs": lambda plain=plain, ids=ids: plain.tokens(ids),
                "with_moments": lambda full=full, ids=ids: full.tokens(ids),
            },
            rounds,
        )
        found[size] = {
            "shape": shape,
            "seconds": timed.seconds,
            "added_share": timed.ratio("with_moments", "logprobs") - 1,
        }
    return found


# 10,000 texts are asked for. The cost is a sum over texts, so a CPU takes few, whose
# rounds are short beside the drift of a shared machine; an accelerator takes them all.
_N_TEXTS_CPU = 32
_N_TEXTS_ACCELERATOR = 10_000
_N_TOKENS = 128


def measure_membership(rounds: int, *, tiny: bool) -> dict:
    """Seconds of Min-K% alone and of all scores of one pass, from texts to scores.

    CPU seconds, on a CPU. One reads log-probabilities alone, one moments too. Both
    tokenise, without a store; 30 M parameters. Also measured: both forward passes
    without their scores, and the scores without a pass.
    """
    import jax

    from jaxcontam.methods import SCORES
    from jaxcontam.methods.membership.frequencies import corpus_logprobs
    from jaxcontam.methods.membership.min_k import METHOD as MIN_K
    from jaxcontam.methods.membership.plan import Inputs, score_texts
    from jaxcontam.methods.membership.score import ScoredText
    from jaxcontam.methods.membership.sweep import sweep_methods
    from jaxcontam.methods.membership.text_model import text_model

    checkpoint = _checkpoint(tiny=tiny)
    model = text_model(checkpoint, store=None)
    with_moments = model.with_moments
    assert with_moments is not None
    V = checkpoint.config.vocab_size
    rng = np.random.default_rng(0)
    on_cpu = jax.default_backend() == "cpu"
    n_texts = _N_TEXTS_CPU if on_cpu else _N_TEXTS_ACCELERATOR
    shape = (6, 16) if tiny else (n_texts, _N_TOKENS)
    texts = [" ".join(f"w{i}" for i in ids) for ids in rng.integers(1, V, size=shape)]
    own = [r for r in SCORES.values() if set(r.reads) <= {"moments", "corpus"}]
    scores = {row.name: row for row in (*own, *sweep_methods())}
    inputs = Inputs(corpus_counts=rng.integers(0, 1000, size=V))
    sequences = model.sequences(texts)
    corpus_V = corpus_logprobs(np.ones(V, np.int64))
    read = [
        ScoredText(
            text=text,
            ids=ids[1:],
            logprobs=found[0],
            means=found[1],
            variances=found[2],
            tops=found[3],
            corpus_logprobs=corpus_V[ids[1:]],
        )
        for text, ids, found in zip(
            texts, sequences, with_moments.tokens(sequences), strict=True
        )
    ]
    timed = interleaved(
        {
            "min_k": lambda: score_texts(texts, [MIN_K], model),
            "all": lambda: score_texts(
                texts, list(scores.values()), model, inputs=inputs
            ),
            "forward": lambda: model.plain.tokens(sequences),
            "forward_moments": lambda: with_moments.tokens(sequences),
            "host": lambda: [
                [row.score(text) for row in scores.values()] for text in read
            ],
        },
        rounds,
        # Neighbours on the machine take turns with this process, not its CPU seconds.
        clock=time.process_time if on_cpu else time.perf_counter,
    )
    return {
        "shape": shape,
        "scores": list(scores),
        "seconds": timed.seconds,
        "ratio": timed.ratio("all", "min_k"),
        "ratio_of_forwards": timed.ratio("forward_moments", "forward"),
        "host_us_a_text": 1e6 * timed.median("host") / shape[0],
    }


def _checkpoint(*, tiny: bool):
    """A random model of 30 M parameters that reads a word as a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from jaxcontam.models.checkpoint import Checkpoint

    decoder = decoder_of("30m", tiny=tiny)
    words = {f"w{i}": i for i in range(decoder.config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Checkpoint(
        name="random",
        decoder=decoder,
        tokenizer=tokenizer,
        prefix_id=0,
        fingerprint="sha256:random",
    )
