"""Where the evidence lies: planted runs, degenerate files, large files."""

import numpy as np
import pytest

from jaxcontam.stats.local import local_evidence


def find(matrix, *, seed=0, n_draws=999, ties=None):
    ties_K = np.zeros(len(matrix)) if ties is None else ties
    return local_evidence(matrix, ties_K, seed=seed, n_draws=n_draws)


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


def test_two_columns_keep_the_size_of_their_difference():
    # Of signs alone, a run of 6 in 24 strata would be no rarity.
    rng = np.random.default_rng(10)
    matrix = rng.normal(size=(24, 2))
    matrix[8:14, 0] += 6.0
    found = find(matrix)
    assert (found.first, found.last) == (8, 13)
    assert found.p_value <= 0.03


def test_ten_thousand_draws_of_a_large_file_fit_in_little_memory():
    import tracemalloc

    matrix = np.random.default_rng(8).normal(size=(2500, 10))
    tracemalloc.start()
    find(matrix, n_draws=9_999)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # K x B at once would be 200 MB; blocks of 2^16 numbers are half a megabyte each.
    assert most < 20e6
