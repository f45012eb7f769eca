"""Batches of training rows: the same rows each time, shared out without remainder."""

import numpy as np
import pytest

from train.data import Rows, row_batches
from train.plant import training_order

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
@pytest.mark.parametrize("n", [1, 2, 4])
def test_batches_are_rows_in_their_order_shared_out_without_the_remainder(
    rows, n, n_threads
):
    shares = [
        row_batches(
            rows, batch_rows=8, n_steps=7, n_threads=n_threads, process=i, n_processes=n
        )
        for i in range(n)
    ]
    parts = np.array([list(share) for share in shares])
    assert parts.dtype == np.int32
    expected = np.stack([rows[i] for i in range(56)])
    # Rows of a step go to the processes in turn.
    found = np.moveaxis(parts, 0, 2).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


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
