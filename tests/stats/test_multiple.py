"""Corrections for several tests, against values computed by hand."""

import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.multiple import (
    benjamini_hochberg,
    benjamini_yekutieli,
    calibrated_e,
    e_bh,
)


def test_by_adjusted_pvalues_as_computed_by_hand():
    # n = 3, 1 + 1/2 + 1/3 = 11/6: p times 3 * 11/6 / rank, made monotone from above.
    found = benjamini_yekutieli(np.array([0.04, 0.001, 0.03]))
    expected = [0.04 * 5.5 / 3, 0.001 * 5.5, 0.04 * 5.5 / 3]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_bh_agrees_with_scipy_on_tied_pvalues():
    p = (np.random.default_rng(0).uniform(size=40) ** 3).round(2)
    witness = scipy.stats.false_discovery_control(p, method="bh")
    np.testing.assert_allclose(benjamini_hochberg(p), witness, rtol=1e-12)


def test_by_agrees_with_scipy():
    p = np.random.default_rng(0).uniform(size=20) ** 3
    witness = scipy.stats.false_discovery_control(p, method="by")
    np.testing.assert_allclose(benjamini_yekutieli(p), witness, rtol=1e-12)


def test_ebh_levels_as_computed_by_hand():
    # Sorted 100, 30, 2, 0: n / (k e) is 0.04, 0.0667, 0.667, infinite.
    found = e_bh(np.array([2.0, 100.0, 0.0, 30.0]))
    np.testing.assert_allclose(found, [4 / 6, 0.04, 1.0, 4 / 60], rtol=1e-12)


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, 0.5])
def test_ebh_rejects_as_its_definition_does(level):
    rng = np.random.default_rng(1)
    for _ in range(50):
        e = np.exp(rng.normal(2, 2, size=12))
        ordered = np.sort(e)[::-1]
        k = max(
            (i for i in range(1, 13) if ordered[i - 1] >= 12 / (level * i)), default=0
        )
        rejected = set(np.argsort(-e)[:k])
        assert set(np.flatnonzero(e_bh(e) <= level)) == rejected


def test_ebh_controls_false_discoveries_of_dependent_evalues():
    # One shared normal: all e-values rise together. Every discovery here is false.
    rng = np.random.default_rng(2)
    n, level = 20_000, 0.05
    z = math.sqrt(0.9) * rng.normal(size=(n, 1)) + math.sqrt(0.1) * rng.normal(
        size=(n, 10)
    )
    e = np.exp(2 * z - 2)
    wrong = np.mean([(e_bh(row) <= level).any() for row in e])
    assert wrong <= level + 3.3 * math.sqrt(level * (1 - level) / n)


def test_infinite_evalue_is_rejected_at_every_level():
    np.testing.assert_array_equal(e_bh(np.array([np.inf, 0.5])), [0.0, 1.0])


def test_calibrated_pvalue_is_an_evalue():
    # Of p uniform on {1/n, ..., 1}: the mean of 1 / (2 sqrt(p)) is at most 1.
    mean = np.mean([calibrated_e(math.log10(i / 1000)) for i in range(1, 1001)])
    assert 0.9 < mean <= 1.0
    assert calibrated_e(-2.0) == pytest.approx(5.0)
    assert calibrated_e(-9000.0) == pytest.approx(1e300)


def test_positive_log_of_a_pvalue_is_refused():
    with pytest.raises(ValueError, match="log10_p must be at most 0"):
        calibrated_e(1)
