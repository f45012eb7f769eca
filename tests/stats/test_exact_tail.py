"""`lattice_tail` against full enumeration and closed forms."""

import collections
import itertools
import math
import tracemalloc

import numpy as np
import pytest

from jaxcontam.stats import exact_tail
from jaxcontam.stats.exact_tail import GridLaw, lattice_tail, log_tail


def differences(scores_KM):
    return scores_KM - scores_KM[:, :1]


def enumerated_log10(scores_KM, tolerance):
    """Share of all column choices whose sum is at least the published one."""
    gaps = [row - row[0] for row in scores_KM]
    sums = [sum(choice) for choice in itertools.product(*gaps)]
    return math.log10(np.mean(np.array(sums) >= -tolerance))


@pytest.fixture
def grid_only(monkeypatch):
    """Small matrices go through the grid too, not through enumeration."""
    monkeypatch.setattr(exact_tail, "_ENUMERABLE", 1)
    monkeypatch.setattr(exact_tail, "_MERGED", 1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("n_strata", "n_columns"), [(1, 9), (4, 5), (6, 4), (9, 2)])
def test_bracket_holds_the_enumerated_value(grid_only, seed, n_strata, n_columns):
    rng = np.random.default_rng(seed)
    scores_KM = rng.normal(size=(n_strata, n_columns))
    scores_KM *= rng.lognormal(size=(n_strata, 1))
    scores_KM[:, 0] += 0.8 * rng.random()
    tail = lattice_tail(differences(scores_KM), 1e-9)
    exact = enumerated_log10(scores_KM, 1e-9)
    assert tail.log10_lower <= exact + 1e-12
    assert exact <= tail.log10_upper + 1e-12
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
    # The row of the largest scale decides nearly alone.
    share = np.log10(np.mean(scores[-1] >= scores[-1][0]))
    for rows in (scores, scores[::-1]):
        tail = lattice_tail((row - row[0] for row in rows), 0.0)
        assert tail.log10_lower - 0.3 <= share <= tail.log10_upper + 0.3


def test_columns_too_far_below_the_others_to_count_are_cut_off():
    rng, slack = np.random.default_rng(0), 20
    scores_KM = rng.integers(-9, 10, size=(20, 10))
    scores_KM[:, :2] = 9, -400
    counts = {0: 1}
    for row in differences(scores_KM).tolist():
        steps = collections.Counter()
        for (at, n), step in itertools.product(counts.items(), row):
            steps[at + step] += n
        counts = steps
    n_at_least = sum(n for at, n in counts.items() if at >= -slack)
    tail = lattice_tail(differences(scores_KM), slack + 1e-9)
    exact = pytest.approx(math.log10(n_at_least) - 20, abs=1e-9)
    assert tail.log10_upper == exact and tail.log10_lower == exact


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


def random_laws(seed, n_laws, n_cells):
    """Counts on consecutive integers that reach above and below 0."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 50, size=(n_laws, n_cells))
    counts[:, -1] = 1
    lows = -rng.integers(n_cells // 2, n_cells, size=n_laws)
    return [
        GridLaw(int(low), row.astype(float), float(row.sum()))
        for low, row in zip(lows, counts, strict=True)
    ]


def exact_log_tail(laws, slack):
    """Log of the share of combinations at or above -slack, in whole numbers."""
    counts = np.array([1], dtype=object)
    for law in laws:
        counts = np.convolve(counts, law.weights.astype(int).astype(object))
    low = sum(law.low for law in laws)
    n_tail = sum(counts[max(0, -slack - low) :])
    n_all = math.prod(int(law.weights.sum()) for law in laws)
    return math.log(n_tail) - math.log(n_all)


def bounds(tail):
    """Upper and lower bound that a tail claims, as logarithms."""
    upper = np.logaddexp(tail.log_tail, tail.log_error) + tail.log_rounding
    share = math.exp(min(0.0, tail.log_error - tail.log_tail))
    lower = tail.log_tail + math.log1p(-share) if share < 1 else -math.inf
    return lower - tail.log_rounding, upper


@pytest.mark.parametrize("by_fft", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tilt", [0.0, 0.004, 0.02])
def test_claimed_bounds_hold_the_whole_number_value(by_fft, seed, tilt):
    # Longer than `_SHORT`, so that the FFT is used.
    laws = random_laws(seed, n_laws=5, n_cells=300)
    slack = 7 * seed
    exact = exact_log_tail(laws, slack)
    tail = log_tail(laws, slack=slack, tilt=tilt, by_fft=by_fft)
    lower, upper = bounds(tail)
    assert lower <= exact <= upper
    # A bound of nothing would hold too.
    assert upper - lower < (1e-6 if by_fft else 1e-9)


def test_direct_sums_keep_a_depth_that_no_tilt_has_raised():
    # 40 laws that are 0 once in a thousand and else negative, untilted: 1e-120.
    weights = np.zeros(200)
    weights[[0, -1]] = 999.0, 1.0
    laws = [GridLaw(-199, weights, weights.sum())] * 40
    tail = log_tail(laws, slack=0, tilt=0.2, by_fft=False)
    lower, upper = bounds(tail)
    exact = -120 * math.log(10)
    assert lower <= exact <= upper
    assert upper - lower < 1e-9


def test_fft_says_that_it_cannot_see_what_lies_below_its_error():
    # Two of four must be high, each once in 10^12: far below the error of an FFT.
    weights = np.zeros(301)
    weights[[0, -1]] = 1e12 - 1, 1.0
    laws = [GridLaw(-150, weights, weights.sum())] * 4
    exact = math.log(6e-24)
    blind = log_tail(laws, slack=0, tilt=0.0, by_fft=True)
    assert blind.log_error > blind.log_tail
    assert exact <= bounds(blind)[1]
    # The tilt that makes high and low equally likely raises it.
    tilt = math.log(1e12) / 300
    lower, upper = bounds(log_tail(laws, slack=0, tilt=tilt, by_fft=True))
    assert lower == pytest.approx(exact, abs=1e-9) == upper
