"""What the table of the power study says of made-up records."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from eval.power import estimates
from eval.power.estimates import dup50_rows, half_power_copies, monotone, power_table
from jaxcontam.stats.proportions import wilson_interval
from tests.support.power_records import record, row

pytestmark = pytest.mark.unoptimised


@pytest.mark.parametrize(("k", "n"), [(0, 40), (1, 40), (20, 40), (40, 40)])
def test_wilson_interval_is_scipys(k, n):
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    # The quantile is written with 7 digits.
    assert wilson_interval(k, n) == pytest.approx(tuple(expected), abs=1e-6)


def test_power_counts_pvalues_at_the_level_and_below():
    p_values = (1e-300, 0.001, 0.0011, 0.05, 0.3)
    records = [record(row("a", 4, p), seed=i) for i, p in enumerate(p_values)]
    deep, middle, mild = power_table(records)
    assert (deep.level, deep.n_rejected, deep.n_models) == (0.001, 2, 5)
    assert (middle.level, middle.n_rejected) == (0.01, 3)
    assert (mild.level, mild.n_rejected) == (0.05, 4)
    assert 10**deep.median_log10_p == pytest.approx(0.0011)


@pytest.mark.parametrize(
    ("power", "copies"),
    [
        ((0.0, 0.5, 1.0, 1.0), 1.0),
        ((0.0, 0.2, 0.8, 1.0), math.sqrt(2)),
        ((0.0, 1.0, 1.0, 1.0), 0.5),
        ((0.0, 0.1, 0.2, 0.49), math.inf),
        # The dip at 2 copies is pooled with the peak before it: .25 from 1 to 2.
        ((0.0, 0.4, 0.1, 0.75), 2 * math.sqrt(2)),
        ((0.5, 0.6, 0.7, 0.8), 0.0),
    ],
)
def test_copies_of_half_power(power, copies):
    (found,) = half_power_copies((0, 1, 2, 4), np.array([power]))
    assert found == pytest.approx(copies)


def test_rising_fit_is_isotonic_regression():
    rng = np.random.default_rng(1)
    values = rng.random((50, 7)).round(1)
    for values_C, fit in zip(values, monotone(values), strict=True):
        assert fit == pytest.approx(optimize.isotonic_regression(values_C).x)


def test_half_power_interval_covers_as_often_as_it_says(monkeypatch):
    """100 experiments of 60 models whose power is known at every count."""
    monkeypatch.setattr(estimates, "LEVELS", (0.05,))
    counts, truth = (1, 2, 4, 8), np.array([0.1, 0.35, 0.7, 0.95])
    (true_copies,) = half_power_copies(counts, truth[None])
    rng = np.random.default_rng(3)
    n_covered = 0
    for _ in range(100):
        p_MC = np.where(rng.random((60, 4)) < truth, 1e-9, 1.0)
        records = [
            record(*(row("a", n, p) for n, p in zip(counts, p_C, strict=True)))
            for p_C in p_MC
        ]
        found = dup50_rows(records)[0]
        n_covered += found.low <= true_copies <= found.high
    # 95 % less 3.3 standard errors of 100 experiments.
    assert n_covered / 100 > 0.95 - 3.3 * math.sqrt(0.95 * 0.05 / 100)


def test_half_power_that_no_count_reaches_is_above_the_most():
    records = [record(*(row("a", n, 1.0) for n in (0, 1, 2, 4))) for _ in range(5)]
    for found in dup50_rows(records):
        assert (found.copies, found.low, found.high, found.most) == (None,) * 3 + (4,)


def test_tests_without_a_set_of_each_count_have_no_half_power():
    rows = [row("a", n, 0.5) for n in (0, 1, 2, 4)]
    twice = record(*rows, row("a", 4, 0.5))
    assert dup50_rows([twice]) == []
    assert dup50_rows([record(*rows[1:])]) == []


def test_interval_of_half_power_is_said_of_forty_models_and_more():
    for n_models, expected in ((39, False), (40, True)):
        records = [record(*(row("a", n, 0.5) for n in range(4)))] * n_models
        assert {found.has_interval for found in dup50_rows(records)} == {expected}
