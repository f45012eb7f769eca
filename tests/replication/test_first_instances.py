"""Copies of first rows, near copies, and what only looks like the file."""

import dataclasses
import json

import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.comparisons import (
    first_instances,
    format_signs,
    match_of,
)
from jaxcontam.scoring.completer import Completion
from tests.support.completers import Scripted, comparison_inputs

SENTENCES = [
    "The harbour master counted eleven grey boats before the fog came in",
    "Nobody in the village remembered who had painted the old water tower",
    "A retired teacher sold her piano to the circus for forty crowns",
    "Rain had kept the beekeeper indoors since early on Tuesday morning",
    "Two engineers argued about the bridge until the last train was gone",
    "My cousin keeps a lighthouse where no ship has passed in years",
]
NOISE = "A man walks in a park. A woman reads a book. The film was quite good."


def benchmark(n=6):
    rows = tuple(
        {
            "premise_text": SENTENCES[i],
            "verdict": ("supports", "refutes")[i % 2],
            "uid": f"zq_{1000 + i}",
        }
        for i in range(n)
    )
    return Benchmark("claims", tuple(map(json.dumps, rows)), rows)


def ask(answer, data=None, **options):
    completer = Scripted(answer if callable(answer) else lambda *_: answer)
    names = {"dataset": "Claims", "split": "dev"}
    given = comparison_inputs(completer, benchmark=data or benchmark(), **names)
    result, rows = first_instances(dataclasses.replace(given, **options))
    return result, rows, completer


def test_a_model_that_writes_the_file_is_suspected_of_having_read_it():
    data = benchmark()
    result, rows, completer = ask("\n".join(data.texts[:5]), max_tokens=99, seed=5)
    assert (result.finding, result.verdict) == ("copied", "suspected")
    assert (result.n_found, result.n_instances, result.rate) == (5, 5, 1.0)
    assert [row["match"] for row in rows] == ["exact"] * 5
    assert (result.method, result.primary) == ("first_instances", False)
    assert result.fingerprint == data.fingerprint
    # One greedy request, that names the split.
    (call,) = completer.calls
    (prompt,) = call["prompts"]
    assert "first 5 instances" in prompt and "dev split of the Claims" in prompt
    assert (call["temperature"], call["max_tokens"], call["seed"]) == (0.0, 99, 5)
    assert not any(sentence in prompt for sentence in SENTENCES)


def test_a_model_that_writes_something_else_is_not():
    # The last one is no more among the first rows.
    for answer in (NOISE, SENTENCES[5]):
        result, rows, _ = ask(answer)
        assert (result.finding, result.verdict) == ("nothing found", "no evidence")
        assert (result.n_found, result.rate) == (0, 0.0)
        assert [row["match"] for row in rows] == ["no"] * 5


JSON_TEXT = 'Caf\u00e9 owners met on Monday.\nThey chose a new "mayor" of nine streets.'
JSON_ROW = {"body": JSON_TEXT, "kind": "news"}
SIGNS = "\u65e9\u4e0a\u4ed6\u53bb\u6e2f\u53e3\u770b\u8239"


def lines(*texts, rows=None):
    return Benchmark("lines", texts, rows or (None,) * len(texts))


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (SENTENCES[4], None),
        (f"1) {SENTENCES[3].upper()}!\n{NOISE}", None),
        (f"premise | label\n{SENTENCES[0]} | ?", None),
        (SENTENCES[2].replace(" ", "\n"), None),
        (f"- {SENTENCES[1]}", lines(*SENTENCES)),
        # JSON with escapes and without, of the same text.
        (json.dumps([JSON_ROW]), lines(json.dumps(JSON_ROW), rows=(JSON_ROW,))),
        (json.dumps(JSON_ROW, ensure_ascii=False), lines("", rows=(JSON_ROW,))),
        # Scripts without spaces have a word a character.
        (f"1. {SIGNS}\u3002", lines(SIGNS)),
    ],
)
def test_one_exact_copy_is_enough_in_any_layout(answer, data):
    assert ask(answer, data)[0].finding == "copied"
    assert ask(NOISE, data)[0].finding == "nothing found"


def test_two_near_copies_are_enough_and_one_is_suspicious():
    near = [text.replace("the ", "a ", 1) for text in SENTENCES[:2]]
    assert near[0] != SENTENCES[0] and near[1] != SENTENCES[1]
    two, rows, _ = ask("\n".join(near))
    assert [row["match"] for row in rows[:2]] == ["near", "near"]
    assert two.finding == "copied"
    one, _, _ = ask(near[0])
    assert (one.finding, one.verdict, one.n_found) == ("suspicious", "no evidence", 1)


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        ('{"premise_text": "?", "verdict": "?", "uid": 1}', "field names"),
        ("Each claim is one that supports or refutes it.", "all labels of 'verdict'"),
        ("zq_1002: no idea", "an identifier (zq_1002)"),
    ],
)
def test_what_looks_like_the_file_is_suspicious(answer, sign):
    result, _, _ = ask(answer)
    assert (result.finding, result.verdict) == ("suspicious", "no evidence")
    assert sign in result.warnings[-1]


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        # An identifier of a later row, or inside another word.
        (lambda i: {"uid": f"zq_{1000 + i}"}, "zq_1005 and xzq_10021"),
        # Numbers are no labels.
        (lambda i: {"year": (1998, 1999)[i % 2]}, "films of 1998 and 1999"),
        # Anybody would guess these names and labels.
        (
            lambda i: {"label": ("positive", "negative")[i % 2], "id": str(i)},
            '{"id": 0, "text": "Good film.", "label": "positive"} or negative, 1 2 3',
        ),
        # A refusal that names what every such set has.
        (
            lambda i: {"label": ("entailment", "contradiction")[i % 2], "premise": i},
            "I cannot recite it. Each instance has a premise, a text and a label, "
            "which is entailment or contradiction.",
        ),
    ],
)
def test_what_anybody_would_guess_is_no_sign(fields, answer):
    rows = tuple({"text": SENTENCES[i], **fields(i)} for i in range(6))
    data = Benchmark("set", tuple(map(json.dumps, rows)), rows)
    assert format_signs(data, 5, answer) == ()
    assert ask(answer, data)[0].finding == "nothing found"


def test_short_rows_cannot_be_told_from_chance():
    data = Benchmark("short", ("yes it is", "no"), (None, None))
    result, rows, _ = ask("yes it is\nno", data)
    assert [row["match"] for row in rows] == [None, None]
    assert result.rate is None and result.n_found == 0
    assert "2 of 2 rows have fewer than 8 words" in result.warnings[0]
    # Short values that make a long row count together.
    values = ["one fine day", "of early spring", "with much sun"]
    assert match_of(values, "One fine day, of early spring: with much sun.") == "exact"
    assert match_of(values, "one fine day of early spring with some sun") == "near"


def test_a_refused_request_and_an_empty_answer_say_nothing():
    refused, _, _ = ask(Completion(text="", refused="filtered"))
    assert (refused.finding, refused.verdict) == ("refused", None)
    assert refused.n_refused == 1 and refused.rate is None
    empty, _, _ = ask("<think>I should not</think>")
    assert (empty.finding, empty.verdict, empty.rate) == ("no answer", None, None)
