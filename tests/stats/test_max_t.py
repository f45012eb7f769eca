"""Several statistics in one p-value: enumeration, size, ties, which one won."""

import itertools

import numpy as np
import pytest

from jaxcontam.stats.multiple import max_t, shared_sums


def test_pvalue_equals_its_definition_on_a_small_case():
    rng = np.random.default_rng(0)
    statistics = rng.normal(size=(3, 200)) * np.array([[1.0], [50.0], [0.01]])
    z = (statistics - statistics.mean(1, keepdims=True)) / statistics.std(
        1, keepdims=True
    )
    found = max_t(statistics)
    assert found.p_value == np.mean(z.max(axis=0) >= z[:, 0].max())
    assert found.winner == z[:, 0].argmax()
    assert found.p_adjusted[found.winner] == found.p_value == found.p_adjusted.min()


def test_winner_is_found_whatever_the_units():
    rng = np.random.default_rng(1)
    statistics = rng.normal(size=(3, 1000))
    statistics[1, 0] = 6.0
    statistics[1] = 1e-3 * statistics[1] - 40.0
    found = max_t(statistics)
    assert (found.winner, found.p_value) == (1, 1 / 1000)


def test_cost_of_a_second_statistic_is_less_than_a_factor_of_two_when_they_agree():
    rng = np.random.default_rng(3)
    first = rng.normal(size=10_000)
    first[0] = 2.5
    pair = np.stack([first, first + 0.1 * rng.normal(size=10_000)])
    pair[1, 0] = first[0]
    alone, both = max_t(pair[:1]).p_value, max_t(pair).p_value
    assert alone < both < 1.4 * alone


def test_constant_statistic_beside_a_strong_one_does_no_harm():
    statistics = np.zeros((2, 1000))
    statistics[0] = np.random.default_rng(4).normal(size=1000)
    statistics[0, 0] = 9.0
    assert max_t(statistics).p_value == 1 / 1000


def test_values_within_the_tolerance_count_against_detection():
    statistics = np.array([[1.0, 0.95, 0.0, -1.0]])
    assert max_t(statistics).p_value == 1 / 4
    assert max_t(statistics, tolerances=0.1).p_value == 2 / 4


def test_shared_sums_use_one_column_a_stratum_for_all_statistics():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(3, 2))
    sums = shared_sums(np.stack([values, -2 * values]), n_draws=500, seed=0)
    np.testing.assert_allclose(sums[1], -2 * sums[0], rtol=1e-12)
    assert sums[0, 0] == pytest.approx(values[:, 0].sum())
    possible = sorted(sum(choice) for choice in itertools.product(*values))
    np.testing.assert_allclose(np.unique(sums[0].round(12)), np.round(possible, 12))
