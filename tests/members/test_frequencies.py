"""Token counts of a corpus: by hand, and as probabilities."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.members.scores import corpus_logprobs, token_frequencies


@pytest.fixture
def tokenizer():
    words = {"[UNK]": 0, "a": 1, "b": 2, "c": 3, "d": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def test_tokens_are_counted_and_not_documents(tokenizer):
    counts = token_frequencies(["a b a a", "b x", "a"], tokenizer, 6)
    assert counts.dtype == np.int64
    assert counts.tolist() == [1, 4, 2, 0, 0, 0]
    # (1 + c) / (N + V) with N = 7 and V = 6.
    expected = np.log(np.array([2, 5, 3, 1, 1, 1]) / 13)
    np.testing.assert_allclose(corpus_logprobs(counts), expected, rtol=1e-12)


def test_counts_do_not_depend_on_how_documents_are_batched(tokenizer):
    documents = ["a b", "c", "", "d d d"] * 200
    counts = token_frequencies(iter(documents), tokenizer, 5)
    assert counts.tolist() == [0, 200, 200, 200, 600]


def test_frequencies_are_probabilities():
    counts = np.random.default_rng(0).integers(0, 1000, size=50)
    assert np.exp(corpus_logprobs(counts)).sum() == pytest.approx(1, rel=1e-12)
    assert np.exp(corpus_logprobs(np.zeros(4, np.int64))).tolist() == [0.25] * 4


def test_an_id_outside_the_vocabulary_is_refused(tokenizer):
    with pytest.raises(
        ValueError, match="vocab_size must exceed every id, got 3 and 4"
    ):
        token_frequencies(["a d"], tokenizer, 3)
