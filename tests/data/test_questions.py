"""Questions of benchmark files, and scores of items in CSV files."""

import json

import pytest

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.questions import read_questions
from jaxcontam.data.templates import QuestionFields
from jaxcontam.score_gap.items import read_columns, read_model
from tests.support.refused import refusal

pytestmark = pytest.mark.unoptimised

CHOICE = {"id": "q7", "question": "2 + 2?", "choices": ["3", "4", "22"], "answer": "B"}
WRITTEN = {"question": "2 + 2?", "answer": "Two and two.\n#### 4"}


def read(tmp_path, *rows, **flags):
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_questions(load_benchmark(path), QuestionFields(**flags))


def test_a_record_with_options_is_a_prompt_and_texts_that_may_follow(tmp_path):
    (one,) = read(tmp_path, CHOICE)
    assert (one.item, one.prompt) == ("q7", "Question: 2 + 2?\nAnswer:")
    assert (one.choices, one.answer) == ((" 3", " 4", " 22"), 1)
    (one,) = read(tmp_path, CHOICE, text="{question}\\n{options}\\nAnswer:")
    assert one.prompt == "2 + 2?\nA. 3\nB. 4\nC. 22\nAnswer:"
    assert (one.choices, one.answer) == ((" A", " B", " C"), 1)
    # A text to continue stands as it is.
    row = {"ctx": "A man sits down. He", "endings": ["eats.", "flies."], "label": 0}
    (one,) = read(tmp_path, row)
    assert (one.prompt, one.choices) == ("A man sits down. He", (" eats.", " flies."))


def test_an_answer_without_options_is_to_be_written(tmp_path):
    solved, several = read(tmp_path, WRITTEN, {"question": "?", "answer": ["a", "b"]})
    assert (solved.choices, solved.written) == ((), ("4",))
    assert several.written == ("a", "b")


def test_what_is_null_is_neither_asked_nor_right_nor_a_name(tmp_path):
    nan = float("nan")
    row = WRITTEN | {"query": None, "answer": [None, "4"], "id": None, "uid": "u1"}
    (one,) = read(tmp_path, row)
    assert (one.item, one.written) == ("u1", ("4",))
    (other,) = read(tmp_path, row | {"question": nan, "text": "2 + 2 ="})
    assert other.prompt == "2 + 2 ="
    options = {"A": 3, "B": 4, "C": 5, "D": nan, "answer": "B"}
    (two,) = read(tmp_path, {"question": "2 + 2?"} | options)
    assert two.choices == (" 3", " 4", " 5")
    for answer in (None, nan, [None]):
        said, _ = refusal(read, tmp_path, WRITTEN | {"answer": answer})
        assert "no answer" in said
    rows = WRITTEN | {"id": 1}, WRITTEN | {"id": None}
    assert (
        "example 2: id is null" in refusal(read, tmp_path, *rows, fields=("id=id",))[0]
    )


def test_items_without_a_name_have_their_number(tmp_path):
    assert [one.item for one in read(tmp_path, WRITTEN, WRITTEN)] == ["1", "2"]
    named = [WRITTEN | {"of": name} for name in ("x", "y")]
    assert [one.item for one in read(tmp_path, *named, fields=("id=of",))] == ["x", "y"]


@pytest.mark.parametrize(
    ("row", "flags", "words"),
    [
        (CHOICE | {"answer": "maybe"}, {}, "example 1: no field names the right opt"),
        (CHOICE, {"text": "{question} {answer}"}, "'answer' is the answer"),
        (CHOICE | {"cop": 1}, {"text": "{question} {cop}"}, "'cop' is the answer"),
        ({"question": "?", "x": 1}, {}, "example 1: no answer (it has: question, x)"),
        ({"q": "?", "answer": "1"}, {}, "example 1: no question (it has: q, answer)"),
        ({"question": "?", "answer": [""]}, {}, "'answer' holds no answer"),
        (WRITTEN, {"fields": ("id=nr",)}, "no field 'nr'"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, row, flags, words):
    assert words in refusal(read, tmp_path, row, **flags)[0]


def test_columns_and_files_of_scores_are_read(tmp_path):
    wide, one = tmp_path / "wide.csv", tmp_path / "one.csv"
    wide.write_text("item,a,b\nx,1,0.5\ny,0,\n")
    assert read_columns(wide, ["b", "a"]) == [{"x": 0.5}, {"x": 1.0, "y": 0.0}]
    one.write_text("item,published,other\nx,1,0\ny,,1\n")
    assert read_model(one) == ({"x": 1.0}, {"x": 0.0, "y": 1.0})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,b\nx,1\n", "unknown column of"),
        ("name,a\nx,1\n", "no column of items (it has: name, a)"),
        ("item,a\nx,1\nx,0\n", "item 'x' occurs twice"),
        ("item,a\nx,87\n", "item 'x': a: not a score in [0, 1] ('87')"),
        ("item,a\nx,nan\n", "item 'x': a: not a score in [0, 1] ('nan')"),
        ("item,a\nx,right\n", "item 'x': a: not a score in [0, 1] ('right')"),
    ],
)
def test_what_is_no_file_of_scores_is_refused(tmp_path, text, words):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    assert words in refusal(read_columns, path, ["a"])[0]
