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
from jaxcontam.stats.direction import (
    flipped_orders,
    needed_pairs,
    neighbours,
    run_length,
    runs_of,
)
from jaxcontam.stats.pair_test import (
    ADJACENCY,
    N_DRAWN,
    PairStrata,
    adjacency_test,
    direction_test,
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


def strata_of(matrices, *, length=4, codes=None, sparse=False):
    """Pair matrices as scored, with runs of so many examples."""
    sizes = np.array([len(matrix) for matrix in matrices])
    largest = int(sizes.max())
    pairs = np.zeros((len(matrices), largest, largest))
    runs_KS = np.zeros((len(matrices), largest), np.int64)
    for k, matrix in enumerate(matrices):
        n = len(matrix)
        runs_KS[k, :n] = runs_of(n, length)
        wanted_SS = needed_pairs(runs_KS[k, :n]) | np.eye(n, dtype=bool)
        pairs[k, :n, :n] = np.where(wanted_SS | (not sparse), matrix, np.nan)
    return PairStrata(
        pairs=pairs,
        sizes=sizes,
        codes=np.zeros((len(sizes), largest), np.int64) if codes is None else codes,
        runs=runs_KS,
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
    )


def noise(n_strata, *, size=8, seed=0):
    """Matrices with effects of single examples far above the rest."""
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(n_strata, size, size))
    matrices += 30 * rng.normal(size=(n_strata, size, 1))
    matrices += 30 * rng.normal(size=(n_strata, 1, size))
    return np.where(np.eye(size, dtype=bool), 0.0, matrices)


def result_of(strata, test=direction_test, **kwargs):
    return test(strata, seed=0, content_digest=DIGEST, **kwargs)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("change", [lambda x: x, double_centred, lambda x: x - x.T])
def test_moments_are_those_of_all_orders(n, change):
    own = change(matrix(n))
    sums = path_sums(own, all_paths(n))
    mean, variance = path_moments(own)
    scale = float(np.abs(own).sum())
    assert mean == pytest.approx(sums.mean(), rel=1e-10, abs=1e-12 * scale)
    assert variance == pytest.approx(sums.var(), rel=1e-10)


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
    before, after = (
        result_of(strata_of(x, codes=codes_KS), adjacency_test) for x in (own, gained)
    )
    assert after.effect - before.effect == pytest.approx(2, rel=1e-9)
    assert after.p_value < 1e-9 < 1e-4 < before.p_value
    assert after.p_floor == pytest.approx(float(n_orders) ** -40)
    assert after.mde == pytest.approx((3.090 + 0.842) * after.effect_se)


def test_symmetric_pairs_have_symmetry_one_and_antisymmetric_minus_one():
    own = matrix(8)
    assert symmetry([double_centred(own + own.T)]) == pytest.approx(1)
    assert symmetry([double_centred(own - own.T)]) == pytest.approx(-1)


def test_lag_profile_is_the_mean_at_each_distance_in_standard_deviations():
    own = [double_centred(matrix(n)) for n in (4, 8)]
    profile = dict(zip(LAGS, lag_profile(own), strict=True))
    sd = math.sqrt(sum((one**2).sum() for one in own) / (12 + 56))
    for lag in (-5, 1, 3):
        found = np.concatenate([np.diagonal(one, lag) for one in own])
        assert profile[lag] == pytest.approx(found.mean() / sd)
    short = dict(zip(LAGS, lag_profile(own[:1]), strict=True))
    assert short[5] is None and short[3] is not None


def test_sums_for_plots_have_the_moments_of_all_orders():
    strata = strata_of([matrix(6, k) for k in range(5)])
    drawn = drawn_sums(strata, ADJACENCY, seed=1, content_digest=DIGEST, n_draws=40_000)
    variance = sum(path_moments(one)[1] for one in strata.centred())
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / 40_000)
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_brief_numbers_are_those_of_the_whole_test():
    strata = strata_of([matrix(7, seed) for seed in range(5)])
    whole, brief = (
        result_of(strata, adjacency_test, brief=is_brief) for is_brief in (False, True)
    )
    for name in ("statistic", "log10_p", "p_lower", "effect", "effect_se", "mde"):
        assert getattr(brief, name) == getattr(whole, name)
    assert brief.p_monte_carlo is None and brief.e_value is None


def test_scored_pairs_are_the_same_when_a_run_is_reversed():
    for length, size in itertools.product((2, 3, 4), range(4, 9)):
        runs_S = runs_of(size, length)
        needed_SS = needed_pairs(runs_S)
        for order_S in flipped_orders(np.zeros(size, np.int64), runs_S):
            assert np.array_equal(needed_SS[np.ix_(order_S, order_S)], needed_SS)
            assert needed_SS[order_S[:-1], order_S[1:]].all()
    assert needed_pairs(runs_of(8, 4)).sum() == 20


@pytest.mark.parametrize("sparse", [False, True])
def test_effect_is_the_gain_of_each_boundary_less_what_both_directions_share(sparse):
    """Whatever is common to [i, j] and [j, i] leaves the p-value as it is."""
    plain, ahead = noise(40), np.eye(8, k=1)
    a, alike, gained = (
        result_of(strata_of(m, sparse=sparse))
        for m in (plain, plain + 5 * (ahead + ahead.T), plain + 2 * ahead)
    )
    assert alike.p_value == pytest.approx(a.p_value, rel=1e-9)
    for found, effect, forward, backward in ((alike, 0, 5, 5), (gained, 2, 2, 0)):
        assert found.effect - a.effect == pytest.approx(effect, abs=1e-9)
        own, before = found.neighbours, a.neighbours
        assert own.forward - before.forward == pytest.approx(forward)
        assert own.backward - before.backward == pytest.approx(backward, abs=1e-9)
        assert own.excess - before.excess == pytest.approx(effect, abs=1e-9)
    # Only all pairs tell of other distances, and what a random order would be worth:
    # among all orders the floor of 80 reversals no longer binds.
    if sparse:
        assert (gained.lag_profile, gained.log10_p_all_orders) == (None, None)
    else:
        best = max(lag for lag in gained.lag_profile if lag is not None)
        assert gained.lag_profile[LAGS.index(1)] == best
        assert gained.log10_p_all_orders < gained.log10_p


def test_standard_errors_of_both_gains_are_those_of_simulation():
    """400 sets: the spread of an estimate is its own error within 4 of 3.5 %."""
    found = [neighbours(list(noise(4, seed=seed))) for seed in range(400)]
    for name in ("forward", "backward", "excess"):
        values = np.array([getattr(one, name) for one in found])
        stated = np.mean([getattr(one, f"{name}_se") for one in found])
        assert abs(values.std() / stated - 1) < 4 * 0.035
        assert abs(values.mean()) < 4 * stated / 20


@pytest.mark.parametrize(("n", "length"), [(8, 2), (45, 3), (60, 4), (10_000, 4)])
def test_runs_are_shorter_where_a_file_would_give_too_few(n, length):
    assert run_length(n) == length
