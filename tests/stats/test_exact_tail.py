"""`lattice_tail` against full enumeration and closed forms."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxcontam.stats import exact_tail
from jaxcontam.stats.exact_tail import lattice_tail


def differences(scores_KM):
    return scores_KM - scores_KM[:, :1]


def enumerated_log10(scores_KM, tolerance):
    """Share of all column choices whose sum is at least the published one."""
    gaps = [row - row[0] for row in scores_KM]
    sums = [sum(choice) for choice in itertools.product(*gaps)]
    return math.log10(np.mean(np.array(sums) >= -tolerance))


def chernoff_log10(scores_KM):
    """Closed-form upper bound: the least exponent over a grid of tilts."""
    gaps = [row - row[0] for row in scores_KM]
    tilts = np.geomspace(1e-3, 30, 99)[:, None]
    exponents = sum(
        scipy.special.logsumexp(tilts * row, axis=1) - math.log(len(row))
        for row in gaps
    )
    return min(0.0, float(exponents.min()) / math.log(10))


@pytest.fixture
def grid_only(monkeypatch):
    """Small matrices go through the grid too, not through enumeration."""
    monkeypatch.setattr(exact_tail, "_ENUMERABLE", 1)
    monkeypatch.setattr(exact_tail, "_MERGED", 1)


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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", [1.0, 1 / 3])
def test_whole_numbers_of_any_unit_are_held_at_any_depth(seed, unit):
    """Far too many combinations to enumerate: counted by integer convolution."""
    rng = np.random.default_rng(seed)
    scores = [rng.integers(-40, 41, size=m) for m in rng.integers(5, 15, size=50)]
    for row in scores:
        row[0] = max(row[0], 12 * seed)
    gaps = [row - row[0] for row in scores]
    counts, low = np.array([1], dtype=object), 0
    for row in gaps:
        steps = np.bincount(row - row.min()).astype(object)
        counts, low = np.convolve(counts, steps), low + int(row.min())
    n_all = math.prod(len(row) for row in gaps)
    exact = (math.log(sum(counts[-low:])) - math.log(n_all)) / math.log(10)
    tail = lattice_tail((unit * row for row in gaps), 1e-9)
    assert tail.log10_lower <= exact + 1e-9
    # The upper end has room for rounding up only below the next whole number.
    assert exact - 1e-12 <= tail.log10_upper
    assert tail.log10_upper == pytest.approx(exact, abs=1e-6)
    if unit == 1.0:
        assert tail.log10_lower == pytest.approx(exact, abs=1e-6)


def test_bracket_is_narrow_where_it_is_deep_and_rows_are_many():
    rng = np.random.default_rng(0)
    for n_strata, n_columns, shift in [(40, 2000, 2.5), (400, 10, 1.0), (1500, 2, 0.4)]:
        scores = rng.normal(size=(n_strata, n_columns))
        scores[:, 0] = shift
        tail = lattice_tail(differences(scores), 1e-9)
        assert tail.log10_upper < -20
        # A hundredth of a decade is aimed at; many rows get a coarser grid.
        assert tail.log10_upper - tail.log10_lower < 0.1


@pytest.mark.parametrize("n_rows", [5, 60])
def test_rows_from_a_generator_equal_rows_of_a_matrix(n_rows):
    scores_KM = np.random.default_rng(1).normal(size=(n_rows, 6))
    whole = lattice_tail(differences(scores_KM), 1e-9)
    assert whole == lattice_tail((row for row in differences(scores_KM)), 1e-9)
    assert whole == lattice_tail([row.tolist() for row in differences(scores_KM)], 1e-9)


def test_rows_that_stream_by_are_not_kept():
    rng = np.random.default_rng(2)
    n_rows, n_columns = 80, 200_000

    def rows():
        for _ in range(n_rows):
            row = rng.normal(size=n_columns)
            yield row - row[0]

    tracemalloc.start()
    lattice_tail(rows(), 1e-9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Half of what the rows would take together.
    assert peak < 8 * n_rows * n_columns / 2


def test_rows_of_very_different_scales_share_a_grid():
    rng = np.random.default_rng(3)
    scores = [10.0**k * rng.normal(size=8) for k in range(-9, 10)]
    small_first = lattice_tail((row - row[0] for row in scores), 0.0)
    large_first = lattice_tail((row - row[0] for row in scores[::-1]), 0.0)
    # Brackets of one number overlap.
    assert small_first.log10_lower <= large_first.log10_upper
    assert large_first.log10_lower <= small_first.log10_upper
    # The row of the largest scale decides nearly alone.
    share = np.log10(np.mean(scores[-1] >= scores[-1][0]))
    assert small_first.log10_upper == pytest.approx(share, abs=0.3)


@pytest.mark.parametrize(("n_strata", "n_heads"), [(200, 150), (300, 300), (60, 40)])
def test_sign_test_equals_the_binomial_tail_at_any_depth(n_strata, n_heads):
    signs = np.where(np.arange(n_strata) < n_heads, 1.0, -1.0)
    scores_KM = np.stack([signs, -signs], axis=1)
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = scipy.stats.binom.logsf(n_heads - 1, n_strata, 0.5) / math.log(10)
    assert tail.log10_lower <= exact + 1e-9
    assert tail.log10_upper == pytest.approx(exact, abs=1e-9)


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


def test_ties_within_the_tolerance_count_against_detection():
    scores_KM = np.array([[1.0, 1.0 - 1e-5, 0.0]] * 3)
    strict = lattice_tail(differences(scores_KM), 1e-9)
    tolerant = lattice_tail(differences(scores_KM), 1e-4)
    assert strict.log10_upper == pytest.approx(math.log10(1 / 27), abs=1e-9)
    assert tolerant.log10_upper == pytest.approx(math.log10(8 / 27), abs=1e-9)


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


def test_table_of_cells_counts_as_sorting_does(monkeypatch):
    rows_KM = np.random.default_rng(3).normal(size=(8, 5_000))
    rows_KM -= rows_KM[:, :1] + 1.5
    rows_KM[:, 0] = 0.0
    by_table = lattice_tail(rows_KM, 1e-9)
    monkeypatch.setattr(exact_tail, "_TABLE_CELLS", 0)
    assert lattice_tail(rows_KM, 1e-9) == by_table
    monkeypatch.setattr(exact_tail, "_TABLE_CELLS", 10**6)
    assert lattice_tail(rows_KM, 1e-9) == by_table
