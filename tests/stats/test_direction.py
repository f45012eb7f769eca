"""Direction: exact over reversals of runs, blind to what attracts both ways."""

import itertools
import math

import numpy as np
import pytest

from eval import reference_rule as study
from jaxcontam.stats.adjacency import LAGS
from jaxcontam.stats.direction import (
    directed_sums,
    flipped_orders,
    needed_pairs,
    neighbours,
    run_length,
    runs_of,
)
from jaxcontam.stats.pair_test import PairStrata, direction_test
from jaxcontam.stats.result import OrderNumbers

DIGEST = "sha256:" + "5" * 64


def strata_of(matrices, *, length=4, codes=None, sparse=False) -> PairStrata:
    """Pair matrices as scored, with runs of so many examples."""
    sizes = np.array([len(matrix) for matrix in matrices])
    largest = int(sizes.max())
    pairs = np.zeros((len(matrices), largest, largest))
    runs_KS = np.zeros((len(matrices), largest), np.int64)
    for k, matrix in enumerate(matrices):
        n = len(matrix)
        runs_KS[k, :n] = runs_of(n, length)
        wanted_SS = needed_pairs(runs_KS[k, :n]) | np.eye(n, dtype=bool)
        pairs[k, :n, :n] = np.where(wanted_SS | (not sparse), matrix, np.nan)
    return PairStrata(
        pairs=pairs,
        sizes=sizes,
        codes=np.zeros((len(sizes), largest), np.int64) if codes is None else codes,
        runs=runs_KS,
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]),
    )


def noise(n_strata: int, *, size=8, seed=0) -> np.ndarray:
    """Matrices with effects of single examples far above the rest."""
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(n_strata, size, size))
    matrices += 30 * rng.normal(size=(n_strata, size, 1))
    matrices += 30 * rng.normal(size=(n_strata, 1, size))
    return np.where(np.eye(size, dtype=bool), 0.0, matrices)


def result_of(strata: PairStrata) -> OrderNumbers:
    return direction_test(strata, seed=0, content_digest=DIGEST)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_file_backwards_has_the_statistic_of_the_other_sign(sparse):
    strata = strata_of(noise(6), sparse=sparse)
    backwards = strata_of([one[::-1, ::-1] for one in noise(6)], sparse=sparse)
    a, b = result_of(strata), result_of(backwards)
    assert b.statistic == pytest.approx(-a.statistic, rel=1e-9)
    assert a.neighbours is not None and b.neighbours is not None
    assert b.neighbours.excess == pytest.approx(-a.neighbours.excess, rel=1e-9)


def test_scored_pairs_are_the_same_when_a_run_is_reversed():
    for length, size in itertools.product((2, 3, 4), range(4, 9)):
        runs_S = runs_of(size, length)
        needed_SS = needed_pairs(runs_S)
        for order_S in flipped_orders(np.zeros(size, np.int64), runs_S):
            assert np.array_equal(needed_SS[np.ix_(order_S, order_S)], needed_SS)
            assert needed_SS[order_S[:-1], order_S[1:]].all()
    assert needed_pairs(runs_of(8, 4)).sum() == 20


@pytest.mark.parametrize("sparse", [False, True])
def test_a_gain_in_both_directions_is_attraction_and_no_effect(sparse):
    """Whatever is common to [i, j] and [j, i] leaves the p-value as it is."""
    plain = noise(40)
    alike = 5 * (np.eye(8, k=1) + np.eye(8, k=-1))
    a, b = (result_of(strata_of(m, sparse=sparse)) for m in (plain, plain + alike))
    assert b.p_value == pytest.approx(a.p_value, rel=1e-9)
    assert b.effect == pytest.approx(a.effect, abs=1e-9)
    assert a.neighbours is not None and b.neighbours is not None
    assert b.neighbours.backward - a.neighbours.backward == pytest.approx(5)
    assert b.neighbours.excess == pytest.approx(a.neighbours.excess, abs=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_effect_is_what_each_published_boundary_gained(sparse):
    plain = noise(40)
    a, b = (
        result_of(strata_of(m, sparse=sparse))
        for m in (plain, plain + 2 * np.eye(8, k=1))
    )
    assert b.effect is not None and a.effect is not None
    assert b.effect - a.effect == pytest.approx(2)
    assert a.neighbours is not None and b.neighbours is not None
    assert b.neighbours.forward - a.neighbours.forward == pytest.approx(2)
    assert b.neighbours.backward == pytest.approx(a.neighbours.backward)


def test_standard_errors_of_both_gains_are_those_of_simulation():
    """400 sets: the spread of an estimate is its own error within 4 of 3.5 %."""
    found = [neighbours(list(noise(4, seed=seed))) for seed in range(400)]
    for name in ("forward", "backward", "excess"):
        values = np.array([getattr(one, name) for one in found])
        stated = np.mean([getattr(one, f"{name}_se") for one in found])
        assert abs(values.std() / stated - 1) < 4 * 0.035
        assert abs(values.mean()) < 4 * stated / 20


def test_groups_are_reversed_within_themselves():
    codes_S = np.array([0, 1, 0, 0, 1, 1, 2, 2])
    orders = flipped_orders(codes_S, runs_of(8, 4))
    assert orders.tolist() == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [3, 1, 2, 0, 4, 5, 6, 7],
        [0, 1, 2, 3, 5, 4, 7, 6],
        [3, 1, 2, 0, 5, 4, 7, 6],
    ]
    codes_KS = np.tile(codes_S, (30, 1))
    strata = strata_of(noise(30), codes=codes_KS)
    planted = strata_of(noise(30) + 3 * np.eye(8, k=1), codes=codes_KS)
    assert result_of(strata).p_value > 0.01 > result_of(planted).p_value


def test_only_all_pairs_tell_what_a_random_order_would_be_worth():
    planted = noise(10) + np.eye(8, k=1)
    whole, sparse = (
        result_of(strata_of(planted, sparse=sparse)) for sparse in (False, True)
    )
    assert sparse.log10_p_all_orders is None
    assert whole.log10_p_all_orders is not None
    # More orders to compare with: the floor of 20 reversals no longer binds.
    assert whole.log10_p_all_orders < whole.log10_p


@pytest.mark.parametrize(("n", "length"), [(8, 2), (45, 3), (60, 4), (10_000, 4)])
def test_runs_are_shorter_where_a_file_would_give_too_few(n, length):
    assert run_length(n) == length


def test_lag_profile_needs_all_pairs():
    rng = np.random.default_rng(3)
    matrices = [rng.normal(size=(8, 8)) + 4 * np.eye(8, k=1) for _ in range(20)]
    full, sparse = (
        result_of(strata_of(matrices, sparse=is_sparse)).lag_profile
        for is_sparse in (False, True)
    )
    assert full is not None
    profile = dict(zip(LAGS, full, strict=True))
    assert max(profile, key=lambda lag: profile[lag] or 0.0) == 1
    assert sparse is None


def test_later_neighbours_count_over_their_distance():
    sums = directed_sums(np.arange(16.0).reshape(4, 4), np.array([[0, 1, 2, 3]]))
    assert sums == pytest.approx([1 + 6 + 11 + (2 + 7) / 2 + 3 / 3])


@pytest.mark.parametrize(
    ("kinds", "low", "high"),
    [
        # Kind follows kind as often one way as the other: 5 % and three standard errors
        # of 400 files.
        (lambda rng: np.repeat(np.arange(120) % 2, 5)[:600], 0.0, 0.083),
        (lambda rng: np.repeat(rng.integers(0, 5, 120), 5)[:600], 0.0, 0.083),
        # The same three kinds in turn.
        (lambda rng: np.arange(600) % 3, 0.2, 1.0),
    ],
)
def test_kinds_keep_the_level_where_they_follow_each_other_both_ways(kinds, low, high):
    """A reader to whom one kind after another is likelier than the other way round."""
    rng = np.random.default_rng(0)
    pairs_FKP = rng.normal(size=(400, 75, len(study._LEFT_P)))
    for pairs_KP in pairs_FKP:
        kinds_KS = kinds(rng).reshape(75, 8)
        left_KP, right_KP = kinds_KS[:, study._LEFT_P], kinds_KS[:, study._RIGHT_P]
        ahead_VV = rng.normal(size=(5, 5))
        ahead_VV = (ahead_VV - ahead_VV.T) / math.sqrt(8)
        pairs_KP += 2.0 * (left_KP == right_KP) + ahead_VV[left_KP, right_KP]
    rejected = np.mean(study._direction(pairs_FKP) > 1.645)
    assert low <= rejected <= high
