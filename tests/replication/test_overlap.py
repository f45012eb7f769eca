"""ROUGE-L by hand, overlaps of completions, and the rows of tests about them."""

import numpy as np
import pytest

from jaxcontam.replication.instances import possible_pieces
from jaxcontam.replication.overlap import (
    OVERLAP_TESTS,
    ROUGE_L,
    Measure,
    common_words,
    overlap_results,
    overlap_scores,
    rouge_l,
    rouge_words,
)
from jaxcontam.scoring.completer import Completion
from jaxcontam.stats.paired import sign_flip_test
from tests.support.instances import edits, instance


def test_common_words_equal_the_plain_table():
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = (list(rng.choice(list("abcde"), rng.integers(0, 90))) for _ in range(2))
        n_apart = edits(a, b, change=2)
        assert common_words(a, b) == (len(a) + len(b) - n_apart) / 2


@pytest.mark.parametrize(
    ("reference", "candidate", "recall", "precision"),
    [
        # The cases of Lin 2004, section 3.1: two orders of the same four words.
        ("police killed the gunman", "police kill the gunman", 3 / 4, 3 / 4),
        ("police killed the gunman", "the gunman kill police", 2 / 4, 2 / 4),
        ("one two three four", "four three two one", 1 / 4, 1 / 4),
        ("a b c", "x a y b z c", 1.0, 3 / 6),
        ("The CAT, (sat).", "the cat sat", 1.0, 1.0),
        ("it's", "it s", 1.0, 1.0),
        ("", "a", 0.0, 0.0),
        ("a", "", 0.0, 0.0),
        ("дом", "дом", 0.0, 0.0),
    ],
)
def test_hand_cases(reference, candidate, recall, precision):
    found = rouge_l(reference, candidate)
    assert (found.recall, found.precision) == pytest.approx((recall, precision))
    both = recall + precision
    expected = 2 * recall * precision / both if both else 0.0
    assert found.f1 == pytest.approx(expected)
    # Words are ASCII letters and digits, in lower case.
    assert rouge_words("Naïve 3.14 x_y\nÉ") == ["na", "ve", "3", "14", "x", "y"]


def cat(second="the cat sat on the mat", cut="inside"):
    return instance("Yesterday", second, cut=cut)


def test_rouge_reads_the_new_piece_alone_at_any_cut():
    done = [
        Completion(text=" the cat sat \n"),
        Completion(text="<think>The user wants a cat.</think> the cat sat"),
        # A published port drops empty answers before its test, which selects.
        Completion(text=""),
        Completion(text="", refused="filter"),
    ]
    for cut in ("inside", "sentence", "pair"):
        # 3 of 6 and 3 of 3 words: F is 2/3.
        scores = overlap_scores(ROUGE_L, [cat(cut=cut)] * 4, done)
        np.testing.assert_allclose(scores, [2 / 3, 2 / 3, 0, np.nan])
    # What an announcement leads to is cut as an answer is.
    text = "Sure! Here it is:\nYesterday the cat sat"
    assert possible_pieces(cat(), text) == (text, "the cat sat")
    assert possible_pieces(cat(), "Yesterday the cat sat") == ("the cat sat",)


def test_sentence_measures_see_the_whole_where_a_sentence_was_cut():
    seen = []

    def score(pairs):
        seen.extend(pairs)
        return np.zeros(len(pairs))

    measure = Measure(name="m", whole_when_inside=True, score=score)
    instances = [cat(cut=cut) for cut in ("inside", "sentence", "pair")]
    overlap_scores(measure, instances, [Completion(text=" a dog ")] * 3)
    assert seen == [
        ("Yesterday the cat sat on the mat", "Yesterday a dog"),
        ("the cat sat on the mat", "a dog"),
        ("the cat sat on the mat", "a dog"),
    ]


def rows(guided, general, **more):
    options = {"seed": 0, **more}
    return overlap_results(
        "rouge_l",
        np.array(guided, float),
        np.array(general, float),
        benchmark="set",
        fingerprint="sha256:0",
        prompt_version="p@1",
        **options,
    )


def test_the_exact_test_decides_and_bootstraps_stand_beside():
    general = np.random.default_rng(0).uniform(0.1, 0.3, 20)
    found = rows(general + 0.2, general)
    assert [row.method for row in found] == [f"rouge_l_{t}" for t in OVERLAP_TESTS]
    assert not any(row.primary for row in found)
    assert [row.validity for row in found] == ["exact", "asymptotic", "asymptotic"]
    assert {row.verdict for row in found} == {"suspected"}
    assert found[0].p_value == found[0].p_floor == 2**-20
    assert found[0].guided == pytest.approx(found[0].general + 0.2)
    assert found[1].p_floor is None
    # A seed gives the same rows, and draws the bootstraps alone.
    pair = np.random.default_rng(1).random((2, 10))
    one, same, other = (rows(*pair, seed=seed) for seed in (3, 3, 4))
    assert one == same and one[0] == other[0] and one[1] != other[1]
    none = rows([0.2] * 10, [0.2] * 10)
    assert [(row.p_value, row.verdict) for row in none] == [(1, "no evidence")] * 3
    # Equal scores ask for no more instances.
    assert "nothing to test" in none[0].warnings[0]


def test_pairs_without_both_answers_are_left_out_and_counted():
    nan = np.nan
    found = rows([0.5, 0.6, nan, 0.7, 0.8], [0.1, nan, 0.2, 0.3, 0.2])
    for row in found:
        assert (row.n_instances, row.n_left_out) == (3, 2)
        assert any("2 of 5" in warning for warning in row.warnings)
    alone = sign_flip_test(np.array([0.5, 0.7, 0.8]), np.array([0.1, 0.3, 0.2]))
    assert found[0].p_value == alone.p_value
    # Three pairs cannot reach 0.05, and the row says so.
    assert any("p cannot be below 0.125" in w for w in found[0].warnings)
    for guided in ([], [0.5], [0.5, nan]):
        for row in rows(guided, [0.1] * len(guided)):
            assert row.p_value is row.verdict is None
            assert any("no test with" in warning for warning in row.warnings)


def test_a_reference_that_rouge_cannot_read_is_left_out_not_zero():
    texts = ["кот сидел на ковре", "猫坐在垫子上", "Ленин в 1917", "?!"]
    texts.append("Nhà tôi ở đây, Ã†â€™Ãƒâ€š")
    done = [Completion(text=text) for text in texts]
    scores = overlap_scores(ROUGE_L, [cat(text) for text in texts], done)
    assert np.isnan(scores[:4]).all()
    assert scores[4] == 1
    found = rows(scores, scores)[0]
    assert (found.n_instances, found.n_left_out) == (1, 4)
    assert any("mostly in Latin letters" in words for words in found.warnings)
