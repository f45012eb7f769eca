"""What a verdict owes to its control, to a reference model, and to sources."""

import dataclasses
import itertools
from bisect import bisect_right

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from jaxcontam.replication.control import (
    FALSE_NEAR,
    Facts,
    Side,
    fewest_above,
    fewest_near,
    independence_words,
    more_copies,
    share_p,
)
from jaxcontam.replication.judges import Judged, closeness, is_short
from jaxcontam.replication.page import replication_sentences
from jaxcontam.scoring.completer import Completion
from jaxcontam.stats.proportions import rate_test
from tests.support.instances import WORDS, instance
from tests.support.instances import judged as result


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


def test_what_cannot_be_compared_leaves_no_verdict():
    # Ten of ten against none of one: p is 1 / 11.
    row = result(["exact"] * 10, control=Judged(labels=("no",)))
    assert (row.verdict, row.n_needed) == (None, None)
    assert row.p_control == pytest.approx(1 / 11)
    # Without copies there is nothing to compare.
    assert result(["no"] * 10, control=Judged(labels=("no",))).verdict == "no evidence"
    full = result(["near"] * 10, control=Judged(labels=("exact",) * 10))
    assert (full.verdict, full.n_needed) == ("no evidence", None)
    one = result(labels_of(1), control=Judged(labels=("no",) * 50))
    assert (one.verdict, one.n_needed) == ("no evidence", 10)
    lost = Judged(labels=(None,) * 3, n_refused=2, n_unparsed=1)
    row = result(["exact"] * 5, control=lost)
    assert (row.verdict, row.n_control) == (None, 0)
    assert (row.n_control_refused, row.n_control_unparsed) == (2, 1)
    nothing = result([None, None])
    assert (nothing.verdict, nothing.rate) == (None, None)


def labels_of(n_copies, n=50):
    return ("exact",) * n_copies + ("no",) * (n - n_copies)


def beside(own, control, *, closer=0.0):
    """Copies of model and reference among 50 each, the reference's the last ones."""
    theirs = (Judged(labels=labels_of(n)[::-1]) for n in (own[1], control[1]))
    control = Judged(labels=labels_of(control[0]))
    reference = (*theirs, (closer,) * 50)
    return result(labels_of(own[0]), control=control, reference=reference)


@pytest.mark.parametrize(
    ("n_copies", "verdict", "reason"),
    [
        (4, "no evidence", None),
        (5, "suspected", "weak"),
        (9, "suspected", "weak"),
        (10, "suspected", "no reference"),
        (50, "suspected", "no reference"),
    ],
)
def test_copies_without_a_reference_are_suspected_and_no_more(
    n_copies, verdict, reason
):
    row = result(labels_of(n_copies), control=Judged(labels=("no",) * 50))
    assert (row.verdict, row.reason) == (verdict, reason)
    assert (row.p_control <= 0.001) == (n_copies >= 10)
    alone = result(labels_of(n_copies))
    assert (alone.verdict, alone.reason) == ("suspected", "no control")
    assert row.meets_rule and alone.meets_rule
    assert row.p_control_barnard <= row.p_control


@pytest.mark.parametrize(
    ("own", "control", "closer", "reason"),
    [
        # (10 / 11)^32 is below 0.05, and (10 / 11)^31 is not.
        ((32, 0), (0, 0), 0, None),
        ((31, 0), (0, 0), 0, "reference may share it"),
        ((9, 0), (0, 0), 0, "weak"),
        # Eight against one of the control have p = 0.03.
        ((30, 8), (0, 1), 0, "reference copies it"),
        # A clean model that guesses six times as much.
        ((36, 6), (0, 0), 0, "reference copies it"),
        ((36, 3), (0, 0), 0, "reference may share it"),
        ((45, 0), (5, 5), 0, None),
        ((45, 1), (1, 0), 0, "reference may share it"),
        ((45, 0), (22, 0), 0, "reference too close"),
        ((40, 0), (0, 0), 0.1, "reference reads less"),
        ((40, 0), (0, 0), -0.1, None),
    ],
)
def test_contaminated_asks_a_reference_that_reads_as_well_and_copies_next_to_nothing(
    own, control, closer, reason
):
    row = dataclasses.replace(beside(own, control, closer=closer), primary=True)
    assert row.reason == reason
    assert row.verdict == ("contaminated" if reason is None else "suspected")
    is_share = reason in (None, "reference reads less", "reference too close")
    assert (row.reference.p_share <= 0.05) == is_share
    # What the control must be stands there whatever the verdict is.
    said = " ".join(replication_sentences([row], WORDS))
    assert "as easy to guess as the benchmark" in said


@pytest.mark.parametrize(("own", "control"), [((13, 4), (1, 1)), ((9, 2), (4, 3))])
def test_excess_is_the_tail_of_a_fair_coin_over_what_the_models_differ_on(own, control):
    """The reference's copies are on other instances, so all of them differ."""
    found = beside(own, control).reference
    n, in_favour = sum(own) + sum(control), own[0] + control[1]
    assert found.p_excess == pytest.approx(binom.sf(in_favour - 1, n, 0.5))
    expected = rate_test(own[1], 50, control[1], 50).fisher
    assert found.p_value == pytest.approx(expected)


def test_instances_that_one_model_did_not_answer_are_compared_with_none():
    refused = Judged(labels=(None,) * 35 + ("no",) * 15, n_refused=35)
    theirs = Judged(labels=(*("no",) * 49, None))
    # Closer where one of them did not answer.
    closer = (1.0, *(0.0,) * 48, 1.0)
    control = Judged(labels=(None, *("no",) * 49))
    row = result(labels_of(40), control=control, reference=(refused, theirs, closer))
    found = row.reference
    assert (found.n_instances, found.n_control, found.n_refused) == (15, 48, 35)
    assert found.p_excess == pytest.approx(0.5**5)
    assert found.p_share == pytest.approx((10 / 11) ** 5)
    assert found.p_closer == 1.0
    assert row.reason == "reference may share it"


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_just_that_share_is_rejected_no_oftener_than_the_level(n, share):
    """All counts, drawn apart, the other's among the first's, or never of one text."""
    assert share_p(0, 0, share=share) == 1.0
    counts = np.arange(n + 1)
    # p rises with the other's count.
    low = counts < [
        [bisect_right(counts, 0.05, key=lambda c, a=a: share_p(a, c, share=share))]
        for a in counts
    ]
    for rate in (0.1, 0.3, 0.6, 1.0):
        first = binom.pmf(counts, n, rate)
        apart = np.outer(first, binom.pmf(counts, n, share * rate))
        among = first[:, None] * binom.pmf(counts, counts[:, None], share)
        assert (apart * low).sum() <= 0.05 >= (among * low).sum()
        both = counts + counts[:, None]
        never_one = binom.pmf(both, n, min(1.0, rate * (1 + share)))
        never_one *= binom.pmf(counts, both, share / (1 + share))
        assert (never_one * low).sum() <= 0.05


def grouped(copies, names):
    return Side(copies=[bool(x) for x in copies], groups=[str(x) for x in names])


def exchanges(own, theirs):
    """Sides as likely as these: whole sources of a size, instances of shared ones."""
    names = [*own.groups, *theirs.groups]
    is_own = np.arange(len(names)) < len(own.groups)
    sources = {name: np.flatnonzero(np.array(names) == name) for name in names}
    alone = [s for s in sources.values() if is_own[s].all() or not is_own[s].any()]
    shared = [s for s in sources.values() if 0 < is_own[s].sum() < len(s)]
    parts = [itertools.combinations(s.tolist(), int(is_own[s].sum())) for s in shared]
    for size in {len(s) for s in alone}:
        alike = [s for s in alone if len(s) == size]
        n_own = sum(is_own[s].all() for s in alike)
        chosen = itertools.combinations(alike, n_own)
        parts.append([np.concatenate([[], *c]) for c in chosen])
    for chosen in itertools.product(*parts):
        side = np.zeros(len(names), bool)
        side[np.concatenate([np.array(c, int) for c in chosen])] = True
        yield side


def gap(copies, side):
    return np.mean(copies[side]) - np.mean(copies[~side])


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        # One source on both sides, four whole ones on each.
        (
            grouped([1, 1, 1, 1, 0, 1, 1, 0], "aabbcdxx"),
            grouped([0, 0, 0, 1, 0, 0, 0], "eeffghx"),
        ),
        (grouped([1, 1, 0, 1, 1, 1], "abxxyy"), grouped([0, 1, 0, 0, 1, 0], "cddxyy")),
        # Nothing of its size to change places with, so that all choices are known.
        (grouped([1, 1, 1, 0, 1], "aaabw"), grouped([0, 1, 0, 1, 0], "aaabb")),
        (grouped([1, 1, 0, 1, 1, 1], "abxxyy"), grouped([0, 1, 0, 0, 1, 0], "cccxyy")),
        # One source of all, and one of each.
        (grouped([1, 1, 1, 0, 1], "xxxxx"), grouped([0, 1, 0, 1, 0], "xxxxx")),
        (grouped([1, 1, 1, 0, 1], "abcde"), grouped([0, 1, 0, 1, 0], "fghij")),
    ],
)
def test_whole_sources_change_sides_beside_those_of_both(own, theirs):
    copies = np.array([*own.copies, *theirs.copies], float)
    gaps = [gap(copies, side) for side in exchanges(own, theirs)]
    is_own = np.arange(len(copies)) < len(own.copies)
    expected = np.mean(np.array(gaps) >= gap(copies, is_own) - 1e-12)
    found = more_copies(own, theirs, seed=0)
    # 4 standard errors of a share of 9,999 draws, and the added one.
    error = 4 * np.sqrt(0.25 / 9999) + 1e-4
    assert found.p_value == pytest.approx(expected, abs=error)
    best = np.mean([(side == is_own).all() for side in exchanges(own, theirs)])
    assert found.p_floor == pytest.approx(best, abs=4 * np.sqrt(best / 9999) + 1e-4)


def test_five_sources_a_side_are_never_more_than_suspected():
    names = [f"s{i // 10}" for i in range(100)]
    sources = {"facts": Facts(groups=names[:50]), "group_field": "book"}
    sources["control_facts"] = Facts(groups=names[50:])
    row = result(["exact"] * 50, control=Judged(labels=("no",) * 50), **sources)
    assert (row.n_groups, row.reason) == (10, "weak")
    assert 0.001 < row.p_control == row.p_control_floor < 0.01
    assert (row.p_control_barnard, row.n_needed) == (None, None)


def test_a_completion_is_close_by_its_content_words():
    one = instance("So", "the old mill by the river was sold")
    for text, share in (
        ("the old mill by the river was sold", 1.0),
        ("a mill stood by that river", 0.5),
        ("the rest of the rest of the rest by the", 0.0),
        ("", 0.0),
        ("it was so and it went on and on there for years and so then the old mill", 0),
    ):
        assert closeness(one, Completion(text=text)) == share


def test_fields_that_repeat_like_sources_are_named():
    rows = [
        {"text": f"t{i}", "id": i, "book": f"b{i // 5}", "flag": i % 2, "one": "x"}
        for i in range(50)
    ]
    (words,) = independence_words(rows, read=("text",), group_field=None)
    assert words.startswith("the field book has 10 values in 50 instances")
    assert independence_words(rows, read=("text",), group_field="book") == []
    assert independence_words([None] * 9, read=(), group_field=None) == []


def test_copies_of_one_or_two_words_do_not_decide():
    short, long = (result(labels_of(1), facts=Facts(is_short=[x] * 50)) for x in (1, 0))
    assert (short.n_exact, short.n_short, short.verdict) == (1, 1, "no evidence")
    assert long.verdict == "suspected"
    lengths = {"yes": True, "a dog": True, "a dog barks": False}
    assert {text: is_short(instance("So", text)) for text in lengths} == lengths


@pytest.mark.parametrize(
    ("n_exact", "n_near", "expected"),
    [(0, 0, False), (0, 1, False), (0, 2, True), (1, 0, True), (3, 5, True)],
)
def test_one_exact_or_two_near_copies_decide(n_exact, n_near, expected):
    copies = ["exact"] * n_exact + ["near"] * n_near
    row = result([*copies, None] + ["no"] * (10 - len(copies)))
    assert row.meets_rule == expected
    counts = (row.n_instances, row.n_exact, row.n_near, row.n_refused)
    assert counts == (10, n_exact, n_near, 1)
    assert row.rate == pytest.approx((n_exact + n_near) / 10)
    interval = binomtest(n_exact + n_near, 10).proportion_ci(method="wilson")
    # The quantile is written with 7 digits.
    assert (row.rate_low, row.rate_high) == pytest.approx(tuple(interval), abs=1e-6)
    assert row.verdict == ("suspected" if expected else "no evidence")
    assert row.p_control is None


def test_mistakes_alone_reach_the_rule_in_one_partition_of_twenty_at_most():
    assert [fewest_near(n) for n in (2, 10, 11, 20, 50, 100)] == [2, 2, 4, 5, 8, 14]
    for n in range(11, 101):
        fewest = fewest_near(n)
        assert binom.sf(fewest - 1, n, FALSE_NEAR) <= 0.05
        assert binom.sf(fewest - 2, n, FALSE_NEAR) > 0.05, "no stricter"
    # What the docstring says of fewer ones.
    reached = [binom.sf(k - 1, n, FALSE_NEAR) for k, n in ((5, 50), (2, 50), (2, 10))]
    assert [round(p, 2) for p in reached] == [0.39, 0.92, 0.2]
    # The bound is that of the recorded mistakes, rounded up.
    high = max(
        binomtest(*counts).proportion_ci(method="exact").high
        for counts in ((4, 123), (2, 137))
    )
    assert 0 <= FALSE_NEAR - high < 0.001
