"""Where the evidence lies: planted runs, size, degenerate files, large files."""

import itertools
import math

import numpy as np
import pytest

from jaxcontam.stats.local import local_evidence

# Null data sets; bands are 3.3 standard errors.
N_NULL = 2000


def find(matrix, *, seed=0, n_draws=999, ties=None):
    ties_K = np.zeros(len(matrix)) if ties is None else ties
    return local_evidence(matrix, ties_K, seed=seed, n_draws=n_draws)


def left_skewed(rng, shape):
    return -rng.gamma(1.0, size=shape)


def tied(rng, shape):
    return rng.integers(-1, 2, size=shape).astype(float)


@pytest.mark.parametrize("law", [left_skewed, tied])
@pytest.mark.parametrize(("n_strata", "n_columns"), [(12, 10), (30, 2)])
def test_size_is_at_most_nominal(law, n_strata, n_columns):
    assert_size_is_nominal(law, n_strata, n_columns, N_NULL, 199, (0.05, 0.01))


def assert_size_is_nominal(law, n_strata, n_columns, n_sets, n_draws, levels):
    rng = np.random.default_rng(n_strata)
    found = [
        find(law(rng, (n_strata, n_columns)), seed=i, n_draws=n_draws)
        for i in range(n_sets)
    ]
    for level in levels:
        slack = 3.3 * math.sqrt(level * (1 - level) / n_sets)
        assert np.mean([run.p_value <= level for run in found]) <= level + slack


def best_of_all_runs(scores):
    return max(
        sum(scores[a:b]) / math.sqrt(b - a)
        for a, b in itertools.combinations(range(len(scores) + 1), 2)
    )


def assert_is_that_of_all_choices(found, z_rows, n_draws):
    published = best_of_all_runs([row[0] for row in z_rows])
    assert found.statistic == pytest.approx(published)
    choices = itertools.product(*z_rows)
    exact = np.mean([best_of_all_runs(c) >= published - 1e-9 for c in choices])
    # Four standard errors of the draws, and the added 1.
    slack = 4 * math.sqrt(exact * (1 - exact) / n_draws) + 1 / n_draws
    assert abs(found.p_value - exact) < slack


def test_pvalue_equals_enumeration_of_all_column_choices():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(4, 5))
    matrix[1:3, 0] += 1.0
    z = (matrix - matrix.mean(1, keepdims=True)) / matrix.std(1, ddof=1, keepdims=True)
    assert_is_that_of_all_choices(find(matrix, n_draws=40_000), z, 40_000)


@pytest.mark.parametrize(("n_strata", "first", "last"), [(60, 20, 31), (600, 400, 431)])
def test_planted_run_is_found_where_it_is(n_strata, first, last):
    rng = np.random.default_rng(1)
    overlaps = []
    for i in range(20):
        matrix = rng.normal(size=(n_strata, 10))
        matrix[first : last + 1, 0] += 2.5
        found = find(matrix, seed=i)
        assert found.p_value <= 0.002
        shared = min(last, found.last) - max(first, found.first) + 1
        union = max(last, found.last) - min(first, found.first) + 1
        overlaps.append(max(shared, 0) / union)
    # Ends are chance: a boundary stratum is missed or added now and then.
    assert np.mean(overlaps) > 0.8


def test_run_of_one_is_the_one_stratum_that_was_seen():
    # No single stratum of m + 1 columns has a p-value below 1 / (m + 1).
    matrix = np.random.default_rng(2).normal(size=(15, 5000))
    matrix[11, 0] = 12.0
    found = find(matrix)
    assert (found.first, found.last) == (11, 11)
    assert found.p_value <= 0.002


def test_file_seen_throughout_gives_a_long_run():
    matrix = np.random.default_rng(3).normal(size=(40, 10))
    matrix[:, 0] += 3.0
    found = find(matrix)
    assert found.last - found.first >= 35


def test_constant_file_gives_pvalue_one_everywhere():
    assert find(np.full((30, 10), -88.8)).p_value == 1.0


def test_differences_below_the_tie_tolerance_are_no_evidence():
    matrix = -1000 + 1e-4 * np.random.default_rng(4).normal(size=(30, 10))
    matrix[:, 0] = matrix.max(axis=1)
    assert find(matrix).p_value <= 0.001
    assert find(matrix, ties=np.full(30, 1e-2)).p_value == 1.0


def test_constant_rows_beside_others_score_nothing():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(30, 10))
    matrix[:10] = 4.0
    matrix[20:25, 0] += 6.0
    found = find(matrix)
    assert 10 <= found.first <= 20
    assert found.p_value <= 0.002


def test_rows_may_differ_in_their_number_of_columns():
    rng = np.random.default_rng(9)
    rows = [rng.normal(size=n) for n in (4, 9, 30, 2, 7)]
    rows[2][0] = 8.0
    # Some have fewer than five columns: the standard deviation is the pooled one.
    pooled = math.sqrt(np.mean([row.var(ddof=1) for row in rows]))
    z_rows = [(row - row.mean()) / pooled for row in rows]
    assert_is_that_of_all_choices(find(rows, n_draws=9_999), z_rows, 9_999)


def test_two_columns_keep_the_size_of_their_difference():
    # Of signs alone, a run of 6 in 24 strata would be no rarity.
    rng = np.random.default_rng(10)
    matrix = rng.normal(size=(24, 2))
    matrix[8:14, 0] += 6.0
    found = find(matrix)
    assert (found.first, found.last) == (8, 13)
    assert found.p_value <= 0.03


def test_order_of_the_columns_drawn_does_not_matter():
    rng = np.random.default_rng(6)
    matrix = rng.normal(size=(20, 10))
    other = matrix.copy()
    other[:, 1:] = other[:, :0:-1]
    first, second = find(matrix), find(other)
    assert first.statistic == pytest.approx(second.statistic)
    assert (first.first, first.last) == (second.first, second.last)


def test_single_stratum_has_one_run():
    found = find(np.array([[3.0, 1.0, 2.0, 0.0]]), n_draws=4000)
    assert (found.first, found.last) == (0, 0)
    # Best of four: a quarter, four standard errors of 4000 draws.
    assert abs(found.p_value - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 4000)


def test_ten_thousand_draws_of_a_large_file_fit_in_little_memory():
    import tracemalloc

    matrix = np.random.default_rng(8).normal(size=(2500, 10))
    tracemalloc.start()
    find(matrix, n_draws=9_999)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # K x B at once would be 200 MB; blocks of 2^16 numbers are half a megabyte each.
    assert most < 20e6
