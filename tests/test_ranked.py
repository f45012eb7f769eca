"""Likeliest tokens beside a text's own, against the whole softmax."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import scipy.special
from flax import nnx

from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.ranked import rank_sequences
from jaxcontam.scoring.stored import NonFiniteScoreError

pytestmark = pytest.mark.unoptimised

# More than one block of the kernel's vocabulary, and caps.
SHAPE = dataclasses.replace(
    llama_shape(
        vocab_size=1500, d_model=16, n_layers=1, n_heads=2, d_ff=16, context=32
    ),
    tied=False,
    logit_softcap=2.0,
)


@functools.cache
def decoder():
    made = Decoder(SHAPE, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    head = rng.normal(size=(SHAPE.vocab_size, SHAPE.d_model)).astype(np.float32)
    made.head.set_value(head)
    return made


def sequences():
    rng = np.random.default_rng(1)
    return [rng.integers(0, 1500, n).astype(np.int32) for n in (33, 1, 17, 2)]


@jax.jit
def read(decoder, tokens):
    with jax.default_matmul_precision("highest"):
        return decoder(tokens)[0]


def test_scores_ranks_and_tops_are_those_of_the_softmax(strict_dtypes):
    texts = sequences()
    found = rank_sequences(decoder(), texts, n_top=5)
    for ids, one in zip(texts, found, strict=True):
        assert one.top_ids.shape == (len(ids) - 1, 5)
        if len(ids) == 1:
            continue
        padded = np.zeros((1, 32), np.int32)
        padded[0, : len(ids) - 1] = ids[:-1]
        hidden = np.asarray(read(decoder(), padded), np.float64)[: len(ids) - 1]
        logits = hidden @ np.asarray(decoder().head_VD, np.float64).T
        logits = 2.0 * np.tanh(logits / 2.0)
        logprobs = scipy.special.log_softmax(logits, axis=-1)
        own = logprobs[np.arange(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(one.logprobs, own, atol=1e-5)
        assert (one.ranks == 1 + (logprobs > own[:, None]).sum(axis=-1)).all()
        best = -np.sort(-logprobs, axis=-1)[:, :5]
        np.testing.assert_allclose(one.top_logprobs, best, atol=1e-5)
        named = np.take_along_axis(logprobs, one.top_ids.astype(int), axis=-1)
        np.testing.assert_allclose(named, best, atol=1e-5)


def test_log_probabilities_are_the_kernels(strict_dtypes):
    texts = [ids for ids in sequences() if 1 < len(ids) <= 32]
    found = rank_sequences(decoder(), texts, n_top=1)
    for one, (expected,) in zip(
        found, local_scorer(decoder()).tokens(texts), strict=True
    ):
        np.testing.assert_allclose(one.logprobs, expected, atol=1e-5)


def test_a_token_among_the_tops_has_its_own_number_to_the_bit():
    start = np.array([7], np.int32)
    for _ in range(3):
        longer = np.append(start, np.int32(0))
        (found,) = rank_sequences(decoder(), [longer], n_top=1)
        start = np.append(start, found.top_ids[-1, 0])
    (found,) = rank_sequences(decoder(), [start], n_top=3)
    assert (found.ranks == 1).all()
    assert (found.top_logprobs[:, 0] == found.logprobs).all()


def test_more_tops_than_tokens_are_all_of_them():
    small = Decoder(dataclasses.replace(SHAPE, vocab_size=6), rngs=nnx.Rngs(0))
    (found,) = rank_sequences(small, [np.array([1, 2, 3], np.int32)], n_top=20)
    assert found.top_ids.shape == (2, 6)
    np.testing.assert_allclose(np.exp(found.top_logprobs).sum(axis=-1), 1, atol=1e-6)


def test_numbers_that_are_not_finite_name_their_sequence():
    made = Decoder(SHAPE, rngs=nnx.Rngs(0))
    embedding = np.array(made.embedding[...])
    embedding[5] = np.nan
    made.embedding.set_value(embedding)
    texts = [np.array(ids, np.int32) for ids in ([1, 2, 3], [1, 2, 5, 3])]
    with pytest.raises(NonFiniteScoreError) as e:
        rank_sequences(made, texts, n_top=1)
    assert e.value.sequence == 1
