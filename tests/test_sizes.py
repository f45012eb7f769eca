"""Size of every test under its null: a row in `designs.TESTS` is a row here."""

import functools
import json
import math
import sys

import numpy as np
import pytest

from eval.sizes import drift
from eval.sizes.__main__ import (
    SizeResult,
    Sizes,
    main,
    measure_drift,
    measure_size,
)
from eval.sizes.designs import (
    KINDS,
    LEVELS,
    TESTS,
    direction_p_value,
    needed_alone,
    strata_of,
)
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import ScoreMethod
from jaxcontam.stats.pair_test import direction_test

# Null data sets a test and kind; the slow suite takes 10,000.
N_SETS = 1_000
# Several laws look at the same data sets.
size_of = functools.lru_cache(measure_size)
QUICK = [name for name, test in TESTS.items() if test.quick and test.exact]


# A canary's data sets take seconds a kind; the law of its ranks knows no kinds.
CASES = [
    pytest.param(test, kind, marks=pytest.mark.slow)
    if test == "canary" and kind != "normal"
    else (test, kind)
    for test in QUICK
    for kind in KINDS
]


@pytest.mark.parametrize(("test", "kind"), CASES)
def test_exact_tests_reject_a_true_null_no_more_often_than_their_level(test, kind):
    # 3.3 standard errors of 2,000 data sets, at each of three levels.
    assert size_of(test, kind, N_SETS).holds


@pytest.mark.parametrize("test", [name for name in QUICK if TESTS[name].sharp])
def test_sharp_tests_reject_a_true_null_as_often_as_their_level(test):
    # Scores without ties and thousands of combinations: p is uniform but for steps
    # below 1 / 100, so a test that never rejects is not exact but blind.
    (size, *_) = size_of(test, "normal", N_SETS).sizes
    assert size >= 0.05 - 4 * math.sqrt(0.05 * 0.95 / N_SETS)


def test_t_test_over_ten_left_skewed_shards_accuses_too_often():
    # 12 % at a nominal 5 % by the Edgeworth term of the skewness: the known fault.
    found = measure_size("sharded_t, 10 shards", "left-skewed", N_SETS)
    assert found.sizes[LEVELS.index(0.05)] > 0.10
    assert not found.holds
    assert size_of("stratified", "left-skewed", N_SETS).holds


@pytest.mark.slow
@pytest.mark.parametrize("test", TESTS)
def test_sizes_over_ten_thousand_null_sets(test, tmp_path):
    """Prints the table of the study with `pytest -m slow -s`."""
    results = Sizes(only=(test,), out=tmp_path).run()
    assert {row.n_sets for row in results} == {10_000}
    assert all(row.holds for row in results if row.exact)
    if test == "sharded_t, 10 shards":
        assert not next(row for row in results if row.kind == "left-skewed").holds


def test_every_exact_method_has_a_row():
    exact = {
        name
        for name, method in METHODS.items()
        if not isinstance(method, ScoreMethod) and method.validity == "exact"
    }
    assert exact <= {name.split(",")[0] for name in TESTS}


@pytest.mark.parametrize("sizes", [[4] * 5, [2, 2, 7], [30]])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_give_finite_rows_of_the_asked_lengths(kind, sizes):
    rows = KINDS[kind](np.random.default_rng(0), np.array(sizes))
    assert [len(row) for row in rows] == sizes
    assert np.isfinite(np.concatenate(rows)).all()
    assert any(np.ptp(row) > 0 for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_favour_no_column(kind):
    # Which of five columns is the largest, ties broken at random: uniform.
    rng = np.random.default_rng(4)
    largest = [
        int(np.argmax(row + 1e-12 * rng.random(5)))
        for row in KINDS[kind](rng, np.full(4000, 5))
    ]
    share = np.bincount(largest, minlength=5) / 4000
    assert np.abs(share - 0.2).max() < 4 * math.sqrt(0.2 * 0.8 / 4000)


@pytest.mark.parametrize(
    ("name", "n_strata", "n_columns"),
    [("stratified", 10, 5), ("reversal", 20, 2), ("permutation", 1, 100)],
)
def test_pvalue_of_the_study_is_that_of_the_method(name, n_strata, n_columns):
    def seen(rng, sizes):
        drawn.append(np.stack(KINDS["normal"](rng, sizes)))
        return list(drawn[-1])

    drawn = []
    p = TESTS[name].p_value(np.random.default_rng(0), seen)
    (matrix,) = drawn
    assert matrix.shape == (n_strata, n_columns)
    by_method = METHODS[name].analyse(matrix, np.ones(n_strata), 0)
    assert p == pytest.approx(by_method.p_value, rel=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_direction_of_the_study_is_that_of_the_method(sparse):
    pairs_KSS = np.random.default_rng(0).normal(size=(8, 8, 8))
    if sparse:
        pairs_KSS = needed_alone(pairs_KSS)
    strata, digest = strata_of(pairs_KSS), "sha256:" + "5" * 64
    by_method = direction_test(strata, seed=0, content_digest=digest)
    assert direction_p_value(pairs_KSS) == pytest.approx(by_method.p_value, rel=1e-9)


def test_walk_leaves_a_state_for_another_as_often_as_it_comes_back():
    """Detailed balance: the share of steps from a to b is its link's, both ways."""
    strengths_GG = np.array([[0, 1, 4], [1, 0, 0], [4, 0, 0]], float)
    states_N = drift.walk(np.random.default_rng(0), strengths_GG, 60_000, 3.0)
    steps = np.zeros((3, 3))
    np.add.at(steps, (states_N[:-1], states_N[1:]), 1 / len(states_N))
    # A third of all rows moves: 1 or 4 of 10 of those. Steps that follow each other
    # depend, so 8 of their standard errors.
    moved = strengths_GG / 10 / 3
    error = 8 * np.sqrt(moved / len(states_N))
    off = ~np.eye(3, dtype=bool)
    assert (np.abs(steps - moved) <= error)[off].all()
    # The walk stands on state 0, whose links are half of all ends, half of the time.
    assert np.bincount(states_N) / 60_000 == pytest.approx([0.5, 0.1, 0.4], abs=0.02)


@pytest.mark.parametrize("kind", drift.KINDS)
def test_drifting_files_begin_as_they_end(kind):
    """Over 8,000 files three rows stand as often one way as the other, within 4.5."""
    rng = np.random.default_rng(1)
    rows = np.array([drift.KINDS[kind](rng, 7, 3.0) for _ in range(8_000)])
    there, back = (
        np.bincount(rows[:, places] @ [1, 12, 144], minlength=12**3)
        for places in ([0, 1, 3], [6, 5, 3])
    )
    assert (np.abs(there - back) <= 4.5 * np.sqrt(there + back)).all()
    assert len(np.unique(there)) > 2


def test_drift_accuses_adjacency_and_not_direction():
    found = {row.test: row for row in measure_drift("styles", "short", "coherent", 300)}
    assert found["direction"].holds and found["direction, sparse"].holds
    assert found["adjacency, about"].sizes[0] > 0.3
    assert not found["adjacency, about"].exact


def test_excess_is_measured_in_standard_errors_of_the_simulation():
    def found(*sizes):
        return SizeResult(test="t", kind="k", n_sets=100, sizes=sizes, exact=True)

    # sqrt(.05 * .95 / 100) = .0218: .12 is 3.21 of them above .05, .13 is 3.67.
    assert found(0.12, 0.0, 0.0).excess == pytest.approx(3.2118, abs=1e-3)
    assert found(0.12, 0.0, 0.0).holds
    assert not found(0.13, 0.0, 0.0).holds
    assert not found(0.05, 0.01, 0.02).holds


def test_pulse_run_writes_every_test_and_kind(tmp_path, monkeypatch, capsys):
    words = ["sizes", "--tiny", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    assert main() in (0, 1)
    rows = json.loads((tmp_path / "sizes.json").read_text())
    drawn, drifting = (
        {(row["test"], row["kind"]) for row in rows if row["null"] == null}
        for null in ("exchangeability", "reversible drift")
    )
    assert drawn == {(test, kind) for test in TESTS for kind in KINDS}
    assert len(drifting) == 3 * len(drift.KINDS) * len(drift.LENGTHS) * 2
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "…" not in printed
    assert all(test in printed for test in TESTS)


def test_same_seed_gives_the_same_sizes():
    first, again, other = (
        measure_size("stratified", "normal", 200, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_unknown_test_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sizes", "--only", "stratifed"])
    assert main() == 2
    error = capsys.readouterr().err
    assert "unknown test 'stratifed'" in error
    assert "did you mean 'stratified'?" in error
