"""Tests that stop early: martingales by exact recursion, size, power, stops."""

import itertools
import math

import numpy as np
import pytest

from jaxcontam.stats.randomisation import soft_rank_log_e
from jaxcontam.stats.sequential import (
    besag_clifford,
    binomial_mixture,
    e_process,
    fewest_draws,
    mixture_wealth,
)

# Null data sets; bands are 3.3 standard errors where nothing else is said.
N_NULL = 4000


def at_most_nominal(p, level):
    slack = 3.3 * math.sqrt(level * (1 - level) / len(p))
    return np.mean(np.asarray(p) <= level) <= level + slack


def left_skewed(rng, shape):
    return -rng.gamma(1.0, size=shape)


def heteroscedastic(rng, shape):
    return rng.normal(size=shape) * rng.lognormal(sigma=1.5, size=(shape[0], 1))


def tied(rng, shape):
    return rng.integers(-1, 2, size=shape).astype(float)


LAWS = [left_skewed, heteroscedastic, tied]


@pytest.mark.parametrize("law", LAWS)
def test_mean_wealth_is_one_after_every_stratum(law):
    # Three strata: the wealth of more has tails too heavy for its mean to be seen.
    rng = np.random.default_rng(LAWS.index(law))
    e = np.exp(
        [e_process(law(rng, (3, 10)), level=0.05).log_wealth for _ in range(N_NULL)]
    )
    # Four standard errors of the sample mean.
    assert (abs(e.mean(axis=0) - 1) < 4 * e.std(axis=0) / math.sqrt(N_NULL)).all()


@pytest.mark.parametrize("law", LAWS)
def test_wealth_that_ever_reaches_twenty_is_rare_under_the_null(law):
    rng = np.random.default_rng(10 + LAWS.index(law))
    found = [e_process(law(rng, (30, 10)), level=0.05) for _ in range(N_NULL)]
    smallest = [10.0 ** run.log10_p[-1] for run in found]
    assert at_most_nominal(smallest, 0.05)
    assert at_most_nominal(smallest, 0.01)
    stopped = [run.first_stop is not None for run in found]
    assert stopped == [p <= 0.05 for p in smallest]


def test_wealth_is_one_on_average_over_all_choices_of_published_columns():
    rng = np.random.default_rng(0)
    matrix = tied(rng, (5, 4)) * np.array([[1.0], [30.0], [0.0], [0.1], [5.0]])
    wealth = []
    for choice in itertools.product(range(4), repeat=5):
        moved = matrix.copy()
        for k, j in enumerate(choice):
            moved[k, [0, j]] = moved[k, [j, 0]]
        wealth.append(np.exp(e_process(moved, level=0.05).log_wealth))
    np.testing.assert_allclose(np.mean(wealth, axis=0), np.ones(5), rtol=1e-12)


def test_each_factor_has_expectation_one_given_the_past():
    # Two strata, all four choices of the published columns, the past held fixed: the
    # exact conditional mean of the second factor is 1 in each.
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(2, 4)) * np.array([[1.0], [30.0]])
    for first in range(4):
        grown = []
        for second in range(4):
            moved = matrix.copy()
            for k, j in enumerate((first, second)):
                moved[k, [0, j]] = moved[k, [j, 0]]
            before, after = e_process(moved, level=0.05).log_wealth
            grown.append(math.exp(after - before))
        assert np.mean(grown) == pytest.approx(1.0, rel=1e-12)


def test_scale_of_later_strata_does_not_change_earlier_wealth():
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(6, 10))
    longer = np.concatenate([matrix, 1000 * rng.normal(size=(3, 10))])
    np.testing.assert_allclose(
        e_process(longer, level=0.05).log_wealth[:6],
        e_process(matrix, level=0.05).log_wealth,
        rtol=1e-12,
    )


def test_one_stratum_gives_the_fixed_evalue():
    matrix = np.random.default_rng(2).normal(size=(1, 10))
    found = e_process(matrix, level=0.05).log_wealth[-1]
    assert found == pytest.approx(soft_rank_log_e(matrix))


def test_running_pvalue_never_rises():
    matrix = np.random.default_rng(3).normal(size=(40, 10))
    matrix[:10, 0] += 2.0
    found = e_process(matrix, level=0.001)
    assert (np.diff(found.log10_p) <= 0).all()
    assert found.log10_p[-1] == pytest.approx(-found.log_wealth.max() / math.log(10))


def test_shift_of_one_deviation_stops_after_a_part_of_the_strata():
    # m = 10 and level 0.05 in 50 strata: about 11 of them are needed on average.
    rng = np.random.default_rng(4)
    stops = []
    for _ in range(400):
        matrix = rng.normal(size=(50, 11))
        matrix[:, 0] += 1.0
        stops.append(e_process(matrix, level=0.05).first_stop)
    assert None not in stops
    # The spread of one stop is about 6 strata: 4 standard errors of 400 are 1.2.
    assert 9.5 < np.mean(stops) < 12.5


def test_rounding_of_equal_scores_is_no_evidence():
    # A scorer that is off by a few ulp, always in favour of the published order.
    matrix = np.full((30, 10), -400.0)
    matrix[:, 0] += 1e-7
    found = e_process(matrix, level=0.05)
    np.testing.assert_array_equal(found.log_wealth, np.zeros(30))


@pytest.mark.parametrize("value", [0.0, -417.3])
def test_constant_scorer_wins_nothing(value):
    found = e_process(np.full((20, 10), value), level=0.05)
    np.testing.assert_allclose(found.log_wealth, 0.0, atol=1e-12)
    assert found.first_stop is None
    np.testing.assert_allclose(found.log10_p, 0.0, atol=1e-12)


def null_losses(rng, n_sets, n_draws):
    """Whether each draw is at least as high as the published number of its set."""
    published = rng.normal(size=(n_sets, 1))
    return rng.normal(size=(n_sets, n_draws)) >= published


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05])
def test_mixture_is_a_martingale_of_the_urn(level):
    # Under the null the next draw is a loss with probability (L + 1) / (t + 2).
    t = np.repeat(np.arange(200), np.arange(1, 201))
    n_lost = np.concatenate([np.arange(n + 1) for n in range(200)])
    p_loss = (n_lost + 1) / (t + 2)
    mean_next = p_loss * mixture_wealth(t + 1, n_lost + 1, level=level) + (
        1 - p_loss
    ) * mixture_wealth(t + 1, n_lost, level=level)
    np.testing.assert_allclose(
        mean_next, mixture_wealth(t, n_lost, level=level), rtol=1e-9, atol=1e-15
    )
    assert mixture_wealth(np.array([0]), np.array([0]), level=level) == pytest.approx(1)


def chance_of_rejecting(level, n_most):
    """Exact null probability that the wealth ever reaches 1 / level, with futility."""
    alive, rejected = np.array([1.0]), 0.0
    for t in range(1, n_most + 1):
        n_lost = np.arange(t + 1)
        grown = np.zeros(t + 1)
        p_loss = (np.arange(t) + 1) / (t + 1)
        grown[1:] += alive * p_loss
        grown[:-1] += alive * (1 - p_loss)
        wealth = mixture_wealth(np.full(t + 1, t), n_lost, level=level)
        rejected += grown[wealth >= 1 / level].sum()
        alive = np.where((wealth >= 1 / level) | (wealth < level), 0.0, grown)
    return rejected


@pytest.mark.parametrize(("level", "n_most"), [(0.05, 999), (0.01, 1500)])
def test_exact_size_of_the_mixture_is_below_its_level_and_not_far(level, n_most):
    size = chance_of_rejecting(level, n_most)
    # Futility and the cap on draws only lose; simulations elsewhere gave 0.8 of it.
    assert 0.6 * level < size <= level


def test_simulated_size_agrees_with_the_exact_recursion():
    rng = np.random.default_rng(5)
    found = [
        binomial_mixture(losses, level=0.05, n_most=500)
        for losses in null_losses(rng, N_NULL, 500)
    ]
    share = np.mean([test.stop == "rejected" for test in found])
    exact = chance_of_rejecting(0.05, 500)
    assert abs(share - exact) < 3.3 * math.sqrt(exact * (1 - exact) / N_NULL)
    assert at_most_nominal([test.p_value for test in found], 0.05)


@pytest.mark.parametrize(("h", "n_most"), [(1, 99), (10, 999), (10, 10)])
def test_besag_clifford_size_is_at_most_nominal(h, n_most):
    rng = np.random.default_rng(6)
    p = [
        besag_clifford(losses, h=h, n_most=n_most).p_value
        for losses in null_losses(rng, N_NULL, n_most)
    ]
    for level in (0.01, 0.05, 0.5):
        assert at_most_nominal(p, level)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_size_of_the_e_process_over_ten_thousand_null_files(law):
    rng = np.random.default_rng(20 + LAWS.index(law))
    log10_p = [
        e_process(law(rng, (30, 10)), level=0.001).log10_p[-1] for _ in range(10_000)
    ]
    for level in (0.001, 0.01, 0.05):
        assert at_most_nominal(10.0 ** np.array(log10_p), level)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.001, 0.01, 0.05])
def test_size_of_both_draw_tests_over_ten_thousand_null_files(level):
    rng = np.random.default_rng(30)
    n_most = 2 * fewest_draws(level)
    bet, counted = [], []
    for _ in range(10_000):
        losses = null_losses(rng, 1, n_most)[0]
        bet.append(binomial_mixture(losses, level=level, n_most=n_most).p_value)
        counted.append(besag_clifford(losses, h=10, n_most=n_most).p_value)
    assert at_most_nominal(bet, level)
    assert at_most_nominal(counted, level)


def test_both_tests_stop_early_where_there_is_nothing_to_find():
    rng = np.random.default_rng(7)
    losses = null_losses(rng, 1000, 999)
    for test, most in (
        (lambda row: besag_clifford(row, h=10, n_most=999), 80),
        (lambda row: binomial_mixture(row, level=0.05, n_most=999), 60),
    ):
        # 54 and 39 draws on average in earlier simulations, with long tails.
        assert np.mean([test(row).n_draws for row in losses]) < most


def test_mixture_rejects_a_strong_shift_in_few_draws():
    # Six standard deviations: no loss in practice, so the fewest draws are enough.
    rng = np.random.default_rng(8)
    losses = rng.normal(size=5000) >= 6.0
    found = binomial_mixture(losses, level=0.001, n_most=5000)
    assert (found.stop, found.n_draws) == ("rejected", fewest_draws(0.001))
    assert found.p_value <= 0.001
    assert found.log_e >= math.log(1000)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.5])
def test_fewest_draws_is_where_a_run_without_loss_first_rejects(level):
    t = fewest_draws(level)
    wealth = mixture_wealth(np.array([t - 1, t]), np.array([0, 0]), level=level)
    assert wealth[0] < 1 / level <= wealth[1]


def test_mixture_pvalue_is_never_below_its_share_of_the_level():
    found = binomial_mixture(np.zeros(20_000, bool), level=0.01, n_most=20_000)
    assert 0.009 <= found.p_value <= 0.01


def test_besag_clifford_follows_its_two_formulas():
    losses = np.array([False, True, False, True, True, True])
    assert besag_clifford(losses, h=2, n_most=6).p_value == 2 / 4
    assert besag_clifford(losses, h=2, n_most=6).n_draws == 4
    assert besag_clifford(losses[:3], h=2, n_most=3).p_value == 2 / 4
    assert besag_clifford(losses[:3], h=2, n_most=3).stop == "exhausted"


def test_unfinished_draws_say_that_more_are_needed():
    losses = np.array([False, True, False])
    waiting = besag_clifford(losses, h=2, n_most=9)
    assert (waiting.stop, waiting.p_value) == (None, 1.0)
    assert binomial_mixture(losses, level=0.05, n_most=9).stop is None


def test_draws_after_the_stop_change_nothing():
    rng = np.random.default_rng(9)
    losses = null_losses(rng, 1, 999)[0]
    for test in (
        lambda row: besag_clifford(row, h=10, n_most=999),
        lambda row: binomial_mixture(row, level=0.05, n_most=999),
    ):
        stopped = test(losses)
        changed = losses.copy()
        changed[stopped.n_draws :] = ~changed[stopped.n_draws :]
        assert stopped.stop is not None
        assert test(changed) == stopped


def test_constant_scorer_always_loses():
    losses = np.ones(50, bool)
    assert besag_clifford(losses, h=10, n_most=50).p_value == 1.0
    bet = binomial_mixture(losses, level=0.05, n_most=50)
    assert (bet.p_value, bet.stop) == (1.0, "futile")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: besag_clifford(np.ones(3, bool), h=0, n_most=3), "h must be at least"),
        (lambda: besag_clifford(np.ones(3, bool), h=4, n_most=3), "n_most must be"),
        (
            lambda: binomial_mixture(np.ones(3, bool), level=0.0, n_most=3),
            "level must be",
        ),
        (
            lambda: binomial_mixture(np.ones(3, bool), level=0.1, n_most=0),
            "n_most must be",
        ),
        (lambda: e_process(np.array([[0.0, np.nan]]), level=0.1), "must be finite"),
        (lambda: e_process(np.zeros((2, 2)), level=1.0), "level must be"),
        (lambda: fewest_draws(1.5), "level must be"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
