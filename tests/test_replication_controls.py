"""What a verdict owes to its control, and to the length of references."""

import dataclasses

import pytest

from jaxcontam.analyses.method_notes import method_words
from jaxcontam.methods.replication.instance import Instance
from jaxcontam.methods.replication.judges import Judged, fewest_above, judge_result
from jaxcontam.methods.replication.local_judge import is_short
from jaxcontam.report.replication import replication_sentences
from jaxcontam.stats.proportions import rate_test


def result(labels, **more):
    return judge_result(
        Judged(labels=tuple(labels)),
        method="judge_local",
        benchmark="set",
        fingerprint="sha256:0",
        judge_version="v",
        prompt_version=None,
        **more,
    )


def said_of(row):
    row = dataclasses.replace(row, primary=True)
    return " ".join(replication_sentences([row], method_words([row.method])))


@pytest.mark.parametrize("level", [0.05, 0.001])
@pytest.mark.parametrize(("n_control", "copies"), [(50, 0), (50, 1), (12, 2)])
def test_the_number_needed_is_the_first_that_fishers_test_calls_more(
    n_control, copies, level
):
    needed = fewest_above(50, copies, n_control, level=level)
    below, at = (
        rate_test(n, 50, copies, n_control).fisher for n in (needed - 1, needed)
    )
    assert at <= level < below


def test_a_control_too_small_to_compare_with_leaves_no_verdict():
    # Ten of ten against none of one: p is 1 / 11.
    row = result(["exact"] * 10, control=Judged(labels=("no",)))
    assert row.verdict is None
    assert row.n_needed is None
    assert row.p_control == pytest.approx(1 / 11)
    assert "too small: not even 10" in said_of(row)
    # Without copies there is nothing to compare.
    assert result(["no"] * 10, control=Judged(labels=("no",))).verdict == "no evidence"
    full = result(["exact"] * 10, control=Judged(labels=("exact",) * 10))
    assert (full.verdict, full.n_needed) == ("no evidence", None)
    one = result(["exact"] + ["no"] * 49, control=Judged(labels=("no",) * 50))
    assert (one.verdict, one.n_needed) == ("no evidence", 10)
    assert "it takes 10 copies of 50 for p <= 0.001" in said_of(one)
    assert "significantly more than in the control (p <= 0.001; suspec" in said_of(one)


@pytest.mark.parametrize(
    ("n_copies", "verdict"),
    [(4, "no evidence"), (5, "suspected"), (9, "suspected"), (10, "contaminated")],
)
def test_one_level_for_one_word(n_copies, verdict):
    labels = ["exact"] * n_copies + ["no"] * (50 - n_copies)
    row = result(labels, control=Judged(labels=("no",) * 50))
    assert row.verdict == verdict
    assert (row.p_control <= 0.001) == (verdict == "contaminated")
    assert (row.p_control <= 0.05) == (verdict != "no evidence")


def test_without_a_control_all_copies_are_suspected_and_no_more():
    row = result(["exact"] * 50)
    assert row.verdict == "suspected"
    assert "contaminated needs a control" in said_of(row)


def test_a_control_that_is_refused_whole_leaves_no_verdict():
    control = Judged(labels=(None,) * 3, n_refused=2, n_unparsed=1)
    row = result(["exact"] * 5, control=control)
    assert row.verdict is None
    assert (row.n_control, row.n_control_refused, row.n_control_unparsed) == (0, 2, 1)
    assert any("of the control, 2 of 3 requests" in words for words in row.warnings)
    assert "Control not answered" in said_of(row)
    assert "No control was given" not in said_of(row)


def of(second):
    return Instance(
        index=0, first_piece="So", second_piece=second, label=None, cut="inside"
    )


def test_copies_of_one_or_two_words_do_not_decide():
    labels = ["exact", *["no"] * 49]
    row = result(labels, is_short=[True] * 50)
    assert (row.n_exact, row.n_short, row.verdict) == (1, 1, "no evidence")
    assert "do not decide" in said_of(row)
    assert result(labels, is_short=[False] * 50).verdict == "suspected"
    assert [is_short(of(text)) for text in ("yes", "a dog", "a dog barks")] == [
        True,
        True,
        False,
    ]
