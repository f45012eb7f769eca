"""Paired tests against enumeration, the exact law, and simulation."""

import itertools

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.paired import (
    paired_bootstrap_p,
    sign_flip_test,
    unpaired_bootstrap_p,
)
from jaxcontam.stats.proportions import rate_test


def test_thirds_tie_although_floats_differ():
    # 1/3 + 1/3 - 2/3 is 0, though no float says so.
    g, h = np.array([1 / 3, 1 / 3, 0]), np.array([0, 0, 2 / 3])
    # Five of eight choices of signs give 0 or more.
    assert sign_flip_test(g, h).p_value == 5 / 8


def test_paired_bootstrap_tends_to_the_share_over_all_resamples():
    g, h = np.array([0.31, 0.2, 0.5, 0.1]), np.array([0.2, 0.25, 0.4, 0.18])
    d = np.rint(100 * (g - h)).astype(int)
    every = np.array(list(itertools.product(range(4), repeat=4)))
    exact = np.mean(d[every].sum(axis=1) <= 0)
    found = paired_bootstrap_p(g, h, n_resamples=40_000, seed=1)
    # 5 standard errors at 40,000 resamples.
    assert abs(found - exact) < 5 * np.sqrt(exact * (1 - exact) / 40_000)
    a, b = (np.rint(100 * x).astype(int)[every].sum(axis=1) for x in (g, h))
    exact = np.mean(a[:, None] <= b[None, :])
    found = unpaired_bootstrap_p(g, h, n_resamples=40_000, seed=1)
    assert abs(found - exact) < 5 * np.sqrt(exact * (1 - exact) / 40_000)


def test_bootstrap_never_claims_a_chance_of_zero_and_rounds_as_published():
    assert paired_bootstrap_p(np.ones(5), np.zeros(5)) == 1 / 10_001
    assert paired_bootstrap_p(np.ones(5), np.zeros(5), n_resamples=99) == 1 / 100
    # Both are .30.
    assert paired_bootstrap_p(np.full(5, 0.301), np.full(5, 0.299)) == 1


@pytest.mark.parametrize(
    "counts", [(5, 50, 0, 50), (3, 10, 0, 10), (4, 7, 1, 12), (0, 5, 0, 5)]
)
def test_fisher_is_the_tail_of_the_hypergeometric_law(counts):
    found, n, control, n_control = counts
    law = scipy.stats.hypergeom(n + n_control, found + control, n)
    tested = rate_test(*counts)
    assert tested.fisher == pytest.approx(law.sf(found - 1), rel=1e-9)
    assert 0 < tested.barnard <= 1


def test_barnard_is_the_worst_case_over_a_common_rate():
    n, m, x, y = 10, 10, 3, 0
    rates = np.linspace(0.001, 0.999, 999)

    def pooled(a, b):
        p = (a + b) / (n + m)
        spread = np.sqrt(p * (1 - p) * (1 / n + 1 / m))
        return (a / n - b / m) / np.where(spread > 0, spread, 1)

    a, b = np.meshgrid(np.arange(n + 1), np.arange(m + 1), indexing="ij")
    is_extreme = pooled(a, b) >= pooled(x, y) - 1e-12
    tails = [
        (scipy.stats.binom.pmf(a, n, p) * scipy.stats.binom.pmf(b, m, p))[
            is_extreme
        ].sum()
        for p in rates
    ]
    # The grid's steps of 0.001 miss the maximum by a little.
    assert rate_test(x, n, y, m).barnard == pytest.approx(max(tails), rel=1e-3)


def test_a_rate_below_the_controls_is_no_evidence():
    found = rate_test(0, 20, 5, 20)
    assert found.fisher == pytest.approx(1)
    assert found.barnard > 0.9
    with pytest.raises(ValueError, match="counts"):
        rate_test(3, 2, 0, 1)
    assert rate_test(600, 2000, 0, 2000).barnard is None
