"""`plan_batches`: every row once, in few shapes that depend on lengths alone."""

import collections

import numpy as np
import pytest

from jaxcontam.scoring.run_batches import Batch, bucket_lengths, plan_batches


def drawn_lengths(context, n=500, seed=0):
    return np.random.default_rng(seed).integers(0, context + 1, n).tolist()


def shapes(batches):
    return collections.Counter((batch.n_rows, batch.length) for batch in batches)


@pytest.mark.parametrize("context", [7, 16, 100, 256, 2048])
@pytest.mark.parametrize("batch_tokens", [1, 512, 16_384])
def test_every_row_is_in_one_batch_that_it_fits(context, batch_tokens):
    lengths = drawn_lengths(context)
    batches = plan_batches(lengths, context=context, batch_tokens=batch_tokens)
    rows = [row for batch in batches for row in batch.rows]
    assert sorted(rows) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch.rows) <= batch.n_rows
        assert max(lengths[row] for row in batch.rows) <= batch.length <= context


@pytest.mark.parametrize("batch_tokens", [1, 100, 512, 16_384])
@pytest.mark.parametrize("n", [500, 5000])
def test_batch_holds_at_most_its_tokens_or_one_row(batch_tokens, n):
    batches = plan_batches(
        drawn_lengths(256, n), context=256, batch_tokens=batch_tokens
    )
    for batch in batches:
        assert batch.n_rows == 1 or batch.n_rows * batch.length <= batch_tokens
    for (n_rows, length), n_batches in shapes(batches).items():
        # Few batches are split evenly, down to a row each; many are full.
        if n_batches > 8:
            assert (n_rows + 1) * length > batch_tokens


@pytest.mark.parametrize("context", [100, 256, 2048])
@pytest.mark.parametrize("n", [1, 7, 60])
def test_few_rows_of_a_length_leave_less_than_a_row_a_batch_empty(context, n):
    batches = plan_batches(drawn_lengths(context, n), context=context, batch_tokens=512)
    n_rows = collections.Counter()
    for batch in batches:
        n_rows[batch.length] += len(batch.rows)
    for (rows, length), n_batches in shapes(batches).items():
        assert 0 <= rows * n_batches - n_rows[length] < n_batches


@pytest.mark.parametrize("n", [1, 60, 500, 5000])
def test_rows_of_one_padded_length_have_one_shape(n):
    batches = plan_batches(drawn_lengths(512, n), context=1024, batch_tokens=512)
    found = shapes(batches)
    assert len({length for _, length in found}) == len(found) <= 11


@pytest.mark.parametrize("n_devices", [1, 3, 8])
@pytest.mark.parametrize("n", [1, 8, 61, 5000])
def test_rows_of_a_batch_are_shared_evenly_by_devices(n_devices, n):
    lengths = drawn_lengths(256, n)
    batches = plan_batches(lengths, context=256, batch_tokens=512, n_devices=n_devices)
    assert all(batch.n_rows % n_devices == 0 for batch in batches)
    assert sorted(row for b in batches for row in b.rows) == list(range(n))


@pytest.mark.parametrize(("context", "n_shapes"), [(16, 1), (256, 9), (2048, 15)])
def test_all_possible_lengths_make_few_shapes(context, n_shapes):
    # Two a power of two from 16 below the context, and the context itself.
    batches = plan_batches(range(context + 1), context=context, batch_tokens=512)
    assert len(shapes(batches)) == n_shapes
    assert len(bucket_lengths(context)) == n_shapes


def test_partly_filled_batch_has_the_shape_of_the_full_ones():
    batches = plan_batches([20] * 7, context=64, batch_tokens=72)
    assert batches == [
        Batch((0, 1, 2), 3, 24),
        Batch((3, 4, 5), 3, 24),
        Batch((6,), 3, 24),
    ]


@pytest.mark.parametrize("context", [100, 256, 2048])
def test_at_most_a_third_of_a_row_of_sixteen_or_more_is_padding(context):
    for length in range(16, context + 1):
        (batch,) = plan_batches([length], context=context, batch_tokens=1)
        assert (batch.length - length) / batch.length < 1 / 3


def test_rows_of_a_length_keep_the_order_given():
    lengths = drawn_lengths(256)
    order = collections.defaultdict(list)
    for batch in plan_batches(lengths, context=256, batch_tokens=512):
        order[batch.length] += batch.rows
    assert all(rows == sorted(rows) for rows in order.values())


def test_order_of_the_rows_changes_no_shape():
    lengths = drawn_lengths(256)
    shuffled = np.random.default_rng(1).permutation(lengths).tolist()
    first, again = (
        plan_batches(rows, context=256, batch_tokens=512)
        for rows in (lengths, shuffled)
    )
    assert shapes(first) == shapes(again)


def test_no_rows_make_no_batches():
    assert plan_batches([], context=64, batch_tokens=512) == []


@pytest.mark.parametrize(("context", "n_shapes"), [(32, 1), (1024, 5), (2048, 6)])
def test_two_files_on_an_accelerator_share_their_few_shapes(context, n_shapes):
    found = set()
    for n in (300, 2000):
        for batch in plan_batches(
            drawn_lengths(context, n, seed=n),
            context=context,
            batch_tokens=16_384,
            few_shapes=True,
        ):
            assert 16_384 // 2 < batch.n_rows * batch.length <= 16_384
            found.add((batch.n_rows, batch.length))
    assert len(found) == n_shapes


@pytest.mark.parametrize(
    ("n_rows", "n_devices", "expected"), [(8, 1, [4, 4]), (6, 2, [4, 2]), (2, 2, [])]
)
def test_a_batch_without_room_is_cut_in_two_that_divide_by_the_devices(
    n_rows, n_devices, expected
):
    batch = Batch(tuple(range(n_rows)), n_rows, 16)
    halves = batch.halves(n_devices)
    assert [len(half.rows) for half in halves] == expected
    assert [row for half in halves for row in half.rows] == list(range(n_rows))[
        : sum(expected)
    ]
    assert all(half.n_rows % n_devices == 0 for half in halves)
