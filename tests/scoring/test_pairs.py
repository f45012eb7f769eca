"""Continuations on a shared prefix against scoring each concatenation from scratch."""

import collections
import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.config import gpt2_shape, llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.kernel import score_continuations
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScorer, sizes_of

pytestmark = pytest.mark.unoptimised

CONTEXT = 64
SIZES = {"vocab_size": 61, "d_model": 24, "n_layers": 3, "n_heads": 4}
LLAMA = llama_shape(d_ff=20, context=CONTEXT, **SIZES)
SHAPES = {
    "llama": dataclasses.replace(LLAMA, n_kv_heads=2),
    "gpt2": gpt2_shape(context=CONTEXT, **SIZES),
    "windows and caps": dataclasses.replace(
        LLAMA, windows=(5, None, 20), attention_softcap=0.5, logit_softcap=0.7
    ),
    "parallel, partly rotated": dataclasses.replace(
        LLAMA, parallel=True, rotary_dim=4, query_key_norm="head"
    ),
}
# Float32 sums in another order, weights four times as large as usual; measured: 1.4e-5.
CLOSE = {"rtol": 0, "atol": 5e-5}


def sharp(config, seed=0):
    """A decoder whose scores depend strongly on what it reads."""
    decoder = Decoder(config, rngs=nnx.Rngs(seed))
    nnx.update(decoder, jax.tree.map(lambda x: 4 * x, nnx.state(decoder)))
    return decoder


def continuation_logprobs(decoder, prefixes, continuations):
    groups = [
        PairGroup(prefix, tuple(group), i, tuple(range(len(group))))
        for i, (prefix, group) in enumerate(zip(prefixes, continuations, strict=True))
    ]
    return local_scorer(decoder).pairs.logprobs(groups).logprobs


def draw(lengths, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 61, n).astype(np.int32) for n in lengths]


PREFIXES = draw([1, 11, 40], seed=0)
CONTINUATIONS = [
    draw(lengths, seed)
    for seed, lengths in enumerate([(1, 2, 30), (9, 16, 1), (5, 6, 7)], 9)
]


@pytest.mark.parametrize(
    "name",
    [
        # The one with most switches; each takes a quarter of a minute or more.
        name if name == "llama" else pytest.param(name, marks=pytest.mark.slow)
        for name in SHAPES
    ],
)
def test_continuations_score_as_the_ends_of_concatenations(name, strict_dtypes):
    decoder = sharp(SHAPES[name])
    scorer = local_scorer(decoder)
    found = continuation_logprobs(decoder, PREFIXES, CONTINUATIONS)
    # A prefix is read: without it the same continuation scores otherwise.
    (bare,) = continuation_logprobs(decoder, [PREFIXES[0]], [CONTINUATIONS[2]])
    assert all(np.abs(a - b).max() > 0.1 for a, b in zip(bare, found[2], strict=True))
    for prefix, group, scores in zip(PREFIXES, CONTINUATIONS, found, strict=True):
        whole = scorer.tokens([np.concatenate([prefix, ids]) for ids in group])
        for ids, alone, shared in zip(group, whole, scores, strict=True):
            assert shared.shape == ids.shape
            np.testing.assert_allclose(shared, alone[0, -len(ids) :], **CLOSE)


def test_continuation_does_not_depend_on_its_mates():
    decoder = sharp(SHAPES["gpt2"])
    one, mates = CONTINUATIONS[1][0], draw([9, 9], seed=5)
    beside = continuation_logprobs(decoder, [PREFIXES[1]], [[one, *mates]])
    alone = continuation_logprobs(decoder, [PREFIXES[1]], [[one, one, one]])
    np.testing.assert_array_equal(beside[0][0], alone[0][0])


@pytest.mark.parametrize(
    ("numbers", "shapes"),
    [
        # 512 tokens are nine prefixes of 40 ids, each with one continuation of 16.
        ([1] * 5, {(8, 1, 40, 16, 8)}),
        ([1] * 22, {(27, 1, 40, 16, 9)}),
        ([1] * 400, {(27, 1, 40, 16, 9)}),
        # Few groups of one continuation are padded to two, many have a program.
        ([1, 2] * 22, {(7, 2, 40, 16, 7)}),
        ([1, 2] * 400, {(27, 1, 40, 16, 9), (14, 2, 40, 16, 7)}),
    ],
)
def test_little_is_padding_at_short_prefixes_and_continuations(numbers, shapes):
    scorer = PairScorer(lambda *_: None, context=64, batch_tokens=512)
    ids = draw([33, 12], seed=0)
    groups = [PairGroup(ids[0], (ids[1],) * n, 0, tuple(range(n))) for n in numbers]
    plan = scorer.plan(groups)
    assert {batch.shape for batch in plan} == shapes
    found = [i for batch in plan for i in batch.groups]
    assert sorted(found) == list(range(len(groups)))
    assert scorer.n_batches(sizes_of(groups)) == collections.Counter(
        batch.shape for batch in plan
    )


def test_prefix_is_never_copied_for_its_continuations():
    """No array of the compiled program has both the batch and the prefix's keys."""
    K, P, T = 5, 48, 3
    graphdef, state = nnx.split(Decoder(SHAPES["gpt2"], rngs=nnx.Rngs(0)))
    ids = np.zeros((1, P), np.int32), np.array([P], np.int32)
    program = jax.jit(score_continuations, static_argnames="graphdef").lower(
        graphdef, state, *ids, np.zeros((1, K, T), np.int32)
    )
    text, (heads, width) = program.compile().as_text(), (4, 6)
    assert f"f32[{K},{P},{heads},{width}]" not in text
    assert f"f32[{K},{heads},{P},{width}]" not in text


@pytest.mark.parametrize(
    ("prefixes", "continuations", "error"),
    [
        ([0], [[1]], "group 0: its prefix or a continuation is empty"),
        ([3, 3], [[1], [0]], "group 1: its prefix or a continuation"),
        ([60], [[6]], "60 \\+ 6 ids exceed the context of 64"),
    ],
)
def test_what_cannot_be_scored_is_refused(prefixes, continuations, error):
    decoder = Decoder(SHAPES["llama"], rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=error):
        continuation_logprobs(
            decoder, draw(prefixes, 0), [draw(lengths, 1) for lengths in continuations]
        )
