"""The randomisation engine at large designs; small ones in test_method_laws."""

import itertools
import math

import numpy as np
import pytest

from jaxcontam.stats.randomisation import (
    randomisation_test,
    row_scores,
    soft_rank_log_e,
)
from jaxcontam.stats.result import order_effect


def ones(matrix):
    return np.ones(len(matrix))


@pytest.mark.parametrize("offset", [0.0, 3e5])
def test_ties_of_rows_far_from_zero_are_wide_and_count_against_detection(offset):
    rng = np.random.default_rng(31)
    matrix = rng.normal(size=(5, 5))
    matrix[:, 0] += 0.5
    tolerance = 1e-6 * float(np.abs(matrix + offset).max(axis=1).sum())
    found = randomisation_test(matrix + offset, ones(matrix))
    sums = np.array([sum(one) for one in itertools.product(*matrix)])
    with_ties, without = (
        np.mean(sums >= matrix[:, 0].sum() - slack) for slack in (tolerance, 1e-9)
    )
    assert found.p_value == pytest.approx(with_ties, rel=0.01)
    assert (with_ties > 1.1 * without) == (offset > 0)


def test_pvalue_stops_at_1e_300_and_its_logarithm_goes_on():
    matrix = np.random.default_rng(0).normal(size=(400, 10))
    matrix[:, 0] += 50.0
    found = randomisation_test(matrix, ones(matrix))
    assert (found.p_value, found.p_floor) == (1e-300, 1e-300)
    assert found.log10_p == pytest.approx(-400.0, abs=1e-6)


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


def test_rows_are_studentised_where_long_and_unequal_whatever_was_published():
    """Scales over three decades, and a shift of one own sd in each row."""

    def kind(rows):
        return row_scores(rows, kind="auto", relative_tolerance=1e-9).kind

    rng = np.random.default_rng(7)
    scale = 10.0 ** np.linspace(0, 3, 30)[:, None]
    matrix = scale * rng.normal(size=(30, 10))
    matrix[:, :1] += 1.2 * scale
    assert {kind(np.roll(matrix, j, axis=1)) for j in range(10)} == {"studentised"}
    assert kind(matrix / scale) == kind(matrix[:, :2]) == "centred"
    assert kind([*matrix[:29], matrix[29, :9]]) == "centred"
    own, plain = (
        randomisation_test(matrix, ones(matrix), scores=scores, n_draws=0)
        for scores in ("auto", "centred")
    )
    assert own.p_value < plain.p_value / 10
    assert own.p_monte_carlo is None


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
    assert found.mde == pytest.approx((3.090 + 0.842) * found.effect_se)


@pytest.mark.parametrize(
    ("matrix", "boundaries", "effect", "se"),
    [
        # Orders that keep every boundary; one row with one counterfactual.
        (np.zeros((2, 2)), np.zeros(2), None, None),
        (np.array([[3.0, 1.0]]), np.ones(1), 2.0, None),
        # The error of one counterfactual is from the spread of gains.
        (
            np.array([[3.0, 1.0], [2.0, 2.0], [5.0, 1.0], [0.0, 1.0]]),
            np.full(4, 2.0),
            5 / 8,
            pytest.approx(2 * np.std([2, 0, 4, -1], ddof=1) / 8),
        ),
    ],
)
def test_nothing_is_detectable_where_p_cannot_be_small(matrix, boundaries, effect, se):
    found = order_effect(matrix, boundaries, p_floor=0.01, tolerance=0.0)
    assert (found.effect, found.effect_se, found.mde) == (effect, se, None)


def test_gain_that_ties_hide_is_not_called_detectable():
    rng = np.random.default_rng(0)
    matrix = -1e4 + 1e-2 * rng.normal(size=(40, 10))
    found = randomisation_test(matrix, np.ones(40))
    # Ties span 1e-6 of 40 x 10^4 nats: smaller gains cannot reject.
    assert found.mde >= 1e-6 * 40 * 1e4 / 40 * 0.99


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
