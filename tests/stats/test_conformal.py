"""Conformal p-values and thresholds: by hand, by simulation."""

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from jaxcontam.stats.conformal import (
    LEVEL,
    conformal_p_values,
    share_seen,
    threshold_at_fpr,
)


def test_pvalues_count_the_pool_as_by_hand():
    pool = np.array([3.0, 1.0, 2.0, 2.0])
    scores = np.array([4.0, 3.0, 2.0, 0.0, np.nan])
    found = conformal_p_values(scores, pool)
    np.testing.assert_allclose(found, [1 / 5, 2 / 5, 4 / 5, 1.0, np.nan])


@pytest.mark.parametrize("n_documents", [None, 1, 5])
@pytest.mark.parametrize(("n_pool", "fpr"), [(19, 0.05), (20, 0.05), (99, 0.3)])
def test_above_the_threshold_is_where_the_pvalue_allows_it(n_pool, fpr, n_documents):
    rng = np.random.default_rng(n_pool)
    copies = n_documents or 1
    pool = rng.normal(size=n_pool * copies).round(1)
    scores = rng.normal(size=500).round(1)
    own = None if n_documents is None else np.arange(n_pool).repeat(copies)
    found = threshold_at_fpr(pool, fpr, clusters_L=own)
    p = conformal_p_values(scores, pool, clusters_L=own)
    np.testing.assert_array_equal(scores > found.threshold, p <= fpr + 1e-12)
    assert found.rate <= fpr
    if n_documents == 1:
        # Documents of one text each change nothing.
        assert found == threshold_at_fpr(pool, fpr)
        np.testing.assert_array_equal(p, conformal_p_values(scores, pool))
    assert (found.low is None) == (copies > 1)


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


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: threshold_at_fpr(np.arange(18.0), 0.05),
            r"at least 19 scores for a rate of 0\.05, got 18",
        ),
        (lambda: threshold_at_fpr(np.arange(99.0), 0.0), r"in \(0, 1\), got 0"),
        (lambda: threshold_at_fpr(np.arange(99.0), 1.0), r"in \(0, 1\), got 1"),
        (lambda: share_seen(np.array([]), np.ones(1)), "empty, got 0 and 1"),
        (lambda: share_seen(np.ones(1), np.array([])), "empty, got 1 and 0"),
    ],
)
def test_too_few_scores_or_an_impossible_rate_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
    assert threshold_at_fpr(np.arange(19.0), 0.05).threshold == 18


def test_a_document_counts_by_the_share_of_its_texts_that_score_as_high():
    pool, clusters = np.array([1.0, 2, 3, 4, 5]), np.array([0, 0, 0, 1, 1])
    p = conformal_p_values(np.array([0.0, 3.0, 4.5, 6.0]), pool, clusters_L=clusters)
    assert p == pytest.approx([1, (1 + 1 / 3 + 1) / 3, (1 + 1 / 2) / 3, 1 / 3])


def test_count_of_unseen_texts_above_the_pool_is_that_of_all_orders():
    # 6 unseen texts and a pool of 2, whose one depth is 1: all 28 places of the pool.
    held = [
        share_seen(np.delete(np.arange(8.0), pool), np.array(pool, float))[0] == 0
        for pool in itertools.combinations(range(8), 2)
    ]
    # All 6 above has a chance of 1 in 28, which is below .05; 5 or more of 3 in 28.
    assert np.mean(held) == 27 / 28


def test_texts_that_all_stand_above_a_large_pool_were_nearly_all_seen():
    # Fifteen non-members: 4 depths, 1 unseen text above all has a chance of 1 in 16.
    low, estimate = share_seen(np.arange(50.0) + 15, np.arange(15.0))
    assert estimate == 1.0
    # The smallest m whose chance of all above all, 1 / C(m + 15, 15), is below .05 / 4.
    assert low == 49 / 50


def test_bound_is_below_the_share_as_often_as_it_says_and_the_estimate_near():
    rng, n, n_seen, trials = np.random.default_rng(25), 100, 25, 300
    found = []
    for _ in range(trials):
        scores = rng.normal(size=n).round(1)
        scores[:n_seen] += 4
        found.append(share_seen(scores, rng.normal(size=150).round(1)))
    lows, estimates = zip(*found, strict=True)
    above = np.mean([low > n_seen / n + 1e-12 for low in lows])
    # 3 standard errors of 300 trials: .038.
    assert above <= 1 - LEVEL + 0.038
    # Rounded scores have ties, which lower both by a few points.
    assert np.mean(lows) >= n_seen / n - 0.08
    spread = np.std(estimates) / np.sqrt(trials)
    assert np.mean(estimates) == pytest.approx(n_seen / n, abs=0.05 + 4 * spread)
