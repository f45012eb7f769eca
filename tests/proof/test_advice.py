"""What to do next: flags that a command has not tried, the best first."""

import pytest

from jaxcontam.methods import method_words
from jaxcontam.proof.advice import AuditedFile, next_steps, plain_name
from jaxcontam.stats.pretests import columns, pretest_battery
from jaxcontam.stats.result import Pretest
from tests.support.report_documents import order_result


def failing(name, remedy="", directional=False, statistic=1.0):
    return Pretest(
        name=name,
        statistic=statistic,
        p_value=1e-4,
        passed=False,
        directional=directional,
        remedy=remedy,
    )


LENGTH = failing("length_trend", directional=True)
WORDS = failing("tfidf_adjacency")
SUBJECT = failing("equal_neighbours:subject", "--group-field subject", statistic=90.0)
ANSWER = failing("equal_neighbours:answer", "--group-field answer", statistic=30.0)
PASSAGE = failing("shared_context:passage", "--block-field passage")
NUMBER = failing("number_trend:id", "--text-field question", directional=True)
BARE_NUMBER = failing("number_trend", directional=True)
NAMES = failing("blind_direction:words", directional=True)
PLACES, LONG = failing("answer_place"), failing("option_length")
NULLS = {
    "direction": "reversibility",
    "options": "exchangeability of options",
    "canary": "designed randomisation",
}


def row(*failed, method="adjacency", verdict="invalid design", **changes):
    fields = {"null": NULLS.get(method, "exchangeability"), "verdict": verdict}
    passed = Pretest("length_autocorrelation", 0.1, 0.5, True)
    fields |= {"method": method, "log10_p": -9.0, "pretests": (passed, *failed)}
    return order_result("x", **fields | changes)


def suspected(method, *reasons, **changes):
    return row(method=method, verdict="suspected", reasons=reasons, **changes)


def beside(method):
    return suspected(method, primary=False, p_adjusted=None)


ALONE = "--reference DIR --score-anyway"
ASKED = ["--reference DIR", "--shuffled"]
APPROXIMATE = ("approximate", "no reference")


@pytest.mark.parametrize(
    ("rows", "typed", "flags"),
    [
        ([row(WORDS)], "", ["--tests direction"]),
        ([row(WORDS, PASSAGE)], "", ["--block-field passage"]),
        ([row(ANSWER, PASSAGE, SUBJECT, LENGTH)], "", ["--group-field subject"]),
        ([row(SUBJECT, NUMBER)], "", ["--text-field question"]),
        # An order with an arrow is not sent to the direction test.
        ([row(LENGTH, WORDS)], "", [ALONE]),
        ([row(BARE_NUMBER, WORDS)], "", [""]),
        *(
            ([row(NAMES, WORDS, method=method)], "", [ALONE])
            for method in ("adjacency", "direction", "stratified", "reversal")
        ),
        # A reference needs pairs, which other tests do not score.
        (
            [row(NAMES)],
            "--tests stratified --score-anyway",
            ["--tests direction --reference DIR"],
        ),
        # The reference prefers the order, too; one that copies, as any does.
        ([row(method="direction")], "--reference old", [""]),
        ([row(LENGTH)], "--reference old", [""]),
        ([row()], "--reference old", ["--tests direction"]),
        # What was tried is not named again.
        (
            [row(ANSWER, WORDS, group_field="subject")],
            "--group-field subject --tests adjacency",
            ["--tests direction"],
        ),
        ([row(NUMBER)], "--text-field question", [""]),
        ([row(PLACES, method="options")], "", ["--fix-answer"]),
        ([row(PLACES, method="options")], "--fix-answer", [""]),
        ([row(PLACES, LONG, method="options")], "", [""]),
        ([row(LONG, method="options")], "", [""]),
        ([suspected("direction", "attraction"), beside("adjacency")], "", ASKED[1:]),
        (
            [suspected("direction", "attraction"), beside("adjacency")],
            "--tests direction,adjacency",
            ["--tests adjacency --shuffled"],
        ),
        ([suspected("stratified", "alone")], "", ["--tests direction"]),
        (
            [suspected("sharded_t", "approximate", "alone")],
            "",
            ["--tests direction"],
        ),
        (
            [suspected("sharded_t", *APPROXIMATE), beside("direction")],
            "",
            ["--tests direction"],
        ),
        ([suspected("sharded_t", "approximate")], "", ["--tests adjacency"]),
        ([suspected("direction", "no reference")], "", ASKED),
        ([suspected("direction", "reference too close")], "", ASKED),
        ([suspected("direction", "weak")], "", []),
        (
            [suspected("options", "no reference")],
            "--tests options --seed-file seed.json",
            ASKED,
        ),
        # None is needed, or is left to a command that takes no flags.
        ([row(SUBJECT, verdict="contaminated")], "", []),
        ([suspected("canary", order_provenance="declared")], "", []),
    ],
)
def test_next_steps_are_those_that_are_left(rows, typed, flags):
    test, *others = rows
    command = ["audit", "my model", "x.jsonl", *typed.split()]
    found = next_steps(AuditedFile(test, tuple(others)), command, method_words())
    assert [" ".join(step.flags) for step in found] == flags


def test_a_command_that_has_no_flags_is_told_words_alone():
    (step,) = next_steps(AuditedFile(row(SUBJECT)), ["quickstart"], method_words())
    assert step.words and not step.flags


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
    for kind in ("attraction", "lags", "direction"):
        name = plain_name(f"blind_{kind}:words")
        assert "without a model" in name and "(words)" in name
