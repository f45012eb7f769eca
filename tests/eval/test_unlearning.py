"""`python -m eval.unlearning` on a tiny model that was tuned to forget half a file."""

import csv
import io
import re

import numpy as np
import pytest

from eval.unlearning import (
    _GRADE,
    Sampled,
    Text,
    Unlearning,
    _people,
    draw_arms,
    is_suspicious,
    likeness,
    read_chunks,
    score_ratios,
)
from jaxcontam.errors import InputError
from jaxcontam.replication.overlap import rouge_l
from tests.support.unlearning_models import FORGOTTEN, KEPT, N_TEXTS

pytestmark = pytest.mark.unoptimised


def test_the_unlearned_model_writes_what_it_still_knows(study):
    found = study("unlearning").document
    screens = [row for row in found["results"] if "share" in row]
    assert [row["method"] for row in screens] == ["min_k", "perplexity"] * 2
    chunks = [row for row in found["texts"] if row["task"] == "chunks"]
    assert [row["text"] for row in chunks] == FORGOTTEN + KEPT
    suspicious = np.array([row["suspicious"] for row in chunks])
    assert not suspicious[:N_TEXTS].any()
    # Single ratios of a model of this size vary; most lie within the bound.
    assert suspicious[N_TEXTS:].mean() > 0.5
    assert screens[0]["n_suspicious"] == suspicious.sum()
    for row in chunks:
        before, loss_before, after, loss_after = row["scores"]
        assert row["ratios"]["min_k"] == pytest.approx(after / before, rel=1e-12)
        ratio = np.exp(loss_before - loss_after)
        assert row["ratios"]["perplexity"] == pytest.approx(ratio, rel=1e-12)
        recalls = [rouge_l(row["truth"], one).recall for one in row["samples"]]
        assert row["rouge_l_recall"] == recalls and len(recalls) == 4
    of_chunks = [row for row in found["results"] if row["task"] == "chunks"]
    rouge, cosine, judge = (row for row in of_chunks if "close" in row)
    assert rouge["selected"][1] > rouge["unselected"][2]
    assert rouge["above_elsewhere"][1] > 0.2
    assert -1 <= cosine["selected"][0] <= 1 + 1e-6
    assert judge["selected"][0] == judge["best"] == 4.0
    assert judge["close"] == 1.0
    assert "row-" in (study("unlearning").out / "annotate.csv").read_text()
    # A judge is asked once a sample, never about other truths.
    assert judge["above_elsewhere"] == [None, None, None]
    assert "samples" not in found["texts"][-1]
    assert re.fullmatch(r"unlearning-2@[0-9a-f]{12}", found["judge_prompt"])


def test_people_check_one_answer_of_each_question_and_a_rerun_reads_it(tmp_path):
    texts = [Text("q", f"What is {w}?", f"Question: {w}?\nAnswer:", w) for w in "abcd"]
    samples = {0: ("a", "x"), 1: ("y", "b"), 3: ("z", "z")}
    sampled = Sampled([0, 3], [1], samples, dict.fromkeys(samples, "-"))
    config = Unlearning(original="a", unlearned="b", questions="q", out=tmp_path)
    assert _people(texts, sampled, config) is None
    sheet = tmp_path / "annotate.csv"
    rows = list(csv.DictReader(io.StringIO(sheet.read_text("utf-8-sig"))))
    shown = {(row["reference"], row["candidate"]) for row in rows}
    wanted = {
        (f"Question: {'abcd'[i]}?\nAnswer: {'abcd'[i]}", samples[i][0]) for i in samples
    }
    assert shown == wanted
    for row in rows:
        row["label_1"] = {"a": "near", "y": "no", "z": ""}[row["candidate"]]
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    people = _people(texts, sampled, config)
    assert [people(i, i) for i in (0, 1)] == [[1.0], [0.0]]
    assert np.isnan([*people(3, 3), *people(0, 1)]).all()
    found = likeness(sampled, people, seed=0)
    assert (found["selected"][0], found["unselected"][0]) == (1.0, 0.0)


def test_ratios_of_certain_models_are_defined():
    original = np.array([0.0, 0.0, -1.0, np.nan, -1.0])
    unlearned = np.array([0.0, -1.0, 0.0, -1.0, np.nan])
    ratio = score_ratios(original, unlearned)
    np.testing.assert_array_equal(ratio, [1.0, np.inf, 0.0, np.nan, np.nan])
    assert is_suspicious(ratio).tolist() == [True, *[False] * 4]


def test_arms_are_disjoint_usable_and_at_most_so_many():
    rng = np.random.default_rng(1)
    suspicious, usable = rng.random((2, 200)) < 0.5
    selected, unselected = draw_arms(suspicious, usable, most=30, seed=3)
    assert len(selected) == len(unselected) == 30
    assert suspicious[selected].all() and not suspicious[unselected].any()
    assert usable[selected].all() and usable[unselected].all()


def test_short_ends_are_left_out_and_short_texts_are_chunks(tmp_path):
    (tmp_path / "b.txt").write_text("a b\nc d  e f g\th i j\n")
    (tmp_path / "c.txt").write_text("x y")
    found = read_chunks(str(tmp_path), 4, 3)
    assert [one.text for one in found] == ["a b\nc d", "e f g\th", "x y"]
    asked = [(one.prompt, one.truth) for one in found[:2]]
    assert asked == [("a b\nc", "d"), ("e f g", "h")]


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("4\nThe same.", "4"),
        ("**Score:** 2\nReason: other events", "2"),
        ("Score: 3-4", None),
        ("Score: 45", None),
        ("the same", None),
    ],
)
def test_a_grade_stands_for_itself_or_is_missing(answer, number):
    found = _GRADE.search(answer)
    assert (found and found[1]) == number


def test_a_judge_is_asked_in_the_words_of_a_file(tmp_path):
    path = tmp_path / "mine.txt"
    words = {"original": "a", "unlearned": "b", "texts": "t.txt", "judge_prompt": path}
    with pytest.raises(InputError, match=r"^--judge-prompt needs --judge api:URL#NAME"):
        Unlearning(**words)
    words["judge"] = "api:http://127.0.0.1:9/v1#m"
    path.write_text("Alike? {reference}\n")
    with pytest.raises(InputError, match=r"mine\.txt: no place {candidate}$"):
        Unlearning(**words)
    path.write_text("Alike? {reference}\n{candidate}\n")
    question = Unlearning(**words).judge_question
    assert question.asked("{candidate} a", "b ") == "Alike? {candidate} a\nb"
    assert question.version.startswith("mine@")
    # Ours asks for what is read back.
    own = Unlearning(**words | {"judge_prompt": None}).judge_question
    assert "Score: " in own.text and own.version != question.version


def test_a_model_is_not_compared_with_itself(study, tmp_path):
    folder = study("unlearning").folder
    same = str(folder / "original")
    words = {"texts": str(folder / "texts.jsonl"), "out": tmp_path / "out"}
    with pytest.raises(InputError, match="are the same model"):
        Unlearning(original=same, unlearned=same, **words).run()
