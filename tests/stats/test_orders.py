"""Strata and orders: definitions by hand, and what may not depend on what."""

import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.data.benchmark import content_digest
from jaxcontam.orders.pairs import stratum_runs
from jaxcontam.stats.orders import (
    boundaries_gained,
    cut_to_budget,
    draw_orders,
    fewest_strata,
    from_scoring_columns,
    published_orders,
    reversed_orders,
    split_strata,
    stratum_size,
    to_scoring_columns,
)
from jaxcontam.stats.pair_test import ADJACENCY, DIRECTION, pair_columns

DIGEST = "sha256:" + "5e" * 32


@pytest.mark.parametrize(("n_orders", "wanted"), [(1, 40), (2, 26), (9, 20), (99, 20)])
def test_fewest_strata_keep_the_floor_at_1e_12(n_orders, wanted):
    assert fewest_strata(n_orders) == wanted
    assert (n_orders + 1.0) ** -wanted <= 1e-12


@pytest.mark.parametrize(
    ("n", "n_ids", "context", "n_orders", "limit", "size"),
    [
        (125, 125 * 27, 128, 9, None, 4),  # four examples of 27 ids fit 127
        (1000, 1000 * 10, 2048, 9, None, 50),  # 20 strata rather than one of 204
        (1000, 1000 * 10, 2048, 1, 6, 6),  # the method's own limit
        (100, 100 * 500, 128, 9, None, 2),  # nothing fits: two, and they are cut
        (7, 70, 128, 9, None, 2),
    ],
)
def test_stratum_size_is_the_smallest(n, n_ids, context, n_orders, limit, size):
    assert stratum_size(n, n_ids, context, n_orders, limit=limit) == size


@pytest.mark.parametrize(("n", "size"), [(100, 4), (125, 4), (7, 2), (2, 2), (999, 50)])
def test_strata_are_contiguous_and_differ_by_at_most_one(n, size):
    strata = split_strata(n, size)
    np.testing.assert_array_equal(np.concatenate(strata), np.arange(n))
    sizes = [len(stratum) for stratum in strata]
    assert len(strata) == math.ceil(n / size)
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_cut_is_the_largest_that_fits(seed):
    rng = np.random.default_rng(seed)
    lengths, budget = rng.integers(1, 60, size=5), int(rng.integers(5, 200))
    cut = cut_to_budget(lengths, budget)
    if cut is None:
        assert lengths.sum() <= budget
    else:
        assert np.minimum(lengths, cut).sum() <= budget
        assert np.minimum(lengths, cut + 1).sum() > budget


def drawn(strata, m, **kwargs):
    return draw_orders(strata, m, **{"seed": 0, "content_digest": DIGEST} | kwargs)


def test_every_order_is_equally_likely_and_strata_have_draws_of_their_own():
    design = drawn(split_strata(36_000, 3), 9, seed=1)
    relative = design.orders - design.orders[:, :1, :1]
    for j in (1, 9):
        orders, counts = np.unique(relative[:, j], axis=0, return_counts=True)
        assert len(orders) == 6 and scipy.stats.chisquare(counts).pvalue > 1e-3
    # So a drift along the rows that are scored is evidence of nothing.
    places = np.bincount(design.place, minlength=10)
    assert scipy.stats.chisquare(places).pvalue > 1e-3


def test_draws_depend_on_seed_and_content_and_never_on_the_order_under_test():
    texts, strata = [f"example {i}" for i in range(20)], split_strata(20, 5)
    shuffled = [texts[i] for i in np.random.default_rng(0).permutation(20)]
    one, same, seed, content = (
        drawn(strata, 9, seed=seed, content_digest=content_digest(own))
        for own, seed in ((texts, 0), (shuffled, 0), (texts, 1), (texts[1:], 0))
    )
    np.testing.assert_array_equal(one.orders, same.orders)
    np.testing.assert_array_equal(one.place, same.place)
    assert not np.array_equal(one.orders, seed.orders)
    assert not np.array_equal(one.orders, content.orders)


def test_groups_keep_examples_among_positions_of_equal_value():
    of_example = np.array([*"aabbababcc"] * 3)
    orders = drawn(split_strata(30, 10), 20, groups=of_example.tolist()).orders
    assert (of_example[orders] == of_example[orders[:, :1]]).all()
    assert (orders[:, 1:] != orders[:, :1]).any(axis=(1, 2)).all()
    reversed_ = reversed_orders(
        [np.arange(6)], seed=0, content_digest=DIGEST, groups=[*"abaabb"]
    )
    np.testing.assert_array_equal(reversed_.orders[0, 1], [3, 5, 2, 0, 4, 1])


def test_strata_with_one_order_are_dropped_and_leave_the_draws_of_the_others():
    none = drawn(split_strata(6, 2), 3, groups=[*"abcdde"])
    assert (none.n_strata, none.n_dropped) == (0, 3)
    singles = drawn(split_strata(5, 2), 3)
    assert (singles.n_strata, singles.n_dropped) == (2, 1)
    strata = [np.arange(2), np.arange(2, 6)]
    grouped, plain = drawn(strata, 5, groups=[*"abcccc"]), drawn(strata, 5)
    np.testing.assert_array_equal(grouped.orders[0], plain.orders[1])


@pytest.mark.parametrize("statistic", [ADJACENCY, DIRECTION])
def test_pairs_leave_out_a_stratum_of_one_order_and_count_no_padding(statistic):
    strata = [np.arange(8), np.arange(8, 13), np.arange(13, 16)]
    design, codes_KS = published_orders(strata, groups=[0] * 13 + [1, 2, 3])
    assert (design.n_strata, design.n_dropped) == (2, 1)
    published_KS = design.orders[:, 0]
    assert set(published_KS.ravel().tolist()) == set(range(-1, 13))
    runs_KS = stratum_runs(published_KS, 60)
    both = pair_columns(statistic, published_KS, codes_KS, runs_KS)
    short = (one[1:, :5] for one in (published_KS, codes_KS, runs_KS))
    assert both[1:] == pair_columns(statistic, *short)
    assert both == ([40_320, 120] if statistic is ADJACENCY else [4, both[1]])


@pytest.mark.parametrize("size", [2, 5, 24])
def test_boundaries_gained_is_the_mean_over_random_orders(size):
    closed = boundaries_gained(np.arange(size)[None, None], counted=False)[0]
    n = 20_000
    design = drawn([np.arange(size)], n)
    counted = boundaries_gained(design.orders, counted=True)[0]
    # A random order keeps about one neighbour, with variance near one.
    assert counted == pytest.approx(closed, abs=4 * math.sqrt(1.5 / n))


def test_reversal_gains_every_boundary():
    orders = reversed_orders(split_strata(11, 6), seed=0, content_digest=DIGEST).orders
    np.testing.assert_array_equal(boundaries_gained(orders, counted=True), [5, 4])


def test_scoring_columns_undo_themselves_and_move_the_published_one():
    matrix = np.arange(12.0).reshape(3, 4)
    place = np.array([0, 3, 1])
    moved = to_scoring_columns(matrix, place)
    np.testing.assert_array_equal(moved[np.arange(3), place], matrix[:, 0])
    np.testing.assert_array_equal(from_scoring_columns(moved, place), matrix)
