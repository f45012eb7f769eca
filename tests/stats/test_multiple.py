"""Corrections for several tests, against values computed by hand."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.multiple import (
    benjamini_hochberg,
    benjamini_yekutieli,
    calibrated_e,
    e_bh,
    fisher,
    holm,
    max_t,
    shared_sums,
)


@pytest.mark.parametrize(
    ("adjust", "method"), [(benjamini_hochberg, "bh"), (benjamini_yekutieli, "by")]
)
def test_adjusted_pvalues_are_those_of_scipy(adjust, method):
    p = (np.random.default_rng(0).uniform(size=40) ** 3).round(2)
    witness = scipy.stats.false_discovery_control(p, method=method)
    np.testing.assert_allclose(adjust(p), witness, rtol=1e-12)


def test_holm_multiplies_by_the_number_of_hypotheses_left_up_to_one():
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_array_equal(holm(np.array([0.7, 0.9])), [1.0, 1.0])


def test_fishers_p_of_two_is_the_chance_of_so_small_a_product():
    # Of two uniform numbers: P(U V <= q) = q (1 - log q). One alone is itself.
    for first, second in ((0.2, 0.3), (1.0, 0.01), (1.0, 1.0), (1e-9, 0.5)):
        q = first * second
        expected = q * (1 - math.log(q))
        assert fisher(np.array([first, second])) == pytest.approx(expected, rel=1e-12)
    assert fisher(np.array([0.37])) == pytest.approx(0.37, rel=1e-12)
    many = np.random.default_rng(0).uniform(size=43)
    witness = scipy.stats.combine_pvalues(many, method="fisher").pvalue
    assert fisher(many) == pytest.approx(witness, rel=1e-12)
    # A p that underflowed is small, not nothing.
    assert 0 < fisher(np.array([0.0, 1.0])) < 1e-300


@pytest.mark.parametrize("p_values", [[], [1.1], [-0.1, 0.5], [0.5, math.nan]])
def test_fishers_p_is_of_numbers_between_0_and_1(p_values):
    with pytest.raises(ValueError, match=r"p_values must be some numbers in \[0, 1\]"):
        fisher(np.array(p_values))


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, 0.5])
def test_ebh_rejects_as_its_definition_does(level):
    rng = np.random.default_rng(1)
    for _ in range(50):
        e = np.array([*np.exp(rng.normal(2, 2, size=10)), 0.0, np.inf])
        ordered = np.sort(e)[::-1]
        k = max(i for i in range(1, 13) if ordered[i - 1] >= 12 / (level * i))
        rejected = set(np.argsort(-e)[:k])
        assert set(np.flatnonzero(e_bh(e) <= level)) == rejected


def test_calibrated_pvalue_is_an_evalue():
    # Of p uniform on {1/n, ..., 1}: the mean of 1 / (2 sqrt(p)) is at most 1.
    mean = np.mean([calibrated_e(math.log10(i / 1000)) for i in range(1, 1001)])
    assert 0.9 < mean <= 1.0
    assert calibrated_e(-2.0) == pytest.approx(5.0)
    assert calibrated_e(-9000.0) == pytest.approx(1e300)
    with pytest.raises(ValueError, match="log10_p must be at most 0"):
        calibrated_e(1)


def test_pvalue_equals_its_definition_on_a_small_case():
    rng = np.random.default_rng(0)
    statistics = rng.normal(size=(3, 200)) * np.array([[1.0], [50.0], [0.01]])
    z = scipy.stats.zscore(statistics, axis=1)
    found = max_t(statistics)
    assert found.p_value == np.mean(z.max(axis=0) >= z[:, 0].max())
    assert found.winner == z[:, 0].argmax()
    assert found.p_adjusted[found.winner] == found.p_value == found.p_adjusted.min()


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
