"""Forms in which blind spots are planted, and their wordings."""

import json

import numpy as np
import pytest
from scipy import stats

from eval.blind_spots.forms import (
    FORMS,
    UNSEEN,
    draw_sets,
    eligible,
    question_text,
)
from eval.blind_spots.seen import (
    controls_of,
)
from eval.blind_spots.wordings import N_WORDINGS, wordings
from eval.python_docs import Question
from jaxcontam.data.options import read_items
from jaxcontam.errors import InputError
from tests.blind_spot_questions import COPIES, N, made_up_questions

pytestmark = pytest.mark.unoptimised


@pytest.fixture(scope="module")
def questions():
    return made_up_questions(N * len(FORMS))


@pytest.fixture(scope="module")
def sets(questions):
    return {
        one.form.name: one
        for one in draw_sets(questions, n_examples=N, copies=COPIES, seed=3)
    }


def test_questions_whose_wordings_are_alike_are_left_out():
    plain = Question("Xyzzy plugh frobs", "a.b")
    rich = Question("Return the value of a given string", "a.c")
    assert eligible([plain, rich]) == [rich]


def test_sets_are_disjoint_and_the_same_for_the_same_seed(questions, sets):
    again = draw_sets(questions, n_examples=N, copies=COPIES, seed=3)
    other = draw_sets(questions, n_examples=N, copies=COPIES, seed=4)
    answers = []
    for one, two, three in zip(sets.values(), again, other, strict=True):
        assert one.planned.benchmark.texts == two.planned.benchmark.texts
        assert one.planned.planted == two.planned.planted
        assert one.planned.benchmark.texts != three.planned.benchmark.texts
        if one.versions is not None:
            answers += [t.split(" A: ")[1] for t in one.planned.benchmark.texts]
    assert len(answers) == len(set(answers)) == N * 10


def test_forms_are_planted_as_they_say(sets):
    planned = {name: one.planned for name, one in sets.items()}
    assert {name: one.copies for name, one in planned.items()} == {
        form.name: {"all": COPIES, "one": 1, "none": 0}[form.times] for form in FORMS
    }
    assert [name for name, one in planned.items() if one.shuffled] == [
        "shuffled",
        "reworded-shuffled",
        "items",
    ]
    assert [n for n, one in planned.items() if one.layout == "spread"] == ["spread"]
    changed = [name for name, one in planned.items() if one.texts_planted is not None]
    assert changed == ["reworded", "reworded-shuffled", "template", "record"]


def test_reworded_copies_say_another_version_of_the_published_text(sets):
    for name in ("reworded", "reworded-shuffled"):
        one = sets[name]
        for planted, row in zip(one.planned.planted, one.versions.rows, strict=True):
            assert planted in row[1:] and planted != row[0]


def test_reworded_sets_have_versions_without_what_is_planted(sets):
    with_them = [n for n, one in sets.items() if one.versions_without is not None]
    assert with_them == ["reworded", "reworded-shuffled"]
    for name in with_them:
        one = sets[name]
        for planted, row, all_of_it in zip(
            one.planned.planted,
            one.versions_without.rows,
            one.versions.rows,
            strict=True,
        ):
            # The published one stays first.
            assert row == tuple(text for text in all_of_it if text != planted)
            assert len(row) == N_WORDINGS - 1 and row[0] == all_of_it[0]


def test_published_wording_says_nothing_of_the_planted_one_but_that_it_is_another(
    questions,
):
    counts = np.zeros((N_WORDINGS, N_WORDINGS), int)
    sentences = {question.answer: question.sentence for question in questions}
    for seed in range(40):
        for one in draw_sets(questions, n_examples=N, copies=1, seed=seed):
            if one.versions_without is None:
                continue
            pairs = zip(one.planned.planted, one.versions_without.rows, strict=True)
            for planted, row in pairs:
                answer = planted.split(" A: ")[1]
                own = [question_text(s, answer) for s in wordings(sentences[answer])]
                counts[own.index(planted), own.index(row[0])] += 1
    assert not counts.diagonal().any()
    # 480 draws of fixed seeds; a fair draw fails this once in 10^6.
    assert stats.chisquare(counts[~np.eye(N_WORDINGS, dtype=bool)]).pvalue > 1e-6


def test_records_hold_the_answer_before_the_published_sentence(sets):
    one = sets["record"].planned
    for text, published in zip(one.planted, one.benchmark.texts, strict=True):
        record = json.loads(text)
        assert list(record) == ["function", "does"]
        assert question_text(record["does"], record["function"]) == published


def test_published_wording_is_drawn_evenly_and_first_of_its_row(questions):
    counts = np.zeros(N_WORDINGS, int)
    sentences = {question.answer: question.sentence for question in questions}
    for seed in range(20):
        for one in draw_sets(questions, n_examples=N, copies=1, seed=seed):
            if one.versions is None:
                continue
            assert tuple(r[0] for r in one.versions.rows) == one.planned.benchmark.texts
            for row in one.versions.rows:
                answer = row[0].split(" A: ")[1]
                own = [question_text(s, answer) for s in wordings(sentences[answer])]
                assert sorted(own) == sorted(row)
                counts[own.index(row[0])] += 1
    # 1,200 draws of fixed seeds; a fair draw fails this once in 10^6.
    assert stats.chisquare(counts).pvalue > 1e-6


def test_items_name_the_right_option_among_four(questions, sets):
    sentences = {q.answer: f"{q.sentence}?" for q in questions}
    for name in ("items", "items-unseen"):
        items = read_items(sets[name].planned.benchmark)
        for item, row in zip(items, sets[name].planned.benchmark.rows, strict=True):
            assert len(set(item.options)) == 4
            assert sentences[item.options[item.answer]] == row["question"]


def test_too_few_questions_are_refused(questions):
    with pytest.raises(InputError, match=f"{N * len(FORMS)} needed"):
        draw_sets(questions[1:], n_examples=N, copies=1, seed=0)


def test_controls_are_unseen_sets_of_the_same_kind_and_never_the_set_itself():
    found = {form.name: controls_of(form) for form in FORMS}
    assert found["block"] == UNSEEN
    assert found["unseen-a"] == ("unseen-b",)
    assert found["items"] == ("items-unseen",)
    assert found["items-unseen"] == ()
