"""Power where few boundaries carry the memory: against the tests of simulated files."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.orders.power_designs import PLANNED, FilePlan, power_design
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.power import drawn_design, pair_design, power, reversal_design
from jaxcontam.stats.randomisation import randomisation_test

SHARE = 0.1


def raised_pairs(rng, s, effect):
    """A normal pair matrix; one boundary in ten has ten times the effect."""
    pairs_SS = rng.standard_normal((s, s))
    carries_G = rng.random(s - 1) < SHARE
    pairs_SS[np.arange(s - 1), np.arange(1, s)] += effect / SHARE * carries_G
    return pairs_SS


def drawn_scores(rng, s, n_strata, m, effect):
    """(K, m + 1) scores of the published order and of random ones."""
    rows = []
    for _ in range(n_strata):
        orders_MS = np.array([np.arange(s), *(rng.permutation(s) for _ in range(m))])
        rows.append(path_sums(raised_pairs(rng, s, effect), orders_MS))
    return np.array(rows)


def refutes(found, promised, n):
    """Whether a share of n simulations is 3 standard errors below what was promised."""
    return found < promised - 3 * math.sqrt(promised * (1 - promised) / n)


def agrees(found, expected, n):
    """Whether it is within 3 standard errors."""
    return abs(found - expected) <= 3 * math.sqrt(expected * (1 - expected) / n)


def test_strata_of_drawn_orders():
    s, K, m, effect, level, n = 5, 20, 9, 0.55, 0.001, 250
    rng = np.random.default_rng(1)
    found = np.mean(
        [
            randomisation_test(
                drawn_scores(rng, s, K, m, effect),
                np.ones(K),
                relative_tolerance=1e-9,
                n_draws=0,
            ).p_value
            <= level
            for _ in range(n)
        ]
    )
    design = drawn_design(s * K, K, m)
    assert agrees(found, power(design, effect, 1.0, share=SHARE, level=level), n)
    assert refutes(found, power(design, effect, 1.0, level=level), n)


def test_all_orders_of_pairs():
    s, K, effect, level, n, n_draws = 6, 25, 0.35, 0.01, 200, 10_000
    orders_MS = np.array(list(itertools.permutations(range(s))))
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(n):
        published, null_B = 0.0, np.zeros(n_draws)
        for _ in range(K):
            centred_SS = double_centred(raised_pairs(rng, s, effect))
            sums_M = path_sums(centred_SS, orders_MS)
            published += sums_M[0]
            null_B += sums_M[rng.integers(len(sums_M), size=n_draws)]
        p = (1 + np.count_nonzero(null_B >= published - 1e-9)) / (n_draws + 1)
        rejected += p <= level
    design = pair_design(s * K, K)
    expected = power(design, effect, 1.0, share=SHARE, level=level)
    assert agrees(rejected / n, expected, n)
    assert refutes(rejected / n, power(design, effect, 1.0, level=level), n)


def test_reversed_strata():
    s, K, effect, level, n = 6, 60, 0.3, 0.001, 400
    rng = np.random.default_rng(3)
    signs_BK = rng.choice([-1.0, 1.0], size=(20_000, K))
    rejected = 0
    for _ in range(n):
        pairs = [raised_pairs(rng, s, effect) for _ in range(K)]
        forward_K = np.array([np.trace(one, 1) - np.trace(one, -1) for one in pairs])
        above = signs_BK @ forward_K >= forward_K.sum() - 1e-9
        rejected += np.mean(above) <= level
    design = reversal_design(s * K, K)
    expected = power(design, effect, 1.0, share=SHARE, level=level)
    assert agrees(rejected / n, expected, n)
    assert refutes(rejected / n, power(design, effect, 1.0, level=level), n)


def test_the_t_test_over_shards():
    s, K, m, effect, level, n = 10, 20, 9, 0.4, 0.01, 600
    rng = np.random.default_rng(4)
    scores_NKM = np.array([drawn_scores(rng, s, K, m, effect) for _ in range(n)])
    gains_NK = scores_NKM[..., 0] - scores_NKM[..., 1:].mean(axis=-1)
    p = scipy.stats.ttest_1samp(gains_NK, 0, axis=1, alternative="greater").pvalue
    design = drawn_design(s * K, K, m, rule="t")
    found = float(np.mean(p <= level))
    assert agrees(found, power(design, effect, 1.0, share=SHARE, level=level), n)
    assert refutes(found, power(design, effect, 1.0, level=level), n)


def test_the_rank_of_one_order():
    s, m, effect, level, n = 60, 99, 0.4, 0.05, 1_500
    rng = np.random.default_rng(5)
    scores_NM = np.array([drawn_scores(rng, s, 1, m, effect)[0] for _ in range(n)])
    n_above_N = np.count_nonzero(scores_NM[:, 1:] >= scores_NM[:, :1], axis=1)
    found = float(np.mean((1 + n_above_N) / (m + 1) <= level))
    design = drawn_design(s, 1, m, rule="rank")
    assert agrees(found, power(design, effect, 1.0, share=SHARE, level=level), n)
    assert refutes(found, power(design, effect, 1.0, level=level), n)


@pytest.mark.parametrize("name", PLANNED)
def test_where_every_boundary_carries_it_the_power_is_the_planned_one(name):
    file = FilePlan(n_examples=400, example_tokens=20, context=256)
    design = power_design(name, file, 1_999 if name == "permutation" else None)
    evenly = power(design, 0.4, 2.0)
    assert 0.05 < evenly < 0.999
    # The law of the mixture tends to it.
    nearly = power(design, 0.4, 2.0, share=1 - 1e-9)
    assert nearly == pytest.approx(evenly, abs=1e-6)


def test_no_share_and_no_floor_that_allows_the_level():
    with pytest.raises(ValueError, match="share must be in"):
        power(reversal_design(60, 10), 1.0, 1.0, share=0.0)
    assert power(reversal_design(54, 9), 100.0, 1.0, share=SHARE) == 0
