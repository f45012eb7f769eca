"""Batches of training rows: the same rows each time, shared out without remainder."""

import numpy as np
import pytest

from train.rows import Rows, row_batches
from train.stream import training_order

CONTEXT = 16


@pytest.fixture
def rows():
    """62 rows; one of them spans the end of the stream."""
    ids = np.random.default_rng(1).integers(0, 60_000, 1000).astype(np.uint16)
    starts = training_order(len(ids), CONTEXT, seed=3)
    return Rows(ids, starts, CONTEXT)


def test_rows_are_those_of_the_gathered_stream(rows):
    places = rows.starts[:, None] + np.arange(CONTEXT + 1)
    expected = rows.ids[places % len(rows.ids)]
    found = np.stack([rows[i] for i in range(len(rows))])
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int32
    assert (rows.starts + CONTEXT + 1 > 1000).any()


@pytest.mark.parametrize("n_threads", [0, 2])
def test_batches_are_the_rows_in_their_order_without_the_remainder(rows, n_threads):
    found = list(row_batches(rows, batch_rows=8, n_steps=7, n_threads=n_threads))
    expected = np.stack([rows[i] for i in range(56)]).reshape(7, 8, CONTEXT + 1)
    np.testing.assert_array_equal(found, expected)
    assert found[0].dtype == np.int32


@pytest.mark.parametrize("n_processes", [2, 4])
def test_processes_share_out_each_global_batch(rows, n_processes):
    whole = row_batches(rows, batch_rows=8, n_steps=7)
    shares = [
        row_batches(rows, batch_rows=8, n_steps=7, process=i, n_processes=n_processes)
        for i in range(n_processes)
    ]
    for batch, *parts in zip(whole, *shares, strict=True):
        assert all(part.shape == (8 // n_processes, CONTEXT + 1) for part in parts)
        joined = np.stack(parts, axis=1).reshape(batch.shape)
        np.testing.assert_array_equal(joined, batch)


def test_a_state_of_one_process_serves_two(rows):
    alone = row_batches(rows, batch_rows=8, n_steps=7)
    next(alone)
    second = row_batches(rows, batch_rows=8, n_steps=7, process=1, n_processes=2)
    second.set_state(alone.get_state())
    np.testing.assert_array_equal(next(second), next(alone)[1::2])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"batch_rows": 8, "n_steps": 8}, "n_steps must be at most 7"),
        ({"batch_rows": 9, "n_steps": 1, "n_processes": 2}, "multiple of the 2"),
        ({"batch_rows": 8, "n_steps": 1, "process": 1}, r"process must be in \[0, 1\)"),
    ],
)
def test_counts_that_do_not_fit_are_refused(rows, counts, message):
    with pytest.raises(ValueError, match=message):
        row_batches(rows, **counts)
