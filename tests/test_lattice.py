"""`lattice_tail` against full enumeration and closed forms."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxcontam.stats import lattice
from jaxcontam.stats.lattice import lattice_tail


def differences(scores_KM):
    return scores_KM - scores_KM[:, :1]


def enumerated_log10(scores_KM, tolerance):
    """Share of all column choices whose sum is at least the published one."""
    sums = [sum(choice) for choice in itertools.product(*differences(scores_KM))]
    return math.log10(np.mean(np.array(sums) >= -tolerance))


def chernoff_log10(scores_KM):
    """Closed-form upper bound: the least exponent over a grid of tilts."""
    gaps_KM = differences(scores_KM)
    n_columns = gaps_KM.shape[1]
    exponents = [
        scipy.special.logsumexp(t * gaps_KM, axis=1, b=1 / n_columns).sum()
        for t in np.geomspace(1e-3, 30, 99)
    ]
    return min(0.0, min(exponents) / math.log(10))


@pytest.fixture
def grid_only(monkeypatch):
    """Small matrices go through the grid too, not through enumeration."""
    monkeypatch.setattr(lattice, "_ENUMERABLE", 1)
    monkeypatch.setattr(lattice, "_MERGED", 1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("n_strata", "n_columns"), [(1, 9), (4, 5), (6, 4), (9, 2)])
def test_bracket_holds_the_enumerated_value(grid_only, seed, n_strata, n_columns):
    rng = np.random.default_rng(seed)
    scores_KM = rng.normal(size=(n_strata, n_columns)) * rng.lognormal(
        size=(n_strata, 1)
    )
    scores_KM[:, 0] += 0.8 * rng.random()
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = enumerated_log10(scores_KM, 1e-9)
    assert tail.log10_lower <= exact + 1e-12
    assert exact <= tail.log10_upper + 1e-12
    assert tail.log10_upper <= chernoff_log10(scores_KM) + 0.01
    # One cell is sd / 2000, and each of K roundings moves the sum by at most one.
    assert tail.log10_upper - tail.log10_lower < 0.05


@pytest.mark.parametrize("seed", range(5))
def test_ties_of_integer_scores_are_counted_exactly(grid_only, seed):
    rng = np.random.default_rng(seed)
    scores_KM = rng.integers(0, 3, size=(6, 4)).astype(float)
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = enumerated_log10(scores_KM, 1e-9)
    assert tail.log10_lower <= exact + 1e-9 <= tail.log10_upper + 2e-9


@pytest.mark.parametrize(("n_strata", "n_heads"), [(200, 150), (300, 300), (60, 40)])
def test_sign_test_equals_the_binomial_tail_at_any_depth(n_strata, n_heads):
    signs = np.where(np.arange(n_strata) < n_heads, 1.0, -1.0)
    scores_KM = np.stack([signs, -signs], axis=1)
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = scipy.stats.binom.logsf(n_heads - 1, n_strata, 0.5) / math.log(10)
    assert tail.log10_lower <= exact + 1e-9
    assert tail.log10_upper == pytest.approx(exact, abs=1e-9)


def test_four_hundred_strata_reach_a_floor_below_the_smallest_float():
    rng = np.random.default_rng(0)
    scores_KM = rng.normal(size=(400, 10))
    scores_KM[:, 0] = scores_KM.max(axis=1) + 1.0
    tail = lattice_tail(differences(scores_KM), 1e-9)
    assert tail.log10_upper == pytest.approx(-400.0, abs=1e-9)


def test_four_hundred_strata_near_the_floor_match_a_hand_count():
    # Every row is (1, 0 x 9), and five rows have lost: P(at least 395 of 400 wins).
    scores_KM = np.zeros((400, 10))
    scores_KM[:, 0] = 1.0
    scores_KM[:5, :2] = [[0.0, 1.0]]
    tail = lattice_tail(differences(scores_KM), 1e-9)
    # scipy's binom.logsf gives -inf this deep.
    terms = [math.comb(400, lost) * 9**lost for lost in range(6)]
    exact = math.log10(sum(terms)) - 400
    assert exact < -380
    assert tail.log10_upper == pytest.approx(exact, abs=1e-6)


def test_constant_rows_give_one():
    tail = lattice_tail(np.zeros((7, 5)), 1e-9)
    assert (tail.log10_upper, tail.log10_lower) == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_small_matrices_are_counted_one_by_one(seed):
    scores_KM = np.random.default_rng(seed).normal(size=(5, 5))
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = enumerated_log10(scores_KM, 1e-9)
    assert tail.log10_lower == tail.log10_upper == pytest.approx(exact, abs=1e-12)


def test_ties_within_the_tolerance_count_against_detection():
    scores_KM = np.array([[1.0, 1.0 - 1e-5, 0.0]] * 3)
    strict = lattice_tail(differences(scores_KM), 1e-9)
    tolerant = lattice_tail(differences(scores_KM), 1e-4)
    assert strict.log10_upper == pytest.approx(math.log10(1 / 27), abs=1e-9)
    assert tolerant.log10_upper == pytest.approx(math.log10(8 / 27), abs=1e-9)


def test_published_lowest_everywhere_gives_one():
    scores_KM = np.tile([-5.0, 0.0, 1.0, 2.0], (8, 1))
    assert lattice_tail(differences(scores_KM), 1e-9).log10_upper == 0.0


@pytest.mark.parametrize("n_columns", [400, 10_001])
def test_many_columns_agree_with_the_normal_tail(n_columns):
    rng = np.random.default_rng(3)
    scores_KM = rng.normal(size=(40, n_columns))
    scores_KM[:, 0] = 0.5
    tail = lattice_tail(differences(scores_KM), 1e-9)
    sd = math.sqrt(scores_KM.var(axis=1).sum())
    normal = scipy.stats.norm.logsf((20.0 - scores_KM.mean(axis=1).sum()) / sd)
    # The sum of 40 near-normal rows at 3 sd: the normal tail is good to a few percent.
    assert tail.log10_upper == pytest.approx(normal / math.log(10), abs=0.05)
    assert tail.log10_upper - tail.log10_lower < 0.05


@pytest.mark.parametrize(
    ("values", "tolerance", "message"),
    [
        ([[0.0, np.nan]], 0.0, "differences must be finite"),
        ([[0.0, 1.0]], -1.0, "tolerance must be at least 0, got -1.0"),
    ],
)
def test_bad_arguments_are_named(values, tolerance, message):
    with pytest.raises(ValueError, match=message):
        lattice_tail(np.array(values), tolerance)


def test_bound_holds_where_almost_all_mass_is_cut_off():
    # A tolerance of many cells caps the tilt; what is cut must then count in full.
    scores_KM = np.zeros((60, 10))
    scores_KM[:, 0] = 1.0
    for tolerance in (1e-9, 0.5, 3.5):
        tail = lattice_tail(differences(scores_KM), tolerance)
        lost = math.floor(tolerance)
        terms = [math.comb(60, k) * 9**k for k in range(lost + 1)]
        exact = math.log10(sum(terms)) - 60
        assert tail.log10_lower <= exact + 1e-9
        assert exact - 1e-9 <= tail.log10_upper <= exact + 0.01
