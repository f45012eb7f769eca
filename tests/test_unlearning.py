"""Screens, arms and similarities of `unlearning`, and the texts that it reads."""

import dataclasses
import json
import math

import numpy as np
import pytest

from jaxcontam.analyses.method_notes import method_words
from jaxcontam.analyses.unlearning_samples import Sampled, rouge_similarities
from jaxcontam.analyses.unlearning_texts import (
    ScreenDesign,
    load_chunks,
    load_questions,
)
from jaxcontam.errors import InputError
from jaxcontam.methods.unlearning import (
    Similarities,
    draw_arms,
    is_suspicious,
    perplexity_ratios,
    score_ratios,
    screen_result,
    similarity_result,
)
from jaxcontam.report.unlearning import unlearning_sentences
from jaxcontam.scoring.similarity_judge import parse_number
from jaxcontam.stats.proportions import wilson_interval

NAMES = {"name": "book", "fingerprint": "sha256:0", "task": "chunks"}


def test_ratio_is_the_score_after_over_the_score_before():
    ratio = score_ratios(np.array([-1.0, -2.0, -4.0]), np.array([-3.0, -2.0, -1.0]))
    np.testing.assert_allclose(ratio, [3.0, 1.0, 0.25])


def test_ratios_of_certain_models_are_defined():
    original = np.array([0.0, 0.0, -1.0, np.nan, -1.0])
    unlearned = np.array([0.0, -1.0, 0.0, -1.0, np.nan])
    ratio = score_ratios(original, unlearned)
    np.testing.assert_array_equal(ratio, [1.0, np.inf, 0.0, np.nan, np.nan])
    assert is_suspicious(ratio).tolist() == [True, False, False, False, False]


def test_perplexity_ratio_is_that_of_perplexities():
    original, unlearned = np.array([-1.0, -2.0]), np.array([-1.5, -1.0])
    expected = np.exp(-unlearned) / np.exp(-original)
    np.testing.assert_allclose(perplexity_ratios(original, unlearned), expected)
    assert np.isfinite(perplexity_ratios(np.array([0.0]), np.array([-1e4]))).all()


def test_suspicious_ratios_lie_strictly_within_the_bound():
    ratio = np.array([1 / 1.15, 1 / 1.15 + 1e-9, 1.0, 1.15 - 1e-9, 1.15])
    assert is_suspicious(ratio).tolist() == [False, True, True, True, False]


def test_which_model_comes_first_does_not_matter():
    rng = np.random.default_rng(0)
    a, b = -rng.gamma(2.0, size=(2, 500))
    np.testing.assert_array_equal(
        is_suspicious(score_ratios(a, b)), is_suspicious(score_ratios(b, a))
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: score_ratios(np.zeros(2), np.zeros(3)), "must have shape"),
        (lambda: score_ratios(np.ones(1), np.zeros(1)), "at most 0"),
        (lambda: is_suspicious(np.ones(1), 1.0), "bound must be above 1"),
    ],
)
def test_arrays_that_are_no_scores_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def screened(ratio, bound=1.15):
    return screen_result(
        np.array(ratio),
        **NAMES,
        method="min_k",
        setting="k=20%",
        primary=True,
        bound=bound,
    )


def test_a_screen_counts_texts_that_have_a_score():
    row = screened([1.0, 1.1, 2.0, np.nan])
    assert (row.n_texts, row.n_unscored, row.n_suspicious) == (3, 1, 2)
    assert (row.share_low, row.share_high) == wilson_interval(2, 3)
    assert row.ratio_median == 1.1
    assert "never knew" in row.warnings[0]
    assert row.warnings[1:] == ("chunks without a score, which are left out: 1",)


def test_an_infinite_median_is_missing_and_no_number():
    assert screened([np.inf, np.inf, 1.0]).ratio_median is None


def test_arms_are_disjoint_usable_and_at_most_so_many():
    rng = np.random.default_rng(1)
    suspicious, usable = rng.random((2, 200)) < 0.5
    selected, unselected = draw_arms(suspicious, usable, most=30, seed=3)
    assert len(selected) == len(unselected) == 30
    assert suspicious[selected].all() and not suspicious[unselected].any()
    assert usable[selected].all() and usable[unselected].all()
    again = draw_arms(suspicious, usable, most=30, seed=3)
    np.testing.assert_array_equal(again[0], selected)
    whole, _ = draw_arms(suspicious, usable, most=200, seed=3)
    np.testing.assert_array_equal(whole, np.flatnonzero(suspicious & usable))


def compared(selected, unselected, elsewhere=None, seed=0):
    selected = np.array(selected, float)
    found = Similarities(
        method="rouge_l_recall",
        selected_AK=selected,
        unselected_AK=np.array(unselected, float).reshape(-1, selected.shape[1]),
        elsewhere_AK=None if elsewhere is None else np.array(elsewhere, float),
    )
    return similarity_result(
        found, **NAMES, primary=True, n_samples=selected.shape[1], seed=seed
    )


def test_means_are_over_texts_of_the_mean_over_samples():
    row = compared(
        [[0.2, 0.4], [np.nan, 0.9]], [[0.0, 0.2]], elsewhere=[[0.1, 0.1], [0.1, 0.2]]
    )
    assert row.selected == pytest.approx((0.3 + 0.9) / 2)
    assert row.unselected == pytest.approx(0.1)
    assert row.difference == pytest.approx(0.5)
    assert row.above_elsewhere == pytest.approx((0.2 + 0.7) / 2)
    assert row.best == 0.9
    assert row.n_unparsed == 1
    assert any("2 suspicious texts" in words for words in row.warnings)


def test_without_texts_of_an_arm_numbers_are_missing_and_said_so():
    row = compared([[0.5]] * 12, [])
    assert (row.unselected, row.difference, row.above_elsewhere) == (None, None, None)
    assert row.warnings == (
        "no other text to sample from: there is nothing to compare",
    )
    nothing = compared(np.zeros((0, 3)), np.ones((11, 3)))
    assert (nothing.selected, nothing.best, nothing.difference) == (None, None, None)


def test_intervals_hold_the_true_difference():
    rng = np.random.default_rng(7)
    n, hits = 200, 0
    for i in range(n):
        arms = rng.beta(2.0, 5.0, size=(30, 4)), rng.beta(2.0, 6.0, size=(25, 4))
        row = compared(*arms, seed=i)
        hits += row.difference_low <= 2 / 7 - 2 / 8 <= row.difference_high
    # 4 standard errors below 93 %, which the percentile bootstrap has at n = 25 to 30.
    assert hits / n >= 0.93 - 4 * math.sqrt(0.93 * 0.07 / n)


def test_recall_elsewhere_is_against_the_next_suspicious_text():
    sampled = Sampled(
        selected=np.array([0, 2]),
        unselected=np.array([1]),
        samples={0: ("a b", "c d"), 1: ("x", ""), 2: ("c", "d c")},
        truths={0: "a b", 1: "x y", 2: "c d"},
        n_cut_prompts=0,
    )
    found = rouge_similarities(sampled)
    np.testing.assert_allclose(found.selected_AK, [[1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(found.unselected_AK, [[0.5, 0.0]])
    np.testing.assert_allclose(found.elsewhere_AK, [[0.0, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("4\nThe same events.", 4),
        ("Score: 3", 3),
        ("**5** - alike", 5),
        ("2/5", 2),
        ("I give it a 1.", 1),
        ("4 - mostly the same events", 4),
        ("The same scene.\n\n**Score (1-5):** 4/5", 4),
        ("Score: 2 at first. On a second look the rating is 3.", 3),
        ("3 of the events are alike.\n2\n", 2),
        ("<think>maybe 2\n2\n</think>\n5", 5),
        ("2\n</think>\n5", 5),
        ("<think>\n2\n", None),
        ("On a scale of 1 to 5: the same", None),
        ("a score of 1 to 5 is asked for", None),
        ("Score: 3-4", None),
        ("3-4", None),
        ("-3", None),
        ("Score: -3", None),
        ("1. The first begins with a storm.", None),
        ("Score: 4.5", None),
        ("4.5", None),
        ("7", None),
        ("14", None),
        ("four", None),
        ("", None),
    ],
)
def test_a_number_stands_for_itself_or_is_missing(answer, number):
    assert parse_number(answer) == number


def chunks(path, **changes):
    settings = {"words": 4, "prompt_words": 3}
    return load_chunks(str(path), ScreenDesign(**(settings | changes)))


def test_a_txt_file_is_one_text_and_its_short_end_is_left_out(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("a b\nc d  e f g\th i j\n")
    found = chunks(path)
    assert [item.text for item in found.items] == ["a b\nc d", "e f g\th"]
    assert [item.prompt for item in found.items] == ["a b\nc", "e f g"]
    assert [item.truth for item in found.items] == ["d", "h"]
    assert (found.name, found.n_left_out) == ("book", 1)


def test_a_text_that_is_shorter_than_a_chunk_is_one_chunk(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a b"}\n{"text": "a b c d e"}\n{"text": " "}\n')
    found = chunks(path)
    assert [item.text for item in found.items] == ["a b", "a b c d"]
    assert [item.source for item in found.items] == ["row 1", "row 2"]
    assert [item.has_truth for item in found.items] == [False, True]
    assert found.n_empty == 1


def test_a_folder_holds_a_text_a_file(tmp_path):
    (tmp_path / "b.txt").write_text("e f g h")
    (tmp_path / "a.txt").write_text("a b c d")
    found = chunks(tmp_path)
    assert [item.source for item in found.items] == ["a", "b"]


def test_texts_without_words_are_one_clear_line(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(" \n")
    with pytest.raises(InputError, match="no words"):
        chunks(path)


def test_questions_fill_the_template_and_keep_their_answers(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "Who {x}?", "answer": "Ann"}) + "\n")
    design = ScreenDesign(template=r"Q: {question}\nA:")
    (item,) = load_questions(str(path), design).items
    assert (item.text, item.truth) == ("Who {x}?", "Ann")
    assert item.prompt == "Q: Who {x}?\nA:"
    with pytest.raises(InputError, match="no field 'reply'"):
        load_questions(str(path), ScreenDesign(answer_field="reply"))


@pytest.mark.parametrize(
    ("answer", "truth"),
    [(0, "0"), (False, "false"), (1.5, "1.5"), ("", ""), (None, "")],
)
def test_every_answer_but_null_is_text(tmp_path, answer, truth):
    (item,) = asked(tmp_path, answer).items
    assert item.truth == truth


@pytest.mark.parametrize("answer", [["a", "b"], [], {"a": 1}])
def test_answers_that_are_several_are_refused(tmp_path, answer):
    with pytest.raises(InputError, match="row 1: field 'answer' is neither text nor"):
        asked(tmp_path, answer)


def asked(tmp_path, answer):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answer": answer}) + "\n")
    return load_questions(str(path), ScreenDesign(template="{question}"))


def test_a_sentence_on_few_texts_stands_once_and_one_text_is_singular():
    screen, first = screened([1.0]), compared([[0.5]], [[0.1]])
    measures = [first, dataclasses.replace(first, primary=False, method="judge")]
    others = [dataclasses.replace(row, task="questions") for row in measures]
    words_of = method_words([screen.method])
    words = unlearning_sentences([screen, *measures], words_of)
    assert words[0].startswith("1 of 1 chunk scores alike")
    few = "1 suspicious text: the interval is that of few texts and may be too narrow."
    assert words.count(few) == 1
    both = unlearning_sentences([screen, *measures, *others], words_of)
    assert both.count(few) == 2
