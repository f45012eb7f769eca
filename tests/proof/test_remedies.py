"""Remedies of invalid designs: the first that is left, with its flags."""

import dataclasses

import pytest

from jaxcontam.methods import method_words
from jaxcontam.proof.advice import AuditedFile, next_steps, plain_name
from jaxcontam.stats.pretests import columns, pretest_battery
from jaxcontam.stats.result import Pretest
from tests.support.report_documents import order_result

COMMAND = ["audit", "my model", "x.jsonl"]


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


def row(*failed, method="adjacency", verdict="invalid design", **changes):
    passed = dataclasses.replace(WORDS, name="length_autocorrelation", passed=True)
    fields = {
        "verdict": verdict,
        "method": method,
        "null": "reversibility" if method == "direction" else "exchangeability",
        "log10_p": -9.0,
        "p_adjusted": 1e-9,
        "pretests": (passed, *failed),
    }
    return order_result("x", **fields | changes)


def ways_out(test, command, beside=()):
    return next_steps(AuditedFile(test, tuple(beside)), command, method_words())


def flags_of(step):
    return " ".join(step.flags) or None


def remedy(test, command):
    return next(map(flags_of, ways_out(test, command)), None)


def advice(test, command):
    return next((step.words for step in ways_out(test, command)), None)


def suspected(method, **changes):
    return row(method=method, verdict="suspected", **changes)


def beside(method, log10_p):
    return suspected(method, primary=False, p_adjusted=None, log10_p=log10_p)


@pytest.mark.parametrize(
    ("failed", "flags"),
    [
        ([WORDS], "--tests direction"),
        ([WORDS, PASSAGE], "--block-field passage"),
        ([ANSWER, PASSAGE, SUBJECT, LENGTH], "--group-field subject"),
        ([SUBJECT, NUMBER], "--text-field question"),
    ],
)
def test_best_remedy_comes_first(failed, flags):
    assert remedy(row(*failed), COMMAND) == flags


@pytest.mark.parametrize(
    ("failed", "flags", "words"),
    [
        ([LENGTH, WORDS], "--reference DIR --score-anyway", "no order test of this"),
        ([BARE_NUMBER, WORDS], None, "without the numbers"),
    ],
)
def test_order_with_an_arrow_is_not_sent_to_the_direction_test(failed, flags, words):
    assert remedy(row(*failed), COMMAND) == flags
    assert words in advice(row(*failed), COMMAND)


def test_running_names_are_sent_to_a_reference_by_any_test():
    names = failing("blind_direction:words", directional=True)
    for method in ("adjacency", "direction", "stratified", "reversal"):
        found = remedy(row(names, WORDS, method=method), COMMAND)
        assert found == "--reference DIR --score-anyway"
    # A reference needs pairs, which other tests do not score.
    found = remedy(row(names), [*COMMAND, "--tests", "stratified", "--score-anyway"])
    assert found == "--tests direction --reference DIR"


def test_nothing_is_left_where_the_reference_prefers_the_order_too():
    command = [*COMMAND, "--reference", "old"]
    # No check failed: the reference alone refused.
    for found in (row(method="direction"), row(LENGTH)):
        assert remedy(found, command) is None
        assert "the reference model prefers" in advice(found, command)


def test_reference_that_copies_leaves_direction_to_decide():
    """It prefers like beside like, as every model of use does."""
    found = remedy(row(), [*COMMAND, "--reference", "old"])
    assert found == "--tests direction"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [
                suspected("direction", reasons=("attraction",)),
                beside("adjacency", -9.0),
            ],
            ["--shuffled"],
        ),
        ([suspected("stratified", reasons=("alone",))], ["--tests direction"]),
        (
            [suspected("sharded_t", reasons=("approximate", "alone"))],
            ["--tests direction"],
        ),
        (
            [
                suspected("sharded_t", reasons=("approximate", "no reference")),
                beside("direction", -9.0),
            ],
            ["--tests direction"],
        ),
        ([suspected("sharded_t", reasons=("approximate",))], ["--tests adjacency"]),
        (
            [suspected("direction", reasons=("no reference",))],
            ["--reference DIR", "--shuffled"],
        ),
        (
            [suspected("direction", reasons=("reference too close",))],
            ["--reference DIR", "--shuffled"],
        ),
        ([suspected("direction", reasons=("weak",))], []),
    ],
)
def test_suspicion_is_told_what_can_lift_it(rows, expected):
    assert [*map(flags_of, ways_out(rows[0], COMMAND, rows[1:]))] == expected


def test_suspicion_of_options_is_told_what_can_lift_it():
    null = "exchangeability of options"
    test = suspected("options", null=null, reasons=("no reference",))
    command = [*COMMAND, "--tests", "options", "--answer-field", "key"]
    found = ways_out(test, command)
    assert [*map(flags_of, found)] == ["--reference DIR", "--shuffled"]
    assert "each list of options was shuffled" in found[1].words
    # A seed file is of the order of rows.
    command += ["--seed-file", "seed.json"]
    assert flags_of(ways_out(test, command)[1]) == "--shuffled"


def test_remedy_that_was_tried_is_not_named_again():
    tried = [*COMMAND, "--group-field", "subject", "--tests", "adjacency"]
    found = remedy(row(ANSWER, WORDS, group_field="subject"), tried)
    assert found == "--tests direction"
    tried = [*COMMAND, "--text-field", "question"]
    assert remedy(row(NUMBER), tried) is None


def test_options_that_stand_at_sorted_places_have_remedies_of_their_own():
    options = {"method": "options", "null": "exchangeability of options"}
    places, length = failing("answer_place"), failing("option_length")
    found = remedy(row(places, **options), COMMAND)
    assert found == "--fix-answer"
    for test in (row(places, length, **options), row(length, **options)):
        assert remedy(test, COMMAND) is None
        assert "test the order of the file instead" in advice(test, COMMAND)
    assert remedy(row(places, **options), [*COMMAND, "--fix-answer"]) is None


def test_no_remedy_is_named_where_none_is_needed():
    assert remedy(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert advice(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert remedy(row(SUBJECT), ["quickstart"]) is None
    drawn = {"null": "designed randomisation", "order_provenance": "declared"}
    assert ways_out(suspected("canary", **drawn), COMMAND) == ()


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
