"""Conformal p-values and thresholds: by hand, by simulation."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxcontam.stats.conformal import conformal_p_values, threshold_at_fpr
from jaxcontam.stats.multiple import benjamini_hochberg


def test_pvalues_count_the_pool_as_by_hand():
    pool = np.array([3.0, 1.0, 2.0, 2.0])
    scores = np.array([4.0, 3.0, 2.0, 0.0, np.nan])
    found = conformal_p_values(scores, pool)
    np.testing.assert_allclose(found, [1 / 5, 2 / 5, 4 / 5, 1.0, np.nan])


def test_constant_scorer_gives_pvalue_one():
    np.testing.assert_array_equal(conformal_p_values(np.ones(3), np.ones(9)), 1.0)


@pytest.mark.parametrize("n_pool", [19, 20, 99])
def test_above_the_threshold_is_where_the_pvalue_is_small_enough(n_pool):
    rng = np.random.default_rng(n_pool)
    pool, scores = rng.normal(size=n_pool).round(1), rng.normal(size=500).round(1)
    found = threshold_at_fpr(pool, 0.05)
    small = conformal_p_values(scores, pool) <= 0.05 + 1e-12
    np.testing.assert_array_equal(scores > found.threshold, small)


def test_pvalues_of_nonmembers_are_uniform_on_average_over_pools():
    rng = np.random.default_rng(0)
    p = np.concatenate(
        [
            conformal_p_values(rng.normal(size=1), rng.normal(size=19))
            for _ in range(4000)
        ]
    )
    for level in (0.05, 0.25, 0.5):
        # Exact at multiples of 1 / 20; 4 standard errors of 4,000 draws.
        se = np.sqrt(level * (1 - level) / 4000)
        assert abs((p <= level + 1e-12).mean() - level) <= 4 * se


def test_interval_holds_the_rate_of_the_threshold():
    rng = np.random.default_rng(1)
    rates, held = [], 0
    for _ in range(1000):
        found = threshold_at_fpr(rng.normal(size=100), 0.05)
        rate = norm.sf(found.threshold)
        rates.append(rate)
        held += found.low <= rate <= found.high
    # 3 standard errors of 1,000 draws: 0.7 % each.
    assert held / 1000 == pytest.approx(0.95, abs=0.021)
    # The rate is 5 / 101 on average; its spread over pools is 0.0215.
    assert np.mean(rates) == pytest.approx(5 / 101, abs=4 * 0.0215 / np.sqrt(1000))


def test_discoveries_of_bh_are_false_no_more_often_than_asked():
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(400):
        scores = np.concatenate([rng.normal(size=50) + 3, rng.normal(size=150)])
        p = conformal_p_values(scores, rng.normal(size=300))
        found = benjamini_hochberg(p) <= 0.2
        shares.append(found[50:].sum() / max(1, found.sum()))
    # 0.2 times the share of non-members, 0.75, is the bound; 4 standard errors.
    assert np.mean(shares) <= 0.15 + 4 * np.std(shares) / np.sqrt(400)


def test_a_pool_that_is_too_small_is_refused_with_the_number_it_needs():
    with pytest.raises(
        ValueError, match=r"at least 19 scores for a rate of 0\.05, got 18"
    ):
        threshold_at_fpr(np.arange(18.0), 0.05)
    assert threshold_at_fpr(np.arange(19.0), 0.05).threshold == 18


@pytest.mark.parametrize("pool", [np.empty(0), np.array([0.0, np.inf])])
def test_bad_pools_are_refused(pool):
    with pytest.raises(ValueError, match="pool must"):
        conformal_p_values(np.zeros(2), pool)
