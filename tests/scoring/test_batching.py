"""`plan_batches`: every row once, in few shapes that depend on lengths alone."""

import collections
import itertools

import numpy as np
import pytest

from jaxcontam.scoring.run_batches import Batch, bucket_lengths, plan_batches


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
    # At most a third of a row of sixteen or more is padding.
    for length in range(16, context + 1):
        (batch,) = plan_batches([length], context=context, batch_tokens=1)
        assert (batch.length - length) / batch.length < 1 / 3


def test_partly_filled_batch_has_the_shape_of_the_full_ones():
    batches = plan_batches([20] * 7, context=64, batch_tokens=72)
    rows = (0, 1, 2), (3, 4, 5), (6,)
    assert batches == [Batch(own, 3, 24) for own in rows]


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
