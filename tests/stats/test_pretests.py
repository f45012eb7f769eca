"""Pre-tests: shuffled files pass, sorted and grouped ones are caught."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse.csgraph
import scipy.stats

from jaxcontam.stats.pretests import columns, gate, pretest_battery
from jaxcontam.stats.pretests.battery import (
    autocorrelation,
    centred_ranks,
    equal_neighbours,
    steps,
    trend,
)
from jaxcontam.stats.pretests.fields import natural_order, numbers
from jaxcontam.stats.pretests.null import draw_orders, permutation_p, tail_p
from jaxcontam.stats.result import Pretest
from tests.support.pretest_files import VOCABULARY, duplicated, failed, sentences


# Seven seconds.
@pytest.mark.slow
def test_shuffled_files_fail_at_most_one_time_in_a_hundred():
    rng = np.random.default_rng(0)
    n_files, n = 300, 24
    n_failed = 0
    for _ in range(n_files):
        texts = sentences(rng, n - 4)
        texts += [text + " again" for text in texts[:4]]
        shuffled = [texts[i] for i in rng.permutation(n)]
        fields = {
            "label": rng.integers(0, 3, n).tolist(),
            "level": rng.integers(0, 5, n).tolist(),
            "passage": rng.integers(0, 15, n).tolist(),
        }
        n_failed += bool(failed(shuffled, fields))
    # Familywise level 0.01, plus 3.3 standard errors of 300 files.
    assert n_failed / n_files <= 0.01 + 3.3 * np.sqrt(0.01 * 0.99 / n_files)


def test_file_sorted_by_length_fails():
    texts = sorted(sentences(np.random.default_rng(1), 200), key=len)
    assert failed(texts) >= {"length_autocorrelation", "length_trend"}


def test_file_in_alphabetical_order_fails():
    texts = sorted(sentences(np.random.default_rng(2), 200))
    assert "alphabetical_trend" in failed(texts)


def test_alternating_lengths_fail_though_they_have_no_trend():
    rng = np.random.default_rng(3)
    texts = ["x" * int(rng.integers(1, 40) + 100 * (i % 2)) for i in range(100)]
    found = failed(texts)
    assert "length_autocorrelation" in found
    assert not found & {"length_trend", "length_steps", "alphabetical_trend"}


def test_file_grouped_by_label_fails_and_permuting_within_the_label_passes():
    rng = np.random.default_rng(4)
    texts, labels = sentences(rng, 200), ["a"] * 100 + ["b"] * 100
    found = failed(texts, {"label": labels})
    assert found == {"equal_neighbours:label", "label_trend:label"}
    assert failed(texts, {"label": labels}, groups=labels) == set()


def test_perfectly_alternating_labels_fail_too():
    texts = sentences(np.random.default_rng(5), 200)
    assert failed(texts, {"label": [0, 1] * 100}) == {"equal_neighbours:label"}


def test_constant_lengths_are_no_evidence():
    texts = [f"{i:04d}" for i in np.random.default_rng(0).permutation(100)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    assert battery["length_autocorrelation"].p_value == 1.0
    assert battery["length_trend"].p_value == 1.0


def test_statistics_are_those_of_scipy():
    texts = sentences(np.random.default_rng(6), 50)
    lengths = [len(text) for text in texts]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    rho = scipy.stats.spearmanr(range(50), lengths).statistic
    assert battery["length_trend"].statistic == pytest.approx(rho)
    lexicographic = np.argsort(np.argsort(texts))
    rho = scipy.stats.spearmanr(range(50), lexicographic).statistic
    assert battery["alphabetical_trend"].statistic == pytest.approx(rho)


def test_permutation_pvalue_of_spearman_is_near_its_asymptotic_one():
    rng = np.random.default_rng(7)
    texts = ["x" * int(length) for length in rng.integers(1, 200, 80) + np.arange(80)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    witness = scipy.stats.spearmanr(range(80), [len(t) for t in texts]).pvalue
    # Four standard errors of 9,999 draws, doubled for two sides.
    assert battery["length_trend"].p_value == pytest.approx(witness, abs=0.01)


def test_reversal_needs_only_what_points_forwards():
    texts = sentences(np.random.default_rng(9), 40)
    fields = {"label": [0, 1] * 20, "level": [1, 2, 3, 4] * 10, "id": texts[:]}
    battery = pretest_battery(texts, fields, seed=0)
    assert {test.name for test in battery if test.directional} == {
        "length_trend",
        "length_steps",
        "alphabetical_trend",
        "number_trend",
        "number_steps",
        "label_steps:level",
        "blind_direction:words",
        "blind_direction:characters",
        "forward_numbers",
        "forward_dates",
        "forward_names",
        "forward_references",
        "forward_turns",
        "forward_translations",
        "learned_direction",
    }
    assert len(battery) > 24


def test_every_field_is_looked_at_for_what_it_can_show():
    rows = [
        {
            "id": f"q{i}",
            "unread": 7 * i + 1000,
            "label": i % 2,
            "level": i % 3,
            "constant": "x",
            "passage": f"passage {'a' * (i // 2)}",
            "question": "why " * (i % 7) + chr(97 + i % 26) * i,
        }
        for i in range(40)
    ]
    texts = [f"{row['id']}: {row['question']}" for row in rows]
    battery = pretest_battery(texts, columns(rows), seed=0)
    of_fields = {
        test.name
        for test in battery
        if ":" in test.name and not test.name.startswith("blind_")
    }
    assert of_fields == {
        "number_trend:id",
        "number_steps:id",
        "equal_neighbours:label",
        "label_trend:label",
        "equal_neighbours:level",
        "label_trend:level",
        "label_autocorrelation:level",
        "label_steps:level",
        "shared_context:passage",
        "alphabetical_trend:question",
    }
    # The first number of these texts is the id, which is checked by its own name.
    assert "number_trend" not in {test.name for test in battery}
    assert columns([None] * 40) == {}


def test_many_label_fields_do_not_drown_a_sorted_file():
    rng = np.random.default_rng(10)
    texts = sorted(sentences(rng, 240), key=len)
    fields = {f"label{i}": rng.integers(0, 3, 240).tolist() for i in range(30)}
    assert {"length_autocorrelation", "length_trend"} <= failed(texts, fields)


def test_passage_before_each_question_is_found_in_plain_text():
    rng = np.random.default_rng(18)
    passages = [" ".join(rng.choice(VOCABULARY, 12)) for _ in range(50)]
    texts = [
        f"Passage: {p} Question: {rng.choice(VOCABULARY)}?"
        for p in passages
        for _ in "ab"
    ]
    assert "shared_beginning" in failed(texts)
    assert "shared_beginning" not in failed([texts[i] for i in rng.permutation(100)])


@pytest.mark.parametrize("place", ["first", "field"])
def test_numbers_in_the_order_of_the_file_fail(place):
    questions = duplicated(np.random.default_rng(19), 80, 0)
    if place == "first":
        texts, fields, suffix = (
            [f"{q} (No. {i})" for i, q in enumerate(questions, 100)],
            {},
            "",
        )
    else:
        fields = {"id": [f"dev-{i}" for i in range(100, 180)], "q": questions}
        texts, suffix = [f"{q} 7 dev-{i}" for i, q in enumerate(questions, 100)], ":id"
    battery = pretest_battery(texts, fields, seed=0)
    found = {test.name for test in battery if not test.passed}
    numbers = {f"number_trend{suffix}", f"number_steps{suffix}", "forward_numbers"}
    assert found == numbers
    # What fails without a remedy of its own takes that of another.
    named = {test.name: test.remedy for test in battery if test.remedy}
    assert named == (
        {} if place == "first" else dict.fromkeys(numbers, "--text-field q")
    )


def test_row_numbers_that_no_model_reads_prove_nothing():
    questions = duplicated(np.random.default_rng(20), 80, 0)
    assert not failed(questions, {"id": list(range(1000, 1080))})


def test_turns_that_start_again_fail_for_the_reversed_order_too():
    texts = duplicated(np.random.default_rng(21), 80, 0)
    battery = pretest_battery(texts, {"turn": [1, 2, 3, 4] * 20}, seed=0)
    found = {test.name for test in battery if test.directional and not test.passed}
    assert found == {"label_steps:turn"}


def test_groups_stay_in_their_places():
    values = ["a", "a", "b", "c", "c", "c", "a"]
    orders = np.concatenate(list(draw_orders(7, 50, seed=0, groups=values)))
    moved = np.array(values)[orders]
    assert (moved == np.array(values)).all()
    assert (np.sort(orders, axis=1) == np.arange(7)).all()


def test_drawn_orders_are_uniform():
    orders = np.concatenate(list(draw_orders(4, 24_000, seed=0)))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("two_sided", [True, False])
def test_pvalues_are_near_those_of_all_orders(two_sided):
    values = centred_ranks([3, 1, 4, 1, 5, 9])
    orders = np.array(list(itertools.permutations(range(6))), np.int32)
    for statistic in (autocorrelation(values), trend(values), steps(values)):
        of_all = statistic(orders)
        above = np.mean(of_all >= of_all[0] - 1e-9)
        below = np.mean(of_all <= of_all[0] + 1e-9)
        exact = min(1.0, 2 * min(above, below)) if two_sided else above
        drawn = statistic(np.concatenate(list(draw_orders(6, 9_999, seed=1))))
        found = permutation_p(float(of_all[0]), drawn, two_sided=two_sided)
        # Four standard errors of 9,999 draws, doubled for two sides.
        assert found == pytest.approx(exact, abs=0.04 if two_sided else 0.02)


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "b"],
        ["same"] * 30,
        [""] * 5,
        ["...", "?!", "...", ""],
        ["9" * 6_000, "1", "2", "3"],
        ["one"],
    ],
)
def test_degenerate_files_give_pvalues(texts):
    n = len(texts)
    fields = {
        "none": [None] * n,
        "empty": [""] * n,
        "mixed": ([math.nan, 10**400, "x", None, [1], True] * n)[:n],
        "numbers": ([1, math.nan, 10**400, None] * n)[:n],
    }
    battery = pretest_battery(texts, fields, seed=0)
    assert all(0 < test.p_value <= 1 for test in battery)
    assert not failed(texts)


def test_numbers_are_read_as_a_person_would():
    assert numbers([None, math.nan, 10**400])[2] == math.inf
    assert numbers(["1", " -2.5 "]).tolist() == [1.0, -2.5]
    assert numbers([True, 1]) is None
    assert natural_order(["item 10", "item 9", None]).tolist()[:2] == [1, 0]


def test_gate_corrects_over_what_could_fail():
    tests = [
        Pretest("a", 1.0, 0.004, True),
        Pretest("b", 1.0, 0.02, True),
        Pretest("c", 0.0, 1.0, False, applicable=False),
    ]
    assert [test.passed for test in gate(tests)] == [False, True, True]
    assert gate([]) == ()


def test_what_no_order_changes_is_not_applicable():
    texts = [f"{i:04d}" for i in np.random.default_rng(0).permutation(100)]
    battery = {test.name: test for test in pretest_battery(texts, {}, seed=0)}
    assert not battery["length_trend"].applicable
    assert battery["length_trend"].passed
    assert battery["alphabetical_trend"].applicable


@pytest.mark.parametrize("counts", [True, False])
def test_law_of_long_files_is_near_that_of_more_orders(counts):
    rng = np.random.default_rng(25)
    if counts:
        values = equal_neighbours(rng.integers(200, size=600))
    else:
        values = autocorrelation(centred_ranks(rng.normal(size=600)))
    orders = np.concatenate(list(draw_orders(600, 30_000, seed=0)))
    drawn = values(orders)
    extreme = float(np.sort(drawn)[-60])
    expected = permutation_p(extreme, drawn, two_sided=False)
    found = tail_p(extreme, drawn[:999], two_sided=False, counts=counts)
    # 60 of 30,000 orders, a law fitted to 999: within a factor of 2.
    assert found == pytest.approx(expected, rel=0.5, abs=expected)
    assert tail_p(extreme, drawn[:999], two_sided=True, counts=counts) >= found


def test_rare_events_of_long_files_are_no_evidence_by_themselves():
    # Two equal neighbours where 999 orders had none: not 1e-15, as a normal law says.
    found = tail_p(2.0, np.zeros(999), two_sided=False, counts=True)
    assert 1e-8 < found < 1e-5


# Seven seconds.
@pytest.mark.slow
def test_drift_of_a_long_file_is_found():
    rng = np.random.default_rng(26)
    topic, texts = rng.choice(VOCABULARY, 12), []
    for _ in range(15_001):
        topic = topic if rng.random() < 0.02 else rng.choice(VOCABULARY, 12)
        texts.append(" ".join(rng.choice(topic, 12)))
    assert {"tfidf_adjacency", "blind_attraction:words"} <= failed(texts)
    shuffled = [texts[i] for i in rng.permutation(len(texts))]
    assert not failed(shuffled)
