"""`log_tail` against whole-number convolution, by Python's integers."""

import math

import numpy as np
import pytest

from jaxcontam.stats.exact_tail import GridLaw, log_tail


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
