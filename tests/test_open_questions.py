"""Questions on matrices whose answers are known, and the study in its pulse size."""

import dataclasses
import json
import math
import types
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from scipy import stats

from eval.intervals import mean_interval, ratio_interval
from eval.intervals import plus_minus as words
from eval.open_questions import efforts, orders
from eval.open_questions.__main__ import QUESTIONS, OpenQuestions
from eval.open_questions.efforts import (
    EFFORTS,
    EffortRow,
    exact_log10_p,
    gains,
    reversal_of,
)
from eval.open_questions.matrices import (
    N_PLACES,
    SymmetryRow,
    lags_of,
    places_of,
    symmetry_answer,
    symmetry_of,
)
from eval.open_questions.models import (
    BY_CONTEXT,
    LADDER,
    PULSE,
    TINY,
)
from eval.open_questions.scores import Pairs
from eval.python_docs import read_python_docs
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.methods import adjacency, reversal, stratified
from jaxcontam.methods.order_test import plan_test
from jaxcontam.scoring.pair_plan import ALL_TOKENS
from jaxcontam.stats.pair_statistic import PairStrata
from jaxcontam.stats.pair_test import adjacency_test

pytestmark = pytest.mark.unoptimised

N = 16
LENGTH = 6
"""Ids of an example; the first one is the same in all."""


def made_up_scores(token, *, copies=0, orders=None):
    """A set in which token j of example b after a has log-probability token(a, b, j).

    Examples are `a`, `b`, ... in published order, so number and place are the same.
    """
    ids = tuple(np.array([0, *[10 + i] * (LENGTH - 1)], np.int32) for i in range(N))
    benchmark = Benchmark("made-up", tuple(map(chr, range(97, 97 + N))), (None,) * N)
    encoded = Encoded(ids, np.array([], np.int32), np.zeros(N, np.int32))
    layout = plan_test(
        benchmark, encoded, adjacency.METHOD, prefix_id=1, context=64, seed=0
    ).layout
    logprobs = [
        [
            np.array([token(group.example, b, j) for j in range(LENGTH)], np.float32)
            for b in group.others
        ]
        for group in layout.plan.groups
    ]
    subject = types.SimpleNamespace(
        population="p",
        seed=3,
        copies=copies,
        benchmark=benchmark,
        encoded=encoded,
        n_ids=N * LENGTH,
    )
    return types.SimpleNamespace(
        subject=subject,
        pairs=lambda size: Pairs(layout, logprobs, 8.0),
        order_scores=lambda method, m: orders,
    )


def chance(seed):
    """A draw for each pair and token; the same draw whenever it is asked for."""
    table = np.random.default_rng(seed).normal(size=(N, N, LENGTH))
    return lambda a, b, j: table[a, b, j]


def test_matrix_that_equals_its_transpose_has_rho_one_and_no_direction():
    draw = chance(0)
    scores = made_up_scores(lambda a, b, j: draw(min(a, b), max(a, b), j))
    (row,) = symmetry_of(scores)
    assert row.rho == pytest.approx(1.0, abs=1e-9)
    assert row.z_directions == 0 != row.z_all


def test_matrix_that_changes_sign_with_direction_has_rho_minus_one():
    draw = chance(0)
    scores = made_up_scores(
        lambda a, b, j: math.copysign(1.0, b - a) * draw(min(a, b), max(a, b), j)
    )
    (row,) = symmetry_of(scores)
    assert row.rho == pytest.approx(-1.0, abs=1e-9)
    # Then the matrix less its transpose is twice the matrix.
    assert row.z_directions == pytest.approx(row.z_all, rel=1e-9)


def test_spike_at_the_next_example_leaves_nothing_beyond_it():
    scores = made_up_scores(lambda a, b, j: 2.0 * (b == a + 1))
    (row,) = lags_of(scores)
    assert np.argmax(row.profile) == 5 and row.profile[5] > 1
    # Sums of six float32 halves are exact; the centring is done in float64.
    assert row.beyond == pytest.approx([0.0] * 10, abs=1e-9)


def test_memory_two_places_on_stands_beyond_the_spike():
    scores = made_up_scores(lambda a, b, j: 2.0 * (b == a + 1) + 1.0 * (b == a + 2))
    (row,) = lags_of(scores)
    assert np.argmax(row.beyond) == 6


def test_constant_scorer_answers_nothing_and_breaks_nothing():
    scores = made_up_scores(lambda a, b, j: -1.0, orders=np.zeros((5, 10)))
    assert symmetry_of(scores) == lags_of(scores) == orders.skew_of(scores) == []
    (row,) = places_of(scores)
    assert row.all_z == 0 and set(row.alone_z) == {0.0}


def test_token_that_remembers_is_found_at_its_place():
    draw = chance(1)
    gain, at = 4.0, 3
    scores = made_up_scores(
        lambda a, b, j: (j > 0) * 0.1 * draw(a, b, j) + gain * (b == a + 1 and j == at)
    )
    (row,) = places_of(scores)
    # The first id is shared by all examples, so place 1 is id 1.
    assert np.argmax(row.alone_effect) == at - 1
    # Noise of 0.1 a pair is at most 0.1 in a mean over 14 boundaries by far.
    assert row.alone_effect[at - 1] == pytest.approx(gain, abs=0.2)
    assert row.first_effect[at - 1] == pytest.approx(sum(row.alone_effect[:at]))
    assert row.first_effect[-1] == pytest.approx(row.all_effect, abs=1e-6)
    assert row.reached == (1.0,) * (LENGTH - 1) + (0.0,) * (N_PLACES - LENGTH + 1)


def test_skew_is_scipys_and_differences_are_from_the_other_orders():
    scores_KM = np.random.default_rng(0).gamma(1.0, size=(7, 10))
    differences = orders.order_differences(scores_KM)
    others = scores_KM[:, 1:].mean(axis=1)
    assert differences[:, 0] == pytest.approx(scores_KM[:, 0] - others, abs=1e-12)
    values = differences.ravel()
    assert orders.skewness(values) == pytest.approx(stats.skew(values), rel=1e-9)


def test_t_test_finds_too_much_under_left_skew_and_its_level_under_a_normal_law():
    rng = np.random.default_rng(1)
    normal, left = rng.normal(size=(800, 10)), -(rng.exponential(size=(800, 10)) ** 2)
    found = []
    for law in (normal, left):
        sizes = [
            orders.t_sizes(orders.order_differences(law[k : k + 20]), seed=k)[0]
            for k in range(0, 800, 20)
        ]
        found.append(np.mean(sizes))
    # 40 sets of 20 shards; the sd of one set's size is about 0.01, so 5 standard
    # errors of the mean are 0.008.
    assert found[0] == pytest.approx(0.05, abs=0.008)
    assert found[1] > 0.07


def test_skew_of_a_planted_set_is_that_of_the_published_order_alone():
    drawn = np.random.default_rng(2).normal(size=(20, 10))
    (clean,) = orders.skew_of(made_up_scores(chance(0), orders=drawn))
    (planted,) = orders.skew_of(made_up_scores(chance(0), orders=drawn, copies=4))
    assert clean.published == planted.published
    assert planted.in_turn is None and planted.found is None
    assert clean.in_turn is not None and len(clean.found) == len(orders.LEVELS)


def test_reversal_over_six_is_the_librarys_in_a_long_file_and_longer_in_a_short_one():
    def n_strata(method, n):
        benchmark = Benchmark("b", tuple(map(str, range(n))), (None,) * n)
        ids = tuple(np.array([i, 0], np.int32) for i in range(n))
        encoded = Encoded(ids, np.array([0], np.int32), np.zeros(n, np.int32))
        return plan_test(
            benchmark, encoded, method, prefix_id=None, context=64, seed=0
        ).layout.design.n_strata

    # The library keeps 40 strata as long as it can.
    assert n_strata(reversal.METHOD, 240) == n_strata(reversal_of(6), 240) == 40
    assert n_strata(reversal.METHOD, 120) == 40 > n_strata(reversal_of(6), 120) == 20
    assert n_strata(reversal_of(4), 240) == 60


@pytest.mark.parametrize("size", [4, 8])
def test_exact_pvalue_is_that_of_the_adjacency_test(size):
    rng, n_strata = np.random.default_rng(3), 5
    strata = PairStrata(
        pairs=rng.normal(size=(1, n_strata, size, size)) + 2 * np.eye(size, k=1),
        first_tokens=np.array([ALL_TOKENS]),
        sizes=np.full(n_strata, size),
        codes=np.zeros((n_strata, size), np.int64),
        runs=np.zeros((n_strata, size), np.int64),
        starts=size * np.arange(n_strata),
    )
    library = adjacency_test(strata, seed=0, content_digest="sha256:0")
    assert library.log10_p < -1
    # The same lattice over the same columns.
    assert exact_log10_p(strata, seed=0) == pytest.approx(library.log10_p, abs=1e-9)


def effort(test, seed, log10_p, *, copies=2, name="a"):
    return EffortRow(
        population="p",
        seed=seed,
        name=name,
        copies=copies,
        test=test,
        log10_p=log10_p,
        passes=1.0,
    )


def test_gain_is_in_decades_of_planted_sets_cut_and_averaged_within_models():
    rows = [
        effort("new", 1, -3.0),
        effort("old", 1, -1.0),
        effort("new", 1, -20.0, name="b", copies=4),
        effort("old", 1, -12.0, name="b", copies=4),
        effort("new", 2, -1.0),
        effort("old", 2, -2.0),
        effort("new", 2, -9.0, name="z", copies=0),
        effort("old", 2, -0.0, name="z", copies=0),
    ]
    assert gains(rows, "new", "old") == [1.0, -1.0]


def test_every_test_of_an_effort_is_made():
    named = {name for tests in EFFORTS.values() for name in tests}
    assert named <= {*efforts.TESTS, *efforts.COMBINED}
    assert {name for pair in efforts.COMBINED.values() for name in pair} <= {
        *efforts.TESTS
    }


def test_mean_interval_is_students_and_a_lone_value_has_none():
    values = [1.0, 2.0, 4.0]
    mean, low, high = mean_interval(values)
    expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (mean, low, high) == pytest.approx((7 / 3, *expected), rel=1e-9)
    assert words(mean_interval([3.0])) == "3.00"


def test_ratio_has_no_interval_where_the_lower_mean_may_be_zero():
    assert ratio_interval([1.0, 2.0, 3.0], [-1.0, 1.0, 0.5]) is None
    ratio, low, high = ratio_interval([0.5, 1.1, 1.4], [1.0, 2.0, 3.0])
    assert ratio == pytest.approx(0.5)
    assert low < ratio < high


@pytest.mark.parametrize("design", [LADDER, TINY, *BY_CONTEXT])
def test_populations_share_no_seed_and_train_on_text_that_is_not_all_planted(design):
    others = [one for one in (LADDER, TINY, *BY_CONTEXT) if one is not design]
    assert all(abs(one.first_seed - design.first_seed) >= 1000 for one in others)
    planted = design.max_example_tokens * design.n_examples * sum(design.copies)
    assert planted <= 0.8 * design.n_tokens
    assert set(design.questions) <= set(QUESTIONS)


def test_by_context_plants_and_trains_on_equal_tokens():
    assert {one.n_tokens for one in BY_CONTEXT} == {126_464}
    assert {one.n_examples * one.max_example_tokens for one in BY_CONTEXT} == {2400}
    assert {one.preset.step_tokens for one in BY_CONTEXT} == {256}


def use_little(patch, docs):
    """One test by pairs, one by orders: few shapes to compile; texts that were read."""
    patch.setattr("eval.open_questions.__main__.read_python_docs", lambda: docs)
    patch.setattr("eval.study.code_version", lambda: "a commit")
    few = {name: efforts.TESTS[name] for name in ("adjacency s=8", "stratified m=9")}
    patch.setattr(efforts, "TESTS", few)
    patch.setattr(efforts, "COMBINED", {"both": tuple(few)})
    patch.setattr(efforts, "EFFORTS", {"quick": (*few, "both")})


@pytest.fixture(scope="module")
def docs():
    return read_python_docs()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, docs):
    out = tmp_path_factory.mktemp("questions")
    with pytest.MonkeyPatch.context() as patch:
        use_little(patch, docs)
        document = OpenQuestions(out=out, tiny=True, models=1).run()
        # As a program reads it: rows hold lists, not tuples.
        return json.loads(json.dumps(document)), out


def test_pulse_run_answers_every_question_for_every_set(finished):
    document, out = finished
    assert json.loads((out / "open_questions.json").read_text()) == document
    assert set(document["rows"]) == set(QUESTIONS)
    for rows in document["rows"].values():
        assert {row["copies"] for row in rows} == set(PULSE.copies)
        assert {(row["population"], row["seed"]) for row in rows} == {
            (PULSE.name, 60000)
        }
    for row in document["rows"]["efforts"]:
        assert row["log10_p"] <= 0 < row["passes"]
    for row in document["rows"]["symmetry"]:
        assert -1 <= row["rho"] <= 1
    tables = (out / "open_questions.md").read_text()
    assert "Symmetry rho" in tables and "python -m eval.open_questions" in tables
    for figure in ("lags", "places"):
        ElementTree.fromstring((out / f"{figure}-{PULSE.name}.svg").read_text())


def test_finished_models_are_not_measured_again(finished, docs, monkeypatch):
    document, out = finished
    use_little(monkeypatch, docs)
    monkeypatch.setattr("eval.open_questions.__main__.trained_subjects", None)
    again = OpenQuestions(out=out, tiny=True, models=1).run()
    assert json.loads(json.dumps(again["rows"])) == document["rows"]
    assert again["earlier_cpu_seconds"] > 0


def test_symmetry_says_how_many_models_its_sets_are_of():
    row = SymmetryRow(
        population="p",
        seed=0,
        name="a",
        copies=1,
        tokens=5.0,
        rho=0.1,
        z_all=1.0,
        z_directions=0.7,
    )
    rows = [
        dataclasses.replace(row, name=name, rho=rho)
        for name, rho in (("a", 0.0), ("b", 1.0))
    ]
    (grid,) = symmetry_answer(rows).grids
    line = dict(zip(grid.header, grid.rows[0], strict=True))
    assert (line["sets"], line["models"]) == ("2", "1")
    assert "each of another model" not in grid.title


def test_unknown_question_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(InputError, match="unknown question 'skews'") as caught:
        OpenQuestions(out=tmp_path, questions=("skews",))
    assert "skew" in caught.value.hint


def test_stratified_of_the_library_is_asked_for_its_own_orders():
    assert stratified.METHOD.default_orders == orders.N_ORDERS
