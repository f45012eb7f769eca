"""Local evidence in examples: planted runs of whole orders and of pairs."""

import numpy as np

from jaxcontam.orders.pairs import where_in_pairs
from jaxcontam.orders.sequences import where_in_orders
from jaxcontam.stats.orders import draw_orders, published_orders
from jaxcontam.stats.pair_test import ADJACENCY, PairStrata, sampled_columns

DIGEST = "sha256:" + "cd" * 32


def pairs_of(rng, n_examples, size, seen=()):
    """Normal pair matrices, with a gain at each boundary of the strata in `seen`."""
    strata = np.array_split(np.arange(n_examples), -(-n_examples // size))
    design, codes_KS = published_orders(strata)
    pairs_KSS = rng.normal(size=(len(strata), size, size))
    for k in seen:
        pairs_KSS[k] += 2.0 * np.eye(size, k=1)
    sizes_K = np.array([len(stratum) for stratum in strata])
    return design.orders, PairStrata(
        pairs=pairs_KSS,
        sizes=sizes_K,
        codes=codes_KS,
        runs=np.zeros_like(codes_KS),
        starts=design.orders[:, 0, 0].astype(np.int64),
    )


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
    rng = np.random.default_rng(1)
    orders, strata = pairs_of(rng, 118, 6, seen=range(8, 14))
    found = where_in_pairs(strata, ADJACENCY, orders, seed=0, content_digest=DIGEST)
    assert abs(found.first_example - (orders[8, 0, 0] + 1)) <= 6
    assert abs(found.last_example - (orders[13, 0].max() + 1)) <= 6
    assert found.p_value <= 0.01


def test_pairs_of_an_unseen_file_have_no_small_pvalue_more_often_than_chance():
    p = []
    for seed in range(150):
        orders, strata = pairs_of(np.random.default_rng([2, seed]), 40, 5)
        p.append(
            where_in_pairs(
                strata, ADJACENCY, orders, seed=seed, content_digest=DIGEST
            ).p_value
        )
    # 3.3 standard errors of 150 files.
    assert np.mean(np.array(p) <= 0.1) <= 0.1 + 3.3 * np.sqrt(0.1 * 0.9 / 150)


def test_sampled_columns_start_with_the_published_order_and_repeat_by_seed():
    _, strata = pairs_of(np.random.default_rng(4), 23, 5)
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
