"""The randomisation engine at large designs; small ones in test_method_laws."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.exact_tail import lattice_tail
from jaxcontam.stats.randomisation import (
    monte_carlo_p,
    randomisation_test,
    redrawn_sums,
    row_scores,
    soft_rank_log_e,
)
from jaxcontam.stats.result import order_effect
from jaxcontam.stats.rows import flat_rows


def exact_p(loglik_KM, kind="centred"):
    """The p-value alone, without the Monte Carlo cross-check."""
    scored = row_scores(loglik_KM, kind=kind, relative_tolerance=1e-9)
    return (
        10.0 ** lattice_tail(scored.differences.split(), scored.tolerance).log10_upper
    )


def ones(matrix):
    return np.ones(len(matrix))


@pytest.mark.parametrize("offset", [0.0, 3e4])
def test_p_lower_bounds_the_pvalue_whose_ties_count_against_detection(offset):
    rng = np.random.default_rng(31)
    # So many combinations that the library brackets the tail instead of counting.
    matrix = rng.normal(size=(13, 5))
    matrix[:, 0] += 0.5
    tolerance = 1e-6 * float(np.abs(matrix + offset).max(axis=1).sum())
    found = randomisation_test(matrix + offset, ones(matrix))
    # Counted half against half: sums of 6 rows and of 7.
    left, right = (
        np.array([sum(one) for one in itertools.product(*half)])
        for half in (matrix[:6], matrix[6:])
    )
    right.sort()

    def share(slack):
        above = np.searchsorted(right, matrix[:, 0].sum() - slack - left)
        return 1 - above.sum() / (len(left) * len(right))

    with_ties, without = share(tolerance), share(1e-9)
    # The offset moves a few of 10^9 sums across the edge by rounding.
    assert found.p_lower <= with_ties * (1 + 1e-6)
    assert with_ties <= found.p_value * (1 + 1e-6)
    # Rows far from 0 have wide ties, and then the p-value without them is below.
    assert (found.p_lower > 1.1 * without) == (offset > 0)


def test_short_rows_keep_every_row_from_being_studentised():
    rng = np.random.default_rng(0)
    rows = [10.0**k * rng.normal(size=10) for k in np.linspace(0, 3, 30)]
    assert row_scores(rows, kind="auto", relative_tolerance=1e-9).kind == "studentised"
    rows[7] = rows[7][:9]
    assert row_scores(rows, kind="auto", relative_tolerance=1e-9).kind == "centred"


def test_ties_of_whole_numbers_survive_the_rounding_of_a_mean():
    # A third of 1 is no binary fraction: centred scores of equal sums would differ.
    rows = [np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])] * 6
    found = randomisation_test(rows, ones(rows), relative_tolerance=0.0)
    wins = scipy.stats.binom.sf(5, 12, 1 / 3)
    assert found.p_value == found.p_lower == pytest.approx(wins, rel=1e-12)


def test_no_draws_leave_the_cross_check_out():
    matrix = np.random.default_rng(0).normal(size=(6, 3))
    assert randomisation_test(matrix, ones(matrix), n_draws=0).p_monte_carlo is None


def test_pvalue_stops_at_1e_300_and_its_logarithm_goes_on():
    matrix = np.random.default_rng(0).normal(size=(400, 10))
    matrix[:, 0] += 50.0
    found = randomisation_test(matrix, ones(matrix))
    assert (found.p_value, found.p_floor) == (1e-300, 1e-300)
    assert found.log10_p == pytest.approx(-400.0, abs=1e-6)


# Ten seconds of simulation.
@pytest.mark.slow
def test_power_at_a_planted_effect_is_near_the_normal_formula():
    # Shift of half a standard deviation, K = 50, m = 9 at level 0.01: the mean of z is
    # 0.5 * sqrt(50 / (1 + 1/9)) = 3.35, so power is about Phi(3.35 - 2.33) = 0.85.
    rng = np.random.default_rng(4)
    found = []
    for _ in range(100):
        matrix = rng.normal(size=(50, 10))
        matrix[:, 0] += 0.5
        found.append(exact_p(matrix) <= 0.01)
    # Four standard errors of 100 data sets are 0.14.
    assert 0.71 < np.mean(found) < 0.99


def test_very_unequal_rows_are_studentised_and_gain_power():
    # Scales of the rows over three decades, and a shift of one own sd in each.
    rng = np.random.default_rng(7)
    scale = 10.0 ** np.linspace(0, 3, 30)[:, None]
    matrix = scale * rng.normal(size=(30, 10))
    matrix[:, :1] += 1.2 * scale
    scored = row_scores(matrix, kind="auto", relative_tolerance=1e-9)
    assert scored.kind == "studentised"
    assert exact_p(matrix, "auto") < exact_p(matrix, "centred") / 10


def test_few_columns_are_never_studentised():
    matrix = np.random.default_rng(0).normal(size=(30, 2))
    matrix *= 10.0 ** np.linspace(0, 3, 30)[:, None]
    assert row_scores(matrix, kind="auto", relative_tolerance=1e-9).kind == "centred"


def test_choice_of_scores_does_not_look_at_the_published_column():
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(25, 10)) * rng.lognormal(sigma=2.0, size=(25, 1))
    kinds = {
        row_scores(
            np.roll(matrix, j, axis=1), kind="auto", relative_tolerance=1e-9
        ).kind
        for j in range(10)
    }
    assert len(kinds) == 1


@pytest.mark.parametrize(("n_strata", "n_columns"), [(1, 3), (7, 2), (50, 20)])
def test_redrawn_sums_have_the_law_of_independent_columns(n_strata, n_columns):
    values = np.random.default_rng(1).normal(size=(n_strata, n_columns))
    n = 200_000
    sums = redrawn_sums(flat_rows(values), n_draws=n, seed=3)
    mean, variance = values.mean(axis=1).sum(), values.var(axis=1).sum()
    assert abs(sums.mean() - mean) < 4 * math.sqrt(variance / n)
    # The variance of a variance is at most (kurtosis - 1) / n; sums of bounded rows
    # have kurtosis below 3.
    assert abs(sums.var() / variance - 1) < 4 * math.sqrt(2 / n)


def test_monte_carlo_pvalue_is_never_zero():
    values = np.zeros((30, 10))
    values[:, 0] = 1.0
    assert (
        monte_carlo_p(flat_rows(values), tolerance=0.0, seed=0, n_draws=999) == 1 / 1000
    )


def test_evalue_of_a_matrix_follows_its_formula():
    matrix = np.random.default_rng(31).normal(size=(7, 4))
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    scores = centred / math.sqrt(matrix.var(axis=1, ddof=1).mean())
    bets = [
        np.prod(np.exp(b * scores[:, 0]) / np.exp(b * scores).mean(axis=1))
        for b in (0.1, 0.2, 0.4, 0.8, 1.6)
    ]
    for form in (matrix, list(matrix)):
        assert soft_rank_log_e(form) == pytest.approx(math.log(np.mean(bets)))


def test_effect_of_rows_of_different_lengths_follows_its_formula():
    rng = np.random.default_rng(12)
    rows = [rng.normal(size=m) for m in (5, 3, 8)]
    lone = rng.normal(size=2)
    boundaries = np.array([1.0, 2.0, 3.0, 4.0])
    gains = [row[0] - row[1:].mean() for row in [*rows, lone]]
    variances = [row[1:].var(ddof=1) for row in rows]
    degrees = [len(row) - 2 for row in rows]
    # A lone counterfactual has no spread: it takes that of the others.
    pooled = np.average(variances, weights=degrees)
    total = 2 * pooled + sum(
        v * (1 + 1 / (len(row) - 1)) for v, row in zip(variances, rows, strict=True)
    )
    found = order_effect([*rows, lone], boundaries, p_floor=1e-5, tolerance=0.0)
    assert found.effect == pytest.approx(sum(gains) / 10)
    assert found.effect_se == pytest.approx(math.sqrt(total) / 10)


def test_effect_and_its_error_follow_their_formulas():
    rng = np.random.default_rng(6)
    matrix, boundaries = rng.normal(size=(8, 5)), rng.uniform(1, 4, size=8)
    gains = matrix[:, 0] - matrix[:, 1:].mean(axis=1)
    variance = sum(np.var(row[1:], ddof=1) * (1 + 1 / 4) for row in matrix)
    found = order_effect(matrix, boundaries, p_floor=1e-5, tolerance=0.0)
    assert found.effect == pytest.approx(gains.sum() / boundaries.sum())
    assert found.effect_se == pytest.approx(math.sqrt(variance) / boundaries.sum())
    assert found.mde == pytest.approx((3.090 + 0.842) * found.effect_se)


def test_scorer_that_cannot_tell_orders_apart_detects_nothing_of_any_size():
    found = randomisation_test(np.full((40, 10), -100.0), np.ones(40))
    assert found.mde is None


def test_gain_that_ties_hide_is_not_called_detectable():
    rng = np.random.default_rng(0)
    matrix = -1e4 + 1e-2 * rng.normal(size=(40, 10))
    found = randomisation_test(matrix, np.ones(40))
    # Ties span 1e-6 of 40 x 10^4 nats: smaller gains cannot reject.
    assert found.mde >= 1e-6 * 40 * 1e4 / 40 * 0.99


def test_orders_that_keep_every_boundary_have_no_effect():
    found = order_effect(np.zeros((2, 2)), np.zeros(2), p_floor=0.25, tolerance=0.0)
    assert (found.effect, found.effect_se, found.mde) == (None, None, None)


def test_one_counterfactual_takes_its_error_from_the_spread_of_gains():
    matrix = np.array([[3.0, 1.0], [2.0, 2.0], [5.0, 1.0], [0.0, 1.0]])
    found = order_effect(matrix, np.full(4, 2.0), p_floor=1 / 16, tolerance=0.0)
    assert found.effect == pytest.approx(5 / 8)
    assert found.effect_se == pytest.approx(2 * np.std([2, 0, 4, -1], ddof=1) / 8)
    assert found.mde is None, "p cannot reach 0.001, so nothing is detectable"


def test_one_row_with_one_counterfactual_has_no_error():
    found = order_effect(np.array([[3.0, 1.0]]), np.ones(1), p_floor=0.5, tolerance=0.0)
    assert (found.effect, found.effect_se, found.mde) == (2.0, None, None)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((0, 3)), r"K >= 1 rows and 2 columns, got \(0, 3\)"),
        (np.zeros((3, 1)), r"K >= 1 rows and 2 columns, got \(3, 1\)"),
        (np.array([[0.0, 1j]]), "matrix must hold real numbers, none of them masked"),
        (np.ma.masked_equal([[0.0, 1.0]], 1), "matrix must hold real numbers"),
        ([np.ma.masked_equal([0.0, 1.0], 1)], "matrix must hold real numbers"),
        ([], "K >= 1 rows, got none"),
        ([np.zeros(3), np.zeros(1)], r"row 1 must be .* 2 values, got \(1,\)"),
        ([np.zeros((2, 2))], r"row 0 must be .* 2 values, got \(2, 2\)"),
    ],
)
def test_bad_matrices_are_named(matrix, message):
    with pytest.raises(ValueError, match=message):
        randomisation_test(matrix, np.ones(len(matrix)))
