"""Remedies of invalid designs: the first that is left, with its command."""

import shlex

import pytest

from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.remedies import advice, remedy, ways_out
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
TEMPLATED = failing("templated") | {"passed": True, "note": "rows differ in a few"}
BARE_NUMBER = failing("number_trend", directional=True)


def row(*failed, method="adjacency", verdict="invalid design", **changes):
    passed = {**WORDS, "name": "length_autocorrelation", "passed": True}
    fields = {
        "benchmark": "x",
        "verdict": verdict,
        "method": method,
        "null": "reversibility" if method == "direction" else "exchangeability",
        "validity": "exact",
        "order_provenance": "published",
        "group_field": None,
        "log10_p": -9.0,
        "p_adjusted": 1e-9,
        "primary": True,
        "pretests": [passed, *failed],
    }
    return fields | changes


def suspected(method, **changes):
    return row(method=method, verdict="suspected", **changes)


def beside(method, log10_p):
    return suspected(method, primary=False, p_adjusted=None, log10_p=log10_p)


def flags_of(found, command=COMMAND):
    """What each line adds to the command and what it takes away."""
    lines = [shlex.split(way.line or "") for way in found]
    return [
        [word for word in line[1:] if word not in command or word.startswith("--")]
        for line in lines
    ]


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
    assert (
        remedy(row(*failed), COMMAND) == f"jaxcontam audit 'my model' x.jsonl {flags}"
    )


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ([LENGTH, WORDS], "--reference DIR --score-anyway"),
        ([BARE_NUMBER, WORDS], None),
    ],
)
def test_order_with_an_arrow_is_not_sent_to_the_direction_test(failed, words):
    found = remedy(row(*failed), COMMAND)
    if words is None:
        assert found is None
        said = advice(row(*failed), COMMAND)
        assert said is not None and "without the numbers" in said
    else:
        assert found == f"jaxcontam audit 'my model' x.jsonl {words}"
    assert "direction" not in (found or "") and "reversal" not in (found or "")


def test_running_names_are_sent_to_a_reference_by_any_test():
    names = failing("blind_direction:words", directional=True)
    for method in ("adjacency", "direction", "stratified", "reversal"):
        found = remedy(row(names, WORDS, method=method), COMMAND)
        assert found is not None and found.endswith("--reference DIR --score-anyway")
    # A reference needs pairs, which other tests do not score.
    found = remedy(row(names), [*COMMAND, "--tests", "stratified", "--score-anyway"])
    assert found is not None
    assert found.endswith("x.jsonl --score-anyway --tests direction --reference DIR")


def test_nothing_is_left_where_the_reference_prefers_the_order_too():
    command = [*COMMAND, "--reference", "old"]
    # No check failed: the reference alone refused.
    for found in (row(), row(LENGTH)):
        assert remedy(found, command) is None
        said = advice(found, command)
        assert said is not None and "the reference model prefers" in said


def test_unscored_file_has_a_remedy():
    file = {
        name: row(WORDS)[name]
        for name in ("benchmark", "verdict", "method", "null", "pretests")
    }
    assert remedy(file, COMMAND) == (
        "jaxcontam audit 'my model' x.jsonl --tests direction"
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [suspected("direction", p_adjusted=0.4), beside("adjacency", -9.0)],
            [["--shuffled"], ["--reference", "DIR"]],
        ),
        (
            [
                suspected("direction", p_adjusted=0.4, has_options=True),
                beside("adjacency", -9.0),
            ],
            [["--shuffled"], ["--reference", "DIR"], ["--tests", "options"]],
        ),
        ([suspected("stratified")], [["--tests", "direction"]]),
        (
            [suspected("sharded_t", validity="asymptotic")],
            [["--tests", "direction"]],
        ),
        (
            [
                suspected(
                    "sharded_t", validity="asymptotic", order_provenance="declared"
                )
            ],
            [["--tests", "adjacency"]],
        ),
        (
            [suspected("direction", pretests=[TEMPLATED])],
            [["--reference", "DIR"]],
        ),
        ([suspected("direction", p_adjusted=0.01)], []),
    ],
)
def test_suspicion_is_told_what_can_lift_it(rows, expected):
    assert flags_of(ways_out(rows[0], COMMAND, rows)) == expected


def test_word_of_the_user_lets_the_attracting_test_decide():
    rows = [suspected("direction", p_adjusted=0.4), beside("adjacency", -9.0)]
    command = [*COMMAND, "--tests", "direction,adjacency"]
    first, *_ = ways_out(rows[0], command, rows)
    assert first.line is not None
    assert first.line.endswith("x.jsonl --tests adjacency --shuffled")


def test_remedy_drops_what_its_test_refuses():
    rows = [suspected("direction", p_adjusted=0.4, has_options=True)]
    rows.append(beside("adjacency", -9.0))
    command = [*COMMAND, "--text-field", "q", "--effort", "quick", "--reference", "r"]
    *_, last = ways_out(rows[0], command, rows)
    assert last.line is not None
    assert last.line.endswith("x.jsonl --reference r --tests options")
    command = [*COMMAND, "--shuffled", "--effort", "standard"]
    assert remedy(row(WORDS, order_provenance="declared"), command) == (
        "jaxcontam audit 'my model' x.jsonl --tests direction"
    )


def test_remedy_that_was_tried_is_not_named_again():
    tried = [*COMMAND, "--group-field", "subject", "--tests", "adjacency"]
    found = remedy(row(ANSWER, WORDS, group_field="subject"), tried)
    assert found is not None
    assert found.endswith("--group-field subject --tests direction")
    tried = [*COMMAND, "--text-field", "question"]
    assert remedy(row(NUMBER), tried) is None


def test_new_text_replaces_the_old_one():
    tried = [*COMMAND, "--template", "{id} {question}", "--seed", "1"]
    words = "jaxcontam audit 'my model' x.jsonl --seed 1 --text-field question"
    assert remedy(row(NUMBER), tried) == words


def test_no_remedy_is_named_where_none_is_needed():
    assert remedy(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert advice(row(SUBJECT, verdict="contaminated"), COMMAND) is None
    assert remedy(row(SUBJECT), ["quickstart"]) is None
    assert ways_out(suspected("canary", null="designed randomisation"), COMMAND) == []


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
