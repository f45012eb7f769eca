"""`Scorer` over NumPy stubs whose scores are known in closed form; its batches.

Dimension key
    B  rows of a batch
    S  scored tokens of a row
"""

import collections
import functools
import itertools
import math

import numpy as np
import pytest

from jaxcontam.scoring.rows import windows
from jaxcontam.scoring.run_batches import Batch, bucket_lengths, plan_batches
from jaxcontam.scoring.scorer import NonFiniteScoreError, Scorer, n_targets

V = 50
_LOGITS = np.random.default_rng(0).normal(scale=3.0, size=(V, V))
_LOGITS -= np.log(np.exp(_LOGITS).sum(axis=1, keepdims=True))
BIGRAM = _LOGITS.astype(np.float32)
"""log p(column | row)."""


def bigram(inputs_BS, targets_BS):
    assert inputs_BS.dtype == targets_BS.dtype == np.int32
    return BIGRAM[inputs_BS, targets_BS], None, None


def only_real_tokens(inputs_BS, targets_BS):
    """`bigram`, but NaN wherever an input or a target is the padding id 0."""
    padding_BS = (inputs_BS == 0) | (targets_BS == 0)
    return (np.where(padding_BS, np.float32("nan"), bigram(inputs_BS, targets_BS)[0]),)


def drawn_sequences(n=40, longest=60, seed=1):
    """Sequences of 1 to `longest` ids, none of them the padding id 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, longest + 1, n)
    return [rng.integers(1, V, size, dtype=np.int32) for size in sizes]


def direct(ids):
    """Sum of a sequence's bigram log-probabilities, correctly rounded."""
    return math.fsum(float(BIGRAM[a, b]) for a, b in itertools.pairwise(ids))


# Float64 sums of up to a thousand terms; a float32 sum is off by 1e-7.
FLOAT64 = {"rtol": 1e-12, "atol": 1e-12}


def test_windows_read_each_target_once_with_half_a_context_before_it():
    for n, context in itertools.product(range(1, 90), [2, 3, 4, 5, 8, 17]):
        found = windows(n, context)
        targets = [t for one in found for t in range(one.first_target, one.stop)]
        assert targets == list(range(1, n))
        for one in found:
            assert 0 <= one.start < one.first_target <= one.stop <= n
            assert one.stop - one.start <= context
            assert one.start == 0 or one.first_target - one.start >= context / 2
        # A long sequence is read in full windows to its end, in strides of a half.
        if n > context:
            assert {one.stop - one.start for one in found} == {context}
            assert found[-1].stop == n
        strides = max(0, math.ceil((n - context) / (context // 2)))
        assert len(found) == 1 + strides


@pytest.mark.parametrize("forward", [bigram, only_real_tokens])
@pytest.mark.parametrize("batch_tokens", [1, 64, 100_000])
@pytest.mark.parametrize("context", [64, 16, 5, 2])
def test_log_likelihoods_are_the_direct_sums_with_and_without_windows(
    forward, context, batch_tokens
):
    """Whatever stands in the padding."""
    sequences, calls = drawn_sequences(), []
    scorer = Scorer(forward, context=context, batch_tokens=batch_tokens)
    found = scorer.log_likelihoods(sequences, lambda *call: calls.append(call))
    np.testing.assert_allclose(found, [direct(ids) for ids in sequences], **FLOAT64)
    # Progress only grows, and reaches the total.
    total = sum(len(ids) - 1 for ids in sequences)
    assert n_targets(sequences) == total
    assert calls[-1] == (total, total)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    # The order of the sequences changes no score.
    order = np.random.default_rng(4).permutation(len(sequences))
    again = scorer.log_likelihoods([sequences[i] for i in order])
    np.testing.assert_array_equal(again, found[order])


@pytest.mark.parametrize("context", [64, 16])
def test_tokens_stand_above_their_moments_which_enter_no_sum(context):
    def forward(inputs_BS, targets_BS):
        logprobs_BS, _, _ = bigram(inputs_BS, targets_BS)
        return logprobs_BS, 2 * logprobs_BS, logprobs_BS**2

    sequences = drawn_sequences()
    scorer = Scorer(forward, context=context, batch_tokens=64)
    alone = Scorer(bigram, context=context, batch_tokens=64).tokens(sequences)
    found = scorer.tokens(sequences)
    for ids, scores, (own,) in zip(sequences, found, alone, strict=True):
        logprobs_S = BIGRAM[ids[:-1], ids[1:]]
        assert scores.dtype == own.dtype == np.float32
        np.testing.assert_array_equal(own, logprobs_S)
        moments = [logprobs_S, 2 * logprobs_S, logprobs_S**2]
        np.testing.assert_array_equal(scores, moments)
    # One id has no target.
    assert scorer.tokens([sequences[0][:1]])[0].shape == (3, 0)
    assert scorer.log_likelihoods([sequences[0][:1]]).tolist() == [0.0]
    logliks = scorer.log_likelihoods(sequences)
    np.testing.assert_allclose(logliks, [direct(ids) for ids in sequences], **FLOAT64)


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
@pytest.mark.parametrize("position", [1, 7, 39])
@pytest.mark.parametrize("context", [64, 10])
def test_score_that_is_not_finite_names_sequence_and_position(context, position, value):
    def forward(inputs_BS, targets_BS, is_moment=False):
        logprobs_BS, _, _ = bigram(inputs_BS, targets_BS)
        spoilt_BS = np.where(targets_BS == 17, np.float32(value), logprobs_BS)
        return (logprobs_BS, spoilt_BS, logprobs_BS) if is_moment else (spoilt_BS,)

    sequences = [np.full(40, 3, np.int32) for _ in range(9)]
    sequences[5][position] = 17
    how = {"context": context, "batch_tokens": 64}
    scorer = Scorer(forward, **how)
    moments = Scorer(functools.partial(forward, is_moment=True), **how)
    for score in (scorer.log_likelihoods, scorer.tokens, moments.tokens):
        with pytest.raises(NonFiniteScoreError) as caught:
            score(sequences)
        assert (caught.value.sequence, caught.value.position) == (5, position)
        assert str(caught.value) == f"sequence 5, id {position}: not finite"


def drawn_lengths(context, n=500, seed=0):
    return np.random.default_rng(seed).integers(0, context + 1, n).tolist()


def shapes(batches):
    return collections.Counter((batch.n_rows, batch.length) for batch in batches)


@pytest.mark.parametrize("context", [7, 16, 100, 256, 2048])
@pytest.mark.parametrize("batch_tokens", [1, 512, 16_384])
@pytest.mark.parametrize("n_devices", [1, 3, 8])
def test_every_row_is_in_one_batch_that_it_fits(context, batch_tokens, n_devices):
    for n in (0, 1, 8, 60, 500, 5000):
        lengths, how = drawn_lengths(context, n), {"n_devices": n_devices}
        batches = plan_batches(
            lengths, context=context, batch_tokens=batch_tokens, **how
        )
        rows, found = [row for batch in batches for row in batch.rows], shapes(batches)
        assert sorted(rows) == list(range(n))
        for batch in batches:
            assert 1 <= len(batch.rows) <= batch.n_rows
            assert batch.n_rows % n_devices == 0
            assert max(lengths[row] for row in batch.rows) <= batch.length <= context
            # A device gets at most its tokens, or one row.
            own = batch.n_rows // n_devices
            assert own == 1 or own * batch.length <= batch_tokens
        # Rows of one padded length have one shape.
        assert len({length for _, length in found}) == len(found) <= 15
        rows_of = collections.defaultdict(list)
        for batch in batches:
            rows_of[batch.length] += batch.rows
        assert all(some == sorted(some) for some in rows_of.values())
        for (n_rows, length), n_batches in found.items():
            # Few batches are split evenly, down to a row each; many are full.
            if n_batches > 8:
                assert (n_rows // n_devices + 1) * length > batch_tokens
            if n <= 60 and n_devices == 1:
                assert 0 <= n_rows * n_batches - len(rows_of[length]) < n_batches
        shuffled = np.random.default_rng(1).permutation(lengths).tolist()
        again = plan_batches(
            shuffled, context=context, batch_tokens=batch_tokens, **how
        )
        assert shapes(again) == found


@pytest.mark.parametrize(("context", "n_shapes"), [(16, 1), (256, 9), (2048, 15)])
def test_all_possible_lengths_make_few_shapes(context, n_shapes):
    # Two a power of two from 16 below the context, and the context itself.
    batches = plan_batches(range(context + 1), context=context, batch_tokens=512)
    assert len(shapes(batches)) == len(bucket_lengths(context)) == n_shapes
    # One that is partly filled has the shape of the full ones.
    batches = plan_batches([20] * 7, context=64, batch_tokens=72)
    assert batches == [Batch(own, 3, 24) for own in ((0, 1, 2), (3, 4, 5), (6,))]
    # At most a third of a row of sixteen or more is padding.
    for length in range(16, context + 1):
        (batch,) = plan_batches([length], context=context, batch_tokens=1)
        assert (batch.length - length) / batch.length < 1 / 3


@pytest.mark.parametrize(("context", "n_shapes"), [(32, 1), (1024, 5), (2048, 6)])
def test_two_files_on_an_accelerator_share_their_few_shapes(context, n_shapes):
    how = {"context": context, "batch_tokens": 16_384, "few_shapes": True}
    found = set()
    for n in (300, 2000):
        for batch in plan_batches(drawn_lengths(context, n, seed=n), **how):
            assert 16_384 // 2 < batch.n_rows * batch.length <= 16_384
            found.add((batch.n_rows, batch.length))
    assert len(found) == n_shapes


@pytest.mark.parametrize(
    ("n_rows", "n_devices", "expected"), [(8, 1, [4, 4]), (6, 2, [4, 2]), (2, 2, [])]
)
def test_a_batch_without_room_is_cut_in_two_that_divide_by_the_devices(
    n_rows, n_devices, expected
):
    halves = Batch(tuple(range(n_rows)), n_rows, 16).halves(n_devices)
    assert [len(half.rows) for half in halves] == expected
    rows = itertools.chain.from_iterable(half.rows for half in halves)
    assert list(rows) == list(range(sum(expected)))
    assert all(half.n_rows % n_devices == 0 for half in halves)
