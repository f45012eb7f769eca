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
from jaxcontam.stats.randomisation import normal_tail, redrawn_sums
from jaxcontam.stats.rows import flat_rows


def differences(scores_KM):
    return flat_rows(scores_KM - scores_KM[:, :1])


def one_best(K, columns, z):
    """Rows in each of which one column is better, and log10 of the exact p-value.

    The published one is better in n of them, z standard deviations above chance: p is
    the binomial probability of n or more.
    """
    chance = 1 / columns
    n = round(K * chance + z * (K * chance * (1 - chance)) ** 0.5)
    scores_KM = np.zeros((K, columns))
    scores_KM[:n, 0] = scores_KM[n:, 1] = 1.0
    log_mass = scipy.stats.binom.logpmf(np.arange(n, K + 1), K, chance)
    return scores_KM, float(scipy.special.logsumexp(log_mass)) / math.log(10)


@pytest.mark.parametrize("unit", [1.0, 1e90, 1e-90])
@pytest.mark.parametrize("z", [-3.0, 0.0, 1.0, 3.0, 10.0, 30.0, 200.0])
def test_bracket_holds_the_binomial_tail(z, unit):
    scores_KM, exact = one_best(90_000, 2, z)
    tail = normal_tail(differences(unit * scores_KM), 0.0)
    assert tail.log10_lower <= exact <= tail.log10_upper
    # 0.56 / 300, and under a tilt twice that, beside a tail of 0.4 / z; less than 2 z
    # hundredths with the half step of a binomial.
    assert tail.log10_upper <= exact + 0.01 * (1 + max(0.0, 2 * z)) / math.log(10)


def test_p_does_not_jump_where_the_grid_ends(monkeypatch):
    """Rows of ten real numbers, z = 4: below the limit the grid alone gave 2.5 times p.

    The normal tail is 3.2e-5.
    """
    K = 8192
    scores_KM = np.random.default_rng(2).normal(size=(K, 10))
    scores_KM -= scores_KM.mean(axis=1, keepdims=True)
    sd = (scores_KM**2).mean(axis=1).sum() ** 0.5
    scores_KM[:, 0] += (4 * sd - scores_KM[:, 0].sum()) / K * 10 / 9

    def result():
        return randomisation.randomisation_test(scores_KM, np.ones(K), n_draws=0)

    with_grid = result()
    monkeypatch.setattr(randomisation, "MANY", K - 1)
    without = result()
    assert with_grid.p_lower >= without.p_lower
    assert without.p_value / 1.01 < with_grid.p_value <= without.p_value


@pytest.mark.parametrize(("spread", "tolerance"), [(0.0, 0.0), (1e-310, 10.0)])
def test_rows_that_are_tied_give_pvalue_one(spread, tolerance):
    scores_KM = spread * np.eye(9, 3)
    tail = normal_tail(differences(scores_KM), tolerance)
    assert (tail.log10_lower, tail.log10_upper) == (0.0, 0.0)


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
