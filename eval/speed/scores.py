"""Cost of moments and membership scores relative to the forward pass."""

import time

import numpy as np

from eval.speed.measure import interleaved, random_ids
from eval.speed.subjects import CPU_SIZES, decoder_of


def measure_moments(rounds: int, *, tiny: bool) -> dict:
    """Seconds with and without moments, and what they add, by model; 4 x 512 ids."""
    from jaxcontam.scoring.local import local_scorer

    found = {}
    for size in CPU_SIZES:
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

    from jaxcontam.members.passes import Inputs, score_texts, text_model
    from jaxcontam.members.score import ScoredText
    from jaxcontam.members.scores import (
        MIN_K,
        SCORES,
        corpus_logprobs,
        sweep_methods,
    )
    from jaxcontam.scoring.opened import opened_checkpoint

    checkpoint = _checkpoint(tiny=tiny)
    model = text_model(opened_checkpoint(checkpoint), store=None)
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
            texts, sequences, with_moments.token_table(sequences).scores, strict=True
        )
    ]
    timed = interleaved(
        {
            "min_k": lambda: score_texts(texts, [MIN_K], model),
            "all": lambda: score_texts(
                texts, list(scores.values()), model, inputs=inputs
            ),
            "forward": lambda: model.plain.token_table(sequences),
            "forward_moments": lambda: with_moments.token_table(sequences),
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
