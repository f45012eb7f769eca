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


def test_documents_of_one_text_each_change_nothing():
    rng = np.random.default_rng(20)
    pool, scores = rng.normal(size=60).round(1), rng.normal(size=30).round(1)
    own = np.arange(60)
    np.testing.assert_array_equal(
        conformal_p_values(scores, pool, clusters_L=own),
        conformal_p_values(scores, pool),
    )
    assert threshold_at_fpr(pool, 0.1, clusters_L=own) == threshold_at_fpr(pool, 0.1)


def test_a_document_counts_by_the_share_of_its_texts_that_score_as_high():
    pool, clusters = np.array([1.0, 2, 3, 4, 5]), np.array([0, 0, 0, 1, 1])
    p = conformal_p_values(np.array([0.0, 3.0, 4.5, 6.0]), pool, clusters_L=clusters)
    assert p == pytest.approx([1, (1 + 1 / 3 + 1) / 3, (1 + 1 / 2) / 3, 1 / 3])


def test_a_text_lies_above_the_threshold_of_documents_where_its_p_value_allows_it():
    rng = np.random.default_rng(21)
    clusters = rng.integers(0, 25, size=120)
    pool = rng.normal(size=120).round(1)
    scores = rng.normal(size=300).round(1)
    n = len(np.unique(clusters))
    for fpr in (1.5 / n, 0.1, 0.3):
        found = threshold_at_fpr(pool, fpr, clusters_L=clusters)
        p = conformal_p_values(scores, pool, clusters_L=clusters)
        np.testing.assert_array_equal(scores > found.threshold, p <= fpr)
        assert found.rate <= fpr
        assert (found.low, found.high) == (None, None)


def test_p_values_hold_for_a_text_of_another_document():
    rng = np.random.default_rng(22)
    # Of texts alone, the one long document would decide.
    clusters = np.arange(20).repeat(np.r_[np.full(19, 2), 162])
    false = {True: 0, False: 0}
    for _ in range(1500):
        of_document = 3 * rng.normal(size=21)
        pool = of_document[clusters] + rng.normal(size=200)
        new = of_document[20:] + rng.normal(size=1)
        for knows in (True, False):
            p = conformal_p_values(new, pool, clusters_L=clusters if knows else None)
            false[knows] += int(p[0] <= 1 / 20)
    # Four standard errors of 1500 draws above the wanted rate.
    most = 1500 * (0.05 + 4 * np.sqrt(0.05 * 0.95 / 1500))
    assert false[True] <= most < false[False]
