"""What makes the adjacency test exact: nothing in it depends on the published order."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.methods import order_method
from jaxcontam.methods.order_test import plan_test, score_test
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.scoring.local import checkpoint_scorer
from jaxcontam.scoring.pair_plan import ALL_TOKENS, plan_pairs
from jaxcontam.stats.adjacency import FEWEST_EXAMPLES
from jaxcontam.stats.strata import split_strata

CONTEXT = 64
LETTERS = list("abcdefghij")


def encoded(texts, **kwargs):
    """One id a byte."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return encode_examples(tokenizer, texts, **kwargs)


@pytest.fixture(scope="module")
def model(pulse):
    return load_checkpoint(str(pulse / "model"))


def texts_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(LETTERS, rng.integers(5, 40))) for _ in range(n)]


def pairs_of(model, texts, **kwargs):
    benchmark = Benchmark("x", tuple(texts), (None,) * len(texts))
    planned = plan_test(
        benchmark,
        encode_examples(model.tokenizer, texts),
        order_method("adjacency"),
        prefix_id=model.prefix_id,
        context=model.config.context,
        seed=0,
        **kwargs,
    )
    scored = score_test(planned, checkpoint_scorer(model, store=None))
    return scored.evidence.pairs, planned


@pytest.mark.parametrize("n", range(FEWEST_EXAMPLES, 60))
def test_no_stratum_is_too_small_to_centre(n):
    sizes = [len(part) for part in split_strata(n, order_method("adjacency").size)]
    assert min(sizes) >= FEWEST_EXAMPLES
    assert max(sizes) <= 8


def test_pairs_of_a_shuffled_stratum_are_the_same_bits(model):
    """Scores follow the examples, to the bit, wherever the file puts them."""
    texts = texts_of(16)
    rng = np.random.default_rng(3)
    order = np.concatenate([rng.permutation(8), 8 + rng.permutation(8)])
    pairs, _ = pairs_of(model, texts, first_tokens=(2, ALL_TOKENS))
    moved, _ = pairs_of(model, [texts[i] for i in order], first_tokens=(2, ALL_TOKENS))
    for k in range(2):
        local = order[8 * k : 8 * k + 8] - 8 * k
        expected = pairs[:, k][:, local][:, :, local]
        np.testing.assert_array_equal(moved[:, k], expected)
    assert not np.array_equal(pairs, moved)


def test_cut_is_the_same_for_all_examples_of_a_stratum():
    long, short = "x" * 90, "ab"
    ids = encoded([long, short, long, short, short], separator="\n")
    plan = plan_pairs([np.arange(5)], ids, prefix_id=0, context=CONTEXT)
    longest = max(len(g.prefix) + max(map(len, g.continuations)) for g in plan.groups)
    # Two of 31 ids and the prefix id; of 32 they would not fit.
    assert longest == 1 + 31 + 31 <= CONTEXT
    assert plan.cut.tolist() == [91 - 31, 0, 91 - 31, 0, 0]
    # The separator stays, so that what follows begins as it did in training.
    ends = {int(g.prefix[-1]) for g in plan.groups}
    assert ends == {int(ids.separator[-1])}


def test_tokens_that_all_examples_share_are_not_counted_as_first():
    ids = encoded(["Q: ab?", "Q: cde?", "Q: f?", "Q: gh?"])
    plan = plan_pairs([np.arange(4)], ids, prefix_id=None, context=CONTEXT)
    assert plan.n_shared == 3
    logprobs = [
        [np.arange(len(c), dtype=np.float32) for c in group.continuations]
        for group in plan.groups
    ]
    first, whole = plan.matrices(logprobs, (1, ALL_TOKENS))
    assert first[0, 0, 1] == 0 + 1 + 2 + 3
    assert whole[0, 0, 1] == sum(range(len(ids.ids[1])))
    assert not first[0].diagonal().any()


def test_equal_examples_have_equal_rows_and_columns(model):
    texts = texts_of(6)
    pairs, _ = pairs_of(model, [*texts, texts[0], texts[0]])
    (matrix,) = pairs[0]
    others = [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(matrix[0, others], matrix[6, others])
    np.testing.assert_array_equal(matrix[others, 0], matrix[others, 7])
