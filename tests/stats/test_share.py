"""The share of a file that was seen: by hand, by simulation."""

import itertools

import numpy as np
import pytest

from jaxcontam.stats.conformal import LEVEL, share_seen


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


@pytest.mark.parametrize("n_seen", [0, 10, 25, 50])
def test_bound_is_below_the_share_as_often_as_it_says_and_the_estimate_near(n_seen):
    rng, n, trials = np.random.default_rng(n_seen), 100, 300
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


@pytest.mark.parametrize(
    ("scores", "pool", "words"),
    [([], [1.0], "empty, got 0 and 1"), ([1.0], [], "1 and 0")],
)
def test_bad_scores_are_refused(scores, pool, words):
    with pytest.raises(ValueError, match=words):
        share_seen(np.array(scores), np.array(pool, float))
