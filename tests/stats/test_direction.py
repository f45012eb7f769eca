"""Direction: exact over reversals of runs, blind to what attracts both ways."""

import itertools

import numpy as np
import pytest

from jaxcontam.stats.adjacency import LAGS
from jaxcontam.stats.direction import (
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
def test_effect_is_the_gain_of_each_boundary_less_what_both_directions_share(sparse):
    """Whatever is common to [i, j] and [j, i] leaves the p-value as it is."""
    plain, ahead = noise(40), np.eye(8, k=1)
    a, alike, gained = (
        result_of(strata_of(m, sparse=sparse))
        for m in (plain, plain + 5 * (ahead + ahead.T), plain + 2 * ahead)
    )
    assert alike.p_value == pytest.approx(a.p_value, rel=1e-9)
    for found, effect, forward, backward in ((alike, 0, 5, 5), (gained, 2, 2, 0)):
        assert found.effect - a.effect == pytest.approx(effect, abs=1e-9)
        own, before = found.neighbours, a.neighbours
        assert own.forward - before.forward == pytest.approx(forward)
        assert own.backward - before.backward == pytest.approx(backward, abs=1e-9)
        assert own.excess - before.excess == pytest.approx(effect, abs=1e-9)
    # Only all pairs tell of other distances, and what a random order would be worth:
    # among all orders the floor of 80 reversals no longer binds.
    if sparse:
        assert (gained.lag_profile, gained.log10_p_all_orders) == (None, None)
    else:
        assert gained.lag_profile[LAGS.index(1)] == max(
            filter(None, gained.lag_profile)
        )
        assert gained.log10_p_all_orders < gained.log10_p


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


@pytest.mark.parametrize(("n", "length"), [(8, 2), (45, 3), (60, 4), (10_000, 4)])
def test_runs_are_shorter_where_a_file_would_give_too_few(n, length):
    assert run_length(n) == length
