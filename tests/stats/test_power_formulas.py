"""Power formulas against the tests that they speak of."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.methods import METHODS
from jaxcontam.orders.order_test import OrderFile
from jaxcontam.orders.pairs import PairMethod
from jaxcontam.orders.power_designs import (
    PLANNED,
    FilePlan,
    fewest_examples,
    power_design,
    workload,
)
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.direction import needed_pairs, run_length, runs_of
from jaxcontam.stats.power import (
    detectable_effect,
    drawn_design,
    pair_design,
    power,
    reversal_design,
    sd_from,
    smallest_enough,
    standard_error,
)
from jaxcontam.stats.randomisation import randomisation_test

LEVEL = 0.001


def within(found, expected, n, k=3):
    """Whether a share of n simulations is within k standard errors."""
    return abs(found - expected) <= k * math.sqrt(expected * (1 - expected) / n)


def matrices(design, effect, n, rng):
    """Normal rows, the published column raised."""
    gains_K = np.concatenate([[kind.gain] * kind.count for kind in design.kinds])
    sd_K = np.sqrt(np.concatenate([[kind.noise] * kind.count for kind in design.kinds]))
    shape = (design.n_strata, design.n_orders + 1)
    for _ in range(n):
        loglik_KM = sd_K[:, None] * rng.standard_normal(shape)
        loglik_KM[:, 0] += effect * gains_K
        yield loglik_KM


def test_z_is_the_formula_of_strata_of_equal_size():
    n, s, m, effect, sd = 400, 10, 9, 0.3, 1.5
    expected = effect / sd * math.sqrt(n) * (1 - 1 / s) / math.sqrt(1 + 1 / m)
    assert effect / standard_error(drawn_design(n, n // s, m), sd) == pytest.approx(
        expected
    )
    rho = 0.6
    expected = effect / sd * math.sqrt(n * (1 - 1 / s) / (2 * (1 - rho)))
    found = effect / standard_error(reversal_design(n, n // s, symmetry=rho), sd)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_examples", "n_strata", "n_orders", "effect", "level"),
    [(60, 12, 4, 0.5, 0.05), (100, 20, 9, 0.55, 0.001)],
)
def test_power_of_drawn_orders_is_that_of_the_exact_test(
    n_examples, n_strata, n_orders, effect, level
):
    design = drawn_design(n_examples, n_strata, n_orders)
    n = 120
    rng = np.random.default_rng(1)
    found = [
        randomisation_test(x, np.ones(n_strata), relative_tolerance=1e-9).p_value
        for x in matrices(design, effect, n, rng)
    ]
    expected = power(design, effect, 1.0, level=level)
    assert 0.3 < expected < 0.9
    assert within(np.mean(np.array(found) <= level), expected, n)


@pytest.mark.parametrize("symmetry", [0.0, 0.5])
def test_power_of_reversal_is_that_of_sign_flips(symmetry):
    n_strata, level, n = 30, 0.01, 1_000
    effect = 0.52 * math.sqrt(1 - symmetry)
    design = reversal_design(150, n_strata, symmetry=symmetry)
    rng = np.random.default_rng(2)
    signs = rng.choice([-1.0, 1.0], size=(10_000, n_strata))
    rejected = 0
    for loglik_KM in matrices(design, effect, n, rng):
        difference_K = loglik_KM[:, 0] - loglik_KM[:, 1]
        sums = signs @ difference_K
        rejected += np.mean(sums >= difference_K.sum() - 1e-9) <= level
    expected = power(design, effect, 1.0, level=level)
    assert 0.5 < expected < 0.98
    assert within(rejected / n, expected, n)
    # What z alone would promise is refuted by the same simulation.
    promised = scipy.stats.norm.cdf(
        effect / standard_error(design, 1.0) - scipy.stats.norm.isf(level)
    )
    assert not within(rejected / n, promised, n)


@pytest.mark.parametrize("symmetry", [0.0, 0.6])
def test_power_of_pairs_is_that_of_random_paths(symmetry):
    s, n_strata, effect, level, n = 6, 15, 0.35, 0.01, 300
    design = pair_design(s * n_strata, n_strata, symmetry=symmetry)
    orders_MS = np.array(list(itertools.permutations(range(s))))
    rng = np.random.default_rng(3)
    rejected, n_draws = 0, 10_000
    for _ in range(n):
        published, null_B = 0.0, np.zeros(n_draws)
        for _ in range(n_strata):
            common_SS = np.triu(rng.standard_normal((s, s)), 1)
            pairs_SS = math.sqrt(1 - symmetry) * rng.standard_normal((s, s))
            pairs_SS += math.sqrt(symmetry) * (common_SS + common_SS.T)
            centred_SS = double_centred(pairs_SS + effect * np.eye(s, k=1))
            sums_M = path_sums(centred_SS, orders_MS)
            published += sums_M[0]
            null_B += sums_M[rng.integers(len(sums_M), size=n_draws)]
        p = (1 + np.count_nonzero(null_B >= published - 1e-9)) / (n_draws + 1)
        rejected += p <= level
    assert within(rejected / n, power(design, effect, 1.0, level=level), n)


def test_power_of_a_rank_is_that_of_counting():
    n, m, level = 4_000, 99, 0.05
    design = drawn_design(50, 1, m, rule="rank")
    rng = np.random.default_rng(4)
    counted = [
        (1 + np.count_nonzero(row[0, 1:] >= row[0, 0])) / (m + 1)
        for row in matrices(design, 0.3, n, rng)
    ]
    expected = power(design, 0.3, 1.0, level=level)
    assert within(np.mean(np.array(counted) <= level), expected, n)


def test_power_of_the_t_test_is_that_of_scipy():
    n, K, m, level = 3_000, 20, 9, 0.01
    design = drawn_design(100, K, m, rule="t")
    rng = np.random.default_rng(5)
    gains_NK = np.array(
        [x[:, 0] - x[:, 1:].mean(axis=1) for x in matrices(design, 0.4, n, rng)]
    )
    p = scipy.stats.ttest_1samp(gains_NK, 0, axis=1, alternative="greater").pvalue
    expected = power(design, 0.4, 1.0, level=level)
    assert within(np.mean(p <= level), expected, n)


@pytest.mark.parametrize("rule", ["sum", "rank", "t"])
def test_without_an_effect_the_power_is_the_level(rule):
    design = drawn_design(4_000, 1 if rule == "rank" else 400, 99, rule=rule)
    # The normal approximation of 400 strata is this close.
    assert power(design, 0.0, 1.0, level=0.05) == pytest.approx(0.05, rel=0.03)


def test_design_whose_floor_exceeds_the_level_has_no_power():
    assert power(drawn_design(10_000, 1, 998, rule="rank"), 9.0, 1.0) == 0
    assert power(drawn_design(10_000, 1, 999, rule="rank"), 9.0, 1.0) > 0.999
    assert power(reversal_design(54, 9), 100.0, 1.0, level=LEVEL) == 0
    assert power(reversal_design(60, 10), 100.0, 1.0, level=LEVEL) > 0.99
    assert detectable_effect(reversal_design(54, 9), 1.0) is None


@pytest.mark.parametrize("name", PLANNED)
def test_inverses_give_back_what_was_wanted(name):
    sd, effect, wanted = 2.0, 0.8, 0.8
    m = 1_999 if name == "permutation" else None

    def power_of(n):
        file = FilePlan(n_examples=n, example_tokens=20, context=256)
        return power(power_design(name, file, m), effect, sd)

    needed = smallest_enough(power_of, wanted, smallest=fewest_examples(name))
    assert power_of(needed) >= wanted > power_of(needed - 1)
    file = FilePlan(n_examples=needed, example_tokens=20, context=256)
    design = power_design(name, file, m)
    mde = detectable_effect(design, sd, wanted=wanted)
    assert mde <= effect
    assert power(design, mde, sd) == pytest.approx(wanted, abs=1e-6)
    assert sd_from(design, standard_error(design, sd)) == pytest.approx(sd)


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("n", [37, 200, 1_001])
def test_planned_strata_are_those_of_the_test_itself(name, n):
    file = FilePlan(n_examples=n, example_tokens=20, context=256)
    design = power_design(name, file, None)
    method = METHODS[name]
    if isinstance(method, PairMethod):
        n_strata = math.ceil(n / method.size)
        sizes = [len(part) for part in np.array_split(np.arange(n), n_strata)]
        runs = [runs_of(size, run_length(n)) for size in sizes]
        # Direction has a row of its power for each run, adjacency for each stratum.
        n_turned = sum(int((np.bincount(own) > 1).sum()) for own in runs)
        n_rows = n_strata if method.whole else n_turned
        assert design.n_strata == n_rows
        n_pairs = sum(
            size * (size - 1) if method.whole else needed_pairs(own).sum()
            for size, own in zip(sizes, runs, strict=True)
        )
        assert workload(name, file, design).n_targets == 20 * n_pairs
        return
    real = method.design(
        OrderFile(
            n_examples=n, n_ids=20 * n, context=256, seed=0, content_digest="sha256:00"
        ),
        method.default_orders,
    )
    assert (design.n_strata, design.n_orders) == (real.n_strata, real.n_orders)
    n_targets = 20 * np.count_nonzero(real.orders >= 0)
    assert workload(name, file, design).n_targets == n_targets


def test_more_orders_help_no_further_than_their_spread_hides():
    few, many = drawn_design(500, 50, 1), drawn_design(500, 50, 10**6)
    # The mean of m orders carries 1/m of the variance of one.
    assert standard_error(few, 1) / standard_error(many, 1) == pytest.approx(
        math.sqrt(2), rel=1e-5
    )
