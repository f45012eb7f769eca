"""Where the evidence lies: planted runs, degenerate files, large files."""

import tracemalloc

import numpy as np

from jaxcontam.orders.pairs import where_in_pairs
from jaxcontam.orders.sequences import where_in_orders
from jaxcontam.stats.local import local_evidence
from jaxcontam.stats.orders import draw_orders
from jaxcontam.stats.pair_test import ADJACENCY, sampled_columns
from tests.support.size_designs import strata_of


def find(matrix, *, seed=0, n_draws=999, ties=None):
    ties_K = np.zeros(len(matrix)) if ties is None else ties
    return local_evidence(matrix, ties_K, seed=seed, n_draws=n_draws)


def test_differences_below_the_tie_tolerance_are_no_evidence():
    matrix = -1000 + 1e-4 * np.random.default_rng(4).normal(size=(30, 10))
    matrix[:, 0] = matrix.max(axis=1)
    assert find(matrix).p_value <= 0.001
    assert find(matrix, ties=np.full(30, 1e-2)).p_value == 1.0


def test_a_run_in_a_large_file_is_found_in_little_memory():
    matrix = np.random.default_rng(8).normal(size=(2500, 10))
    matrix[400:432, 0] += 2.5
    tracemalloc.start()
    found = find(matrix, n_draws=9_999)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # K x B at once would be 200 MB; blocks of 2^16 numbers are half a megabyte each.
    assert most < 20e6
    assert found.p_value == 1e-4
    # Ends are chance: a stratum is missed or added now and then.
    assert abs(found.first - 400) < 4 and abs(found.last - 431) < 4


DIGEST = "sha256:" + "cd" * 32


def test_run_of_orders_is_named_by_its_first_and_last_example():
    rng = np.random.default_rng(0)
    strata = np.array_split(np.arange(195), 40)
    orders = draw_orders(strata, 9, seed=0, content_digest=DIGEST).orders
    loglik = -100 + rng.normal(size=(40, 10))
    loglik[12:20, 0] += 8.0
    found = where_in_orders(loglik, orders, seed=0)
    assert found.first_example == strata[12][0] + 1
    assert found.last_example == strata[19][-1] + 1
    assert found.p_value <= 0.001


def test_run_of_pairs_is_named_by_its_first_and_last_example():
    pairs_KSS = np.random.default_rng(1).normal(size=(20, 6, 6))
    pairs_KSS[8:14] += 2.0 * np.eye(6, k=1)
    orders, strata = np.arange(120).reshape(20, 1, 6), strata_of(pairs_KSS)
    found = where_in_pairs(strata, ADJACENCY, orders, seed=0, content_digest=DIGEST)
    assert abs(found.first_example - (orders[8, 0, 0] + 1)) <= 6
    assert abs(found.last_example - (orders[13, 0].max() + 1)) <= 6
    assert found.p_value <= 0.01


def test_sampled_columns_start_with_the_published_order_and_repeat_by_seed():
    strata = strata_of(np.random.default_rng(4).normal(size=(5, 5, 5)))
    rows, again, other = (
        sampled_columns(
            strata, ADJACENCY, seed=seed, content_digest=DIGEST, n_orders=50
        )
        for seed in (0, 0, 1)
    )
    centred = strata.centred()
    assert [len(row) for row in rows] == [51] * len(centred)
    published = [np.trace(matrix, 1) for matrix in centred]
    np.testing.assert_allclose([row[0] for row in rows], published, rtol=1e-12)
    np.testing.assert_array_equal(rows, again)
    assert not np.array_equal(rows, other)
