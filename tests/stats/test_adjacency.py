"""Pair matrices: closed forms against enumeration, and the exact test against both."""

import itertools
import math

import numpy as np
import pytest

from jaxcontam.stats.adjacency import (
    LAGS,
    double_centred,
    lag_profile,
    path_moments,
    path_sums,
    symmetry,
)
from jaxcontam.stats.pair_test import (
    ADJACENCY,
    N_DRAWN,
    PairStrata,
    adjacency_test,
    drawn_sums,
    n_stratum_orders,
    stratum_orders,
)

DIGEST = "sha256:" + 64 * "3"
SIZES = range(4, 8)


def all_paths(n):
    return np.array(list(itertools.permutations(range(n))))


def matrix(n, seed=0):
    rng = np.random.default_rng([seed, n])
    return rng.normal(size=(n, n)) + 3 * rng.normal(size=n) + rng.normal(size=(n, 1))


def strata_of(matrices, codes=None):
    """`matrices` are K square arrays."""
    sizes = np.array([len(own) for own in matrices])
    largest = max(sizes)
    pairs = np.zeros((len(sizes), largest, largest))
    for k, own in enumerate(matrices):
        pairs[k, : len(own), : len(own)] = own
    return PairStrata(
        pairs=pairs,
        sizes=sizes,
        codes=np.zeros((len(sizes), largest), np.int64) if codes is None else codes,
        runs=np.zeros((len(sizes), largest), np.int64),
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
    )


def test(strata, seed=0):
    return adjacency_test(strata, seed=seed, content_digest=DIGEST)


test.__test__ = False


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("change", [lambda x: x, double_centred, lambda x: x - x.T])
def test_moments_are_those_of_all_orders(n, change):
    own = change(matrix(n))
    sums = path_sums(own, all_paths(n))
    mean, variance = path_moments(own)
    scale = float(np.abs(own).sum())
    assert mean == pytest.approx(sums.mean(), rel=1e-10, abs=1e-12 * scale)
    assert variance == pytest.approx(sums.var(), rel=1e-10)


@pytest.mark.parametrize("n", SIZES)
def test_centring_removes_what_examples_have_of_their_own(n):
    rng = np.random.default_rng(n)
    own = matrix(n)
    effects = rng.normal(size=(n, 1)) + rng.normal(size=n)
    centred = double_centred(own)
    np.testing.assert_allclose(double_centred(own + effects), centred, atol=1e-12)
    filled = own + 100 * np.eye(n)
    np.testing.assert_array_equal(double_centred(filled), centred)
    assert path_moments(filled) == path_moments(own)
    np.testing.assert_allclose(centred.sum(0), 0, atol=1e-12)
    np.testing.assert_allclose(centred.sum(1), 0, atol=1e-12)
    assert not np.diagonal(centred).any()


@pytest.mark.parametrize("codes", [[0] * n for n in range(2, 6)] + [[0, 1, 0, 1, 1]])
def test_orders_that_keep_to_groups_are_there_once_and_the_published_one_first(codes):
    codes_S = np.array(codes)
    orders = stratum_orders(codes_S, np.random.default_rng(0))
    wanted = [list(p) for p in all_paths(len(codes)) if (codes_S[p] == codes_S).all()]
    assert sorted(orders.tolist()) == sorted(wanted)
    assert len(orders) == n_stratum_orders(codes_S)
    assert orders[0].tolist() == list(range(len(codes)))


def test_long_strata_are_drawn_from_uniformly_and_reproducibly():
    codes = np.array([0] * 9 + [1])
    orders = stratum_orders(codes, np.random.default_rng(3))
    again = stratum_orders(codes, np.random.default_rng(3))
    assert len(orders) == N_DRAWN == n_stratum_orders(codes)
    np.testing.assert_array_equal(orders, again)
    assert (np.sort(orders, axis=1) == np.arange(10)).all()
    assert (orders[:, 9] == 9).all()
    at_first = np.bincount(orders[1:, 0], minlength=9)[:9] / (N_DRAWN - 1)
    # 4.5 standard errors of a share of 1/9, for nine shares.
    assert np.abs(at_first - 1 / 9).max() < 4.5 * math.sqrt(8 / 81 / N_DRAWN)


@pytest.mark.parametrize(
    ("codes_S", "n_orders"), [([0] * 6, 720), ([0, 0, 0, 0, 0, 1], 120)]
)
def test_gain_at_each_boundary_that_orders_can_break_is_the_effect(codes_S, n_orders):
    """Whatever examples add of their own: 2 nats a boundary are an effect of 2."""
    codes_KS = np.tile(codes_S, (40, 1))
    own = [matrix(6, seed) for seed in range(40)]
    gained = [one + 2 * np.eye(6, k=1) for one in own]
    before, after = (test(strata_of(x, codes_KS)) for x in (own, gained))
    assert after.effect - before.effect == pytest.approx(2, rel=1e-9)
    assert after.p_value < 1e-9 < 1e-4 < before.p_value
    assert after.p_floor == pytest.approx(float(n_orders) ** -40)
    assert after.mde == pytest.approx((3.090 + 0.842) * after.effect_se)


def test_symmetric_pairs_have_symmetry_one_and_antisymmetric_minus_one():
    own = matrix(8)
    assert symmetry([double_centred(own + own.T)]) == pytest.approx(1)
    assert symmetry([double_centred(own - own.T)]) == pytest.approx(-1)


def test_lag_profile_is_a_spike_at_one_for_a_memorised_order():
    rng = np.random.default_rng(0)
    own = [
        double_centred(rng.normal(size=(8, 8)) + 3 * np.eye(8, k=1)) for _ in range(50)
    ]
    profile = dict(zip(LAGS, lag_profile(own), strict=True))
    assert max(profile, key=profile.get) == 1
    assert profile[1] > 1.5 > 0.5 > max(abs(profile[h]) for h in LAGS if h != 1)
    short = dict(zip(LAGS, lag_profile([double_centred(matrix(4))]), strict=True))
    assert short[5] is None and short[3] is not None


def test_sums_for_plots_have_the_moments_of_all_orders():
    strata = strata_of([matrix(6, k) for k in range(5)])
    drawn = drawn_sums(strata, ADJACENCY, seed=1, content_digest=DIGEST, n_draws=40_000)
    variance = sum(path_moments(one)[1] for one in strata.centred())
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / 40_000)
    assert drawn.var() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("codes", [[0] * 5, [0, 1, 0, 1, 0], [0, 0, 1, 1, 2]])
def test_orders_that_share_beginnings_have_the_sums_of_orders_one_by_one(codes):
    orders_MS = stratum_orders(np.array(codes), np.random.default_rng(0))
    assert not orders_MS.flags.writeable
    pairs_SS = np.random.default_rng(1).normal(size=(5, 5))
    # The same additions in the same order: the same bits.
    found_M = path_sums(pairs_SS, orders_MS)
    np.testing.assert_array_equal(found_M, path_sums(pairs_SS, orders_MS.copy()))


def test_brief_numbers_are_those_of_the_whole_test():
    strata = strata_of([matrix(7, seed) for seed in range(5)])
    whole = adjacency_test(strata, seed=0, content_digest=DIGEST)
    brief = adjacency_test(strata, seed=0, content_digest=DIGEST, brief=True)
    for name in ("statistic", "log10_p", "p_lower", "effect", "effect_se", "mde"):
        assert getattr(brief, name) == getattr(whole, name)
    assert brief.p_monte_carlo is None and brief.e_value is None
