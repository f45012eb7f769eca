"""`normal_tail` against the binomial law and the grid.

Dimension key
    K  rows (strata)
    M  columns
"""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxcontam.stats import randomisation
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.normal_tail import normal_tail
from jaxcontam.stats.randomisation import redrawn_sums
from jaxcontam.stats.rows import flat_rows


def differences(scores_KM):
    return flat_rows(scores_KM - scores_KM[:, :1])


@pytest.mark.parametrize("unit", [1.0, 1e90, 1e-90])
@pytest.mark.parametrize("z", [-3.0, 0.0, 1.0, 3.0, 10.0, 30.0, 200.0])
def test_bracket_holds_the_binomial_tail(z, unit):
    """Of K rows of two columns the published one is better in n: p is binomial."""
    K = 90_000
    n = round(K / 2 + z * K**0.5 / 2)
    scores_KM = np.zeros((K, 2))
    scores_KM[:n, 0] = scores_KM[n:, 1] = 1.0
    log_mass = scipy.stats.binom.logpmf(np.arange(n, K + 1), K, 0.5)
    exact = float(scipy.special.logsumexp(log_mass)) / math.log(10)
    tail = normal_tail(differences(unit * scores_KM), 0.0)
    assert tail.log10_lower <= exact <= tail.log10_upper
    # 0.56 / 300, and under a tilt twice that, beside a tail of 0.4 / z; less than 2 z
    # hundredths with the half step of a binomial.
    assert tail.log10_upper <= exact + 0.01 * (1 + max(0.0, 2 * z)) / math.log(10)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("columns", [3, 10])
def test_bracket_meets_that_of_the_grid(shift, columns):
    rng = np.random.default_rng(3)
    scores_KM = rng.integers(-4, 5, (2000, columns)) * rng.integers(1, 4, (2000, 1))
    scores_KM = scores_KM.astype(float)
    scores_KM[:, 0] += np.round(shift * rng.exponential(size=2000))
    tail = normal_tail(differences(scores_KM), 0.5)
    grid = lattice_tail(differences(scores_KM).split(), 0.5)
    assert tail.log10_lower <= grid.log10_upper + 1e-9
    assert tail.log10_upper >= grid.log10_lower - 1e-9
    assert tail.log10_upper < grid.log10_upper + 0.5


def test_published_best_everywhere_costs_no_more_than_the_floor():
    scores_KM = np.random.default_rng(4).normal(size=(5000, 4))
    scores_KM[:, 0] = 9.0
    tail = normal_tail(differences(scores_KM), 1e-9)
    assert tail.log10_upper == pytest.approx(-5000 * math.log10(4), abs=1e-3)


def test_sum_that_few_rows_make_up_is_left_to_the_grid():
    scores_KM = np.random.default_rng(5).normal(size=(5000, 4))
    scores_KM[0] *= 1e4
    assert normal_tail(differences(scores_KM), 0.0) is None


def test_blocks_of_rows_keep_the_law_of_the_sum(monkeypatch):
    scores_KM = np.random.default_rng(6).normal(size=(4096, 5))
    scores_KM -= scores_KM.mean(axis=1, keepdims=True)
    monkeypatch.setattr(randomisation, "MANY", 4000)
    monkeypatch.setattr(randomisation, "_BLOCKS", 1024)
    n = 20_000
    sums = redrawn_sums(flat_rows(scores_KM), n_draws=n, seed=1)
    sd = (scores_KM**2).mean(axis=1).sum() ** 0.5
    # Four standard errors, of n draws and of 4 * 1024 turned columns.
    assert abs(sums.mean()) < 4 * sd / n**0.5
    assert sums.std() == pytest.approx(sd, rel=4 / (2 * 4 * 1024) ** 0.5)
    assert scipy.stats.kstest(sums / sums.std(), "norm").pvalue > 1e-3
