"""Remedies of invalid designs: the first that is left, with its command."""

import pytest

from jaxcontam.report.remedies import advice, plain_name, remedy
from jaxcontam.stats.pretests import columns, pretest_battery

COMMAND = ["audit", "my model", "x.jsonl"]


def failing(name, remedy="", directional=False, statistic=1.0):
    return {
        "name": name,
        "statistic": statistic,
        "p_value": 1e-4,
        "passed": False,
        "directional": directional,
        "remedy": remedy,
        "note": None,
    }


LENGTH = failing("length_trend", directional=True)
WORDS = failing("tfidf_adjacency")
SUBJECT = failing("equal_neighbours:subject", "--group-field subject", statistic=90.0)
ANSWER = failing("equal_neighbours:answer", "--group-field answer", statistic=30.0)
PASSAGE = failing("shared_context:passage", "--block-field passage")
NUMBER = failing("number_trend:id", "--text-field question", directional=True)
BARE_NUMBER = failing("number_trend", directional=True)


def row(*failed, method="adjacency", group_field=None, verdict="invalid design"):
    passed = {**WORDS, "name": "length_autocorrelation", "passed": True}
    return {
        "verdict": verdict,
        "method": method,
        "group_field": group_field,
        "pretests": [passed, *failed],
    }


@pytest.mark.parametrize(
    ("failed", "flags"),
    [
        ([WORDS], "--tests reversal"),
        ([WORDS, PASSAGE], "--block-field passage"),
        ([ANSWER, PASSAGE, SUBJECT, LENGTH], "--group-field subject"),
        ([SUBJECT, NUMBER], "--text-field question"),
    ],
)
def test_best_remedy_comes_first(failed, flags):
    assert (
        remedy(row(*failed), COMMAND) == f"jaxcontam audit 'my model' x.jsonl {flags}"
    )


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ([LENGTH, WORDS], "a model that cannot have seen the file"),
        ([BARE_NUMBER, WORDS], "write the file again without the numbers"),
    ],
)
def test_order_with_an_arrow_is_not_sent_to_the_reversal_test(failed, words):
    assert remedy(row(*failed), COMMAND) is None
    assert words in advice(row(*failed), COMMAND)


def test_remedy_that_was_tried_is_not_named_again():
    tried = [*COMMAND, "--group-field", "subject", "--tests", "adjacency"]
    found = remedy(row(ANSWER, WORDS, group_field="subject"), tried)
    assert found is not None
    assert found.endswith("--group-field subject --tests reversal")
    tried = [*COMMAND, "--text-field", "question"]
    assert remedy(row(NUMBER), tried) is None
    assert remedy(row(WORDS, method="reversal"), COMMAND) is None


def test_new_text_replaces_the_old_one():
    tried = [*COMMAND, "--template", "{id} {question}", "--seed", "1"]
    words = "jaxcontam audit 'my model' x.jsonl --seed 1 --text-field question"
    assert remedy(row(NUMBER), tried) == words


def test_no_remedy_is_named_where_none_is_needed():
    assert remedy(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert advice(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert remedy(row(SUBJECT), ["quickstart"]) is None


def test_every_pretest_has_a_plain_name():
    rows = [
        {"id": f"q{i}", "level": i % 3, "passage": "p" * (i // 2), "q": f"is {i}?"}
        for i in range(40)
    ]
    texts = [f"{row['id']}: {row['passage']} {row['q']}" for row in rows]
    for test in pretest_battery(texts, columns(rows), seed=0):
        name = plain_name(test.name)
        assert "_" not in name and "{" not in name, name
        assert test.name.partition(":")[2] in name
    assert plain_name("equal_neighbours:subject") == "neighbours of equal subject"
