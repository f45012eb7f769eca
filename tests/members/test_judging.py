"""Judging scores: one verdict, the texts alone as the rival, pools of non-members.

Copies of one text and texts of one document are no further evidence anywhere.
"""

import dataclasses
import json

import numpy as np
import pytest

from jaxcontam.data.documents import ASKED, compared, document_codes, independent_codes
from jaxcontam.errors import InputError
from jaxcontam.members.blind import Blind, conditions, ranking_verdict, verdict_warnings
from jaxcontam.members.judging import judged
from jaxcontam.members.known_texts import MEMBER, NONMEMBER, TEXT, RunTexts
from jaxcontam.members.page import membership_sentence, roc_plot
from jaxcontam.members.rates import score_pictures
from jaxcontam.members.result import BesideReference, BlindBaseline
from jaxcontam.reports.figure import histogram
from jaxcontam.reports.numbers import plain_p
from jaxcontam.stats.roc import auc_delong, paired_delong
from tests.support.labelled_rows import drawn
from tests.support.two_sides import asked, ranked, scores_of, study_of


@pytest.fixture(scope="module")
def seen():
    """400 texts of one pool, half of them members by lot, and what is said of them.

    The first score is good, the second less so, the third is noise.
    """
    rng = np.random.default_rng(0)
    texts = drawn(400, rng, n_words=25)
    labels = rng.permutation(np.arange(400) < 200)
    values = rng.normal(size=(400, 3)) + labels[:, None] * np.array([1.5, 0.7, 0.0])
    return texts, labels, scores_of(values, rng.normal(size=(400, 2)))


def test_numbers_are_those_of_the_statistics_and_only_the_primary_decides(seen):
    _, labels, table = seen
    rows = ranked(*seen).results
    assert tuple(row.method for row in rows) == table.names
    for row, score in zip(rows, table.values.T, strict=True):
        assert (row.auc, row.auc_se) == auc_delong(score[labels], score[~labels])
        assert row.auc_low < row.auc < row.auc_high
    primary, second, noise = rows
    assert (primary.verdict, primary.primary) == ("members rank higher", True)
    assert primary.p_value == primary.p_adjusted == 1 / 10_000
    assert (second.verdict, second.p_adjusted, second.primary) == (None, None, False)
    sides = [table.values[side, i] for i in (1, 0) for side in (labels, ~labels)]
    paired = paired_delong(*sides)
    found = second.difference, second.difference_p
    assert found == (paired.difference, paired.p_value)
    assert primary.difference is None
    assert primary.increment_low > 0.1
    assert noise.p_value > 0.01
    json.dumps([dataclasses.asdict(row) for row in rows], allow_nan=False)
    other = ranked(*seen, primary="2").results[2]
    assert other.verdict in ("no difference", "inconclusive")


def test_rates_that_too_few_nonmembers_allow_are_empty_or_called_rough(seen):
    row = ranked(*seen, fprs=(0.001, 0.01, 0.05, 0.1)).results[0]
    none, few, ten, many = row.operating_points
    assert (none.tpr, none.threshold, none.tpr_low, none.tpr_high) == (None,) * 4
    assert none.expected_false == pytest.approx(0.2)
    assert few.tpr_low <= few.tpr
    assert ten.expected_false == 10
    assert many.convention == "le"
    about = [text for text in row.warnings if "false-positive" in text]
    assert len(about) == 2
    assert "at least 1000 non-members (found 200" in about[0]
    assert "only 2.0 non-members" in about[1]


def test_documents_widen_the_interval_and_go_with_unscored_texts(seen):
    rng, codes = np.random.default_rng(5), np.arange(40).repeat(10)
    labels = codes % 2 == 0
    values = rng.normal(size=40)[codes] + rng.normal(size=400) + 1.5 * labels
    values[:5] = np.nan
    case = seen[0], labels, scores_of(values, rng.normal(size=(400, 2)))
    alone, whole = (
        ranked(*case, clusters=one).results[0]
        for one in (None, [f"book {code}" for code in codes])
    )
    assert (alone.n_clusters, whole.n_clusters) == (None, 40)
    assert whole.auc == alone.auc
    assert whole.auc_se > 1.5 * alone.auc_se
    assert whole.auc_low < alone.auc_low
    assert (whole.n_members, whole.n_nonmembers, whole.n_unscored) == (195, 200, 5)
    assert "left out: 5" in whole.warnings[0]
    assert whole.increment > 0.1 and whole.increment_p < 0.01
    assert whole.verdict == "members rank higher"


def beside(p_value=1e-4, half_p_value=0.01):
    aucs = {"score_auc": 0.7, "reference_auc": 0.53}
    found = {"p_value": p_value, "half_p_value": half_p_value}
    return BesideReference(score="min_k", **aucs, **found)


@pytest.mark.parametrize(
    ("verdict", "changes"),
    [
        ("members rank higher", {}),
        ("may rank higher", {"reference": None}),
        ("may rank higher", {"reference": beside(0.002)}),
        ("may rank higher", {"reference": beside(1e-4, 0.1)}),
        # AUC of the best baseline, its corrected lower end, whether it is above chance.
        ("confounded", {"blind": (0.62, 0.56)}),
        ("confounded", {"blind": (0.62, 0.56), "reference": None}),
        ("confounded", {"auc": (0.56, 0.6), "blind": (0.57, 0.51, True)}),
        ("may rank higher", {"auc": (0.7, 0.75), "blind": (0.57, 0.51, True)}),
        ("may rank higher", {"increment_p": 0.2}),
        ("may rank higher", {"p_value": 0.01}),
        ("no difference", {"p_value": 0.3, "auc": (0.52, 0.58)}),
        ("inconclusive", {"p_value": 0.3, "auc": (0.52, 0.7)}),
        ("may rank higher", {"blind": None, "increment_p": None, "reference": None}),
        # Sets that the texts tell apart at all are confounded.
        ("confounded", {"is_set": True, "blind": (0.53, 0.51, True)}),
        ("members rank higher", {"is_set": True, "blind": (0.53, 0.51)}),
        # They differ, and not by what the score was named for.
        ("inconclusive", {"is_set": True, "auc": (0.48, 0.9), "reference": None}),
    ],
)
def test_verdict_rule(verdict, changes):
    asked = {"p_value": 1e-4, "auc": (0.9, 0.95), "blind": (0.52, 0.47)}
    asked |= {"increment_p": 0.001, "reference": beside(), "is_set": False} | changes
    auc, low, *above = asked["blind"] or (None, None)
    row = BlindBaseline(name="n", auc=auc, auc_low=0, auc_high=1)
    rows = () if auc is None else (row,)
    blind = Blind(rows, np.empty((0, 1)), np.empty(0), low, above == [True])
    unmet = conditions(blind, asked["increment_p"], asked["reference"])
    (auc, high), p_value = asked["auc"], asked["p_value"]
    rest = {"blind": blind, "unmet": unmet, "is_set": asked["is_set"]}
    found = ranking_verdict(p_value, auc=auc, auc_high=high, **rest)
    assert found == verdict
    # What keeps a word from more is said, with what is needed.
    said = verdict_warnings(found, p_value, auc, unmet)
    assert bool(said) == (verdict == "may rank higher")


def test_swapped_members_are_said_to_rank_the_other_way_round(seen):
    texts, labels, table = seen
    row = ranked(texts, ~labels, table).results[0]
    assert row.auc < 0.2 and row.verdict == "members rank lower"
    assert "check that the files, or the labels, were not swapped" in row.warnings[-1]
    assert "members look less familiar" in membership_sentence(row, [])
    found = asked(texts, ~labels, table, n_permutations=999).set_result
    # A classifier ranks either way; the score says which.
    assert found.p_value == 0.001 and found.auc > 0.7
    assert found.verdict == "members rank lower"


def test_members_stand_out_of_a_pool_and_nonmembers_do_not(seen):
    found = asked(*seen, fprs=(0.001, 0.05))
    assert found.p_values.shape == found.adjusted.shape == (200, 3)
    assert (found.adjusted >= found.p_values).all()
    none, at5 = found.thresholds[:2]
    assert (none.threshold, none.n_above, none.fpr_low) == (None, None, None)
    assert at5.n_above == np.count_nonzero(found.p_values[:, 0] <= 0.05) > 40
    assert at5.fpr_low < 0.05 < (at5.fpr_high or 0)
    # All 200 were seen; more tells the first score more, and noise tells nothing.
    first, second, noise = (
        asked(*seen, primary=name, n_permutations=9).seen for name in "012"
    )
    assert 1 >= first.estimate >= first.low > 0.5 > second.low > 0.1 > noise.low
    assert first.beyond_reference and not noise.beyond_reference
    # 10 of 200 are expected; the pool's own noise counts too: sd 4.3, 4 of those.
    assert (found.thresholds[5].n_above or 0) <= 28
    assert found.set_result.p_value == found.set_result.p_adjusted == 1 / 100
    assert found.set_result.verdict == "may rank higher"
    assert "at least 999 non-members (found 200" in found.warnings[0]


def test_plots_name_every_score_with_its_auc_and_repeat_to_the_byte(seen):
    _, labels, table = seen
    pictures = score_pictures(table, labels)
    plot, again = (roc_plot(pictures, primary="0") for _ in range(2))
    assert plot == again and ">chance<" in plot
    for picture, score in zip(pictures, table.values.T, strict=True):
        auc, _ = auc_delong(score[labels], score[~labels])
        assert picture.auc == pytest.approx(auc, abs=1e-12)
        assert f">{picture.method}, AUC {auc:.3f}<" in plot
    groups = {"non-members": pictures[0].nonmembers, "members": pictures[0].members}
    shown = histogram(groups, "min_k", "share of the texts")
    assert ">members<" in shown and ">non-members<" in shown
    (flat,) = score_pictures(scores_of(np.zeros(8)), np.arange(8) < 4)
    assert "AUC 0.500" in roc_plot([flat])
    groups = {"non-members": flat.nonmembers, "texts": np.empty(0)}
    assert histogram(groups, "loss", "share").startswith("<svg")


@pytest.mark.parametrize("p", [0.0504, 0.00104, 0.0499999, 9.96e-4, 1.0, 1e-4])
def test_a_p_value_is_never_shown_below_what_it_is(p):
    assert p <= float(plain_p(p)) <= p * 1.11


def test_equal_texts_join_the_documents_that_hold_them():
    texts = ["x", "y", "y", "z", "z", "w", " ", " "]
    codes = document_codes(texts, ["a", "a", "b", "b", "c", "d", "e", "f"])
    assert codes.tolist() == [0, 0, 0, 0, 0, 1, 2, 3]
    assert document_codes(["x", "y", "x"], None).tolist() == [0, 1, 0]
    assert document_codes(["x", "y"], ["a", "a"]).tolist() == [0, 0]
    # Texts that all differ are their own documents.
    assert independent_codes(["x", "y"], None) is None
    assert independent_codes(["x", "y", "x"], None) is not None


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("abcc", "defdb", "aef"),
        # Ten texts that each stand three times are a file that was written so.
        ("abcdefghij" * 3, "aklm", "bcdefghijklm"),
        ("abcdefghi" * 3, "kl", "kl"),
        ("abcdefghij" * 3 + "a", "kl", "kl"),
        ("abcdefghij" * 2, "klmnopqrst" * 3, "abcdefghijklmnopqrst"),
        ("ab", "ab", ""),
    ],
)
def test_a_text_that_stands_once_on_both_sides_together_is_compared(
    first, second, kept
):
    both = first + second
    found = compared([*both], np.arange(len(both)) < len(first), None, ASKED)
    assert "".join(np.array([*both])[found.kept]) == kept
    # A copy of a text that is compared needs no reason.
    assert [why is None for why in found.why] == [text in kept for text in both]


def test_a_text_of_two_documents_is_left_out_and_copies_in_one_stay():
    documents = ["a", "a", "a", "b", "b", "c", "b"]
    found = compared([*"xxyzyzw"], np.arange(7) < 5, documents, ASKED)
    assert found.kept.tolist() == [True, True, *[False] * 4, True]
    assert found.why[2:6] == (
        "occurs in more than one document",
        "is among the non-members",
        "occurs in more than one document",
        "is among the texts in question",
    )
    assert [words[:15] for words in found.warnings] == ["1 distinct text"] * 2


def test_five_copies_of_every_text_change_no_number_of_a_comparison():
    texts, labels = drawn(120, 1), np.arange(120) < 60
    values = np.random.default_rng(0).normal(size=(120, 2)) + 0.5 * labels[:, None]
    five = np.arange(120).repeat(5)
    once, copied = (
        ranked([texts[i] for i in rows], labels[rows], scores_of(values[rows])).results
        for rows in (np.arange(120), five)
    )
    first, second, *rest = copied[0].warnings
    assert first == "each text among the members occurs 5 times and counts once"
    assert "among the non-members occurs 5 times" in second
    assert dataclasses.replace(copied[0], warnings=tuple(rest)) == once[0]
    assert copied[1] == once[1]


def test_copies_of_a_pool_and_of_a_set_change_no_p_value():
    texts, sides = drawn(90, 4), np.arange(90) < 40
    values = np.random.default_rng(3).normal(size=90)
    rows = np.concatenate([np.arange(40).repeat(4), np.arange(40, 90).repeat(3)])
    once = asked(texts, sides, scores_of(values))
    copied = asked([texts[i] for i in rows], sides[rows], scores_of(values[rows]))
    four = np.arange(40).repeat(4)
    np.testing.assert_array_equal(copied.p_values, once.p_values[four])
    np.testing.assert_array_equal(copied.adjusted, once.adjusted[four])
    assert copied.thresholds == once.thresholds
    assert copied.seen == once.seen and copied.set_result == once.set_result


def test_a_text_in_question_that_stands_in_the_pool_has_no_p_value():
    texts, sides = drawn(70, 7), np.arange(70) < 30
    values = np.random.default_rng(6).normal(size=70)
    apart = asked(texts, sides, scores_of(values))
    leaked = asked(
        [*texts, *texts[:12]],
        np.append(sides, [False] * 12),
        scores_of(np.append(values, values[:12])),
    )
    np.testing.assert_array_equal(leaked.p_values[12:], apart.p_values[12:])
    assert np.isnan(leaked.p_values[:12]).all() and np.isnan(leaked.adjusted[:12]).all()
    assert leaked.why == ("is among the non-members",) * 12 + (None,) * 18
    at5 = leaked.thresholds[1]
    assert at5.n_above == np.count_nonzero(leaked.p_values <= 0.05)
    assert at5.threshold == apart.thresholds[1].threshold
    assert (
        "12 distinct texts are both among the texts in question" in leaked.warnings[0]
    )
    # 18 texts are in question alone.
    assert leaked.seen.n_texts == 18 and leaked.seen.n_pool == 40
    assert apart.set_result is not None and leaked.set_result is None


def test_too_few_texts_and_a_row_with_some_of_its_scores_are_refused():
    texts, sides = drawn(20, 9), np.arange(40) < 20
    scores = scores_of(np.arange(40.0))
    values = np.ones((40, 2))
    values[9, 1] = np.nan
    with pytest.raises(ValueError, match="row 9"):
        ranked(drawn(40, 9), sides, scores_of(values))
    with pytest.raises(InputError, match="no text is left in the pool"):
        asked(texts * 2, sides, scores)
    with pytest.raises(InputError, match=r"too few texts of members .* \(0\)"):
        ranked(["one"] * 20 + texts, sides, scores)


def test_a_constant_score_is_inconclusive_however_many_texts():
    texts, sides = drawn(800, 10), np.arange(800) < 400
    (row,) = ranked(texts, sides, scores_of(np.zeros(800)), n_boot=10).results
    assert row.verdict == "inconclusive"
    assert any("0 is the same for every text" in said for said in row.warnings)
    found = asked(texts, sides, scores_of(np.zeros(800)), n_permutations=9).set_result
    assert found.verdict == "inconclusive"
    assert "every score is the same for every text" in found.warnings[-1]


def test_unlabelled_texts_of_another_year_are_named_beside_labelled_ones():
    texts = [f"{t} in {2015 if i < 80 else 2024}" for i, t in enumerate(drawn(120, 12))]
    run = RunTexts(
        name="x",
        texts=tuple(texts),
        roles=(MEMBER,) * 40 + (NONMEMBER,) * 40 + (TEXT,) * 40,
        clusters=None,
        sources=("x",) * 120,
    )
    table = scores_of(np.random.default_rng(14).normal(size=120))
    found = judged(run, table, np.zeros(120, bool), study_of(n_texts=120), seed=0)
    assert len(found.results) == 1
    assert any("texts alone tell the suspected set" in said for said in found.warnings)


def test_documents_of_a_pool_are_counted_and_leave_a_rate_without_an_interval():
    found = asked(
        drawn(150, 16),
        np.arange(150) < 30,
        scores_of(np.random.default_rng(15).normal(size=150)),
        clusters=[str(i) for i in range(30)],
        pool_clusters=[str(i // 4) for i in range(120)],
        fprs=(0.01, 0.1),
    )
    none, at10 = found.thresholds
    assert (none.threshold, none.n_above) == (None, None)
    assert at10.n_above == np.count_nonzero(found.p_values <= 0.1)
    assert at10.threshold is not None and at10.fpr_low is None
    assert found.p_values.min() >= 1 / 31
    said = " ".join(found.warnings)
    assert "at least 99 documents of non-members (found 30" in said
    assert "the pool comes from 30 documents" in said
    assert found.seen is None and "no share seen is given" in said


def test_a_set_is_not_called_alike_where_one_score_may_rank_well():
    """Thirty scores, one of which sees something: the classifier loses sight of it."""
    sides = np.arange(200) < 100
    values = np.random.default_rng(1).normal(size=(200, 30))
    values[:, 0] += 0.3 * sides
    found = asked(drawn(200, 18), sides, scores_of(values)).set_result
    # By itself the classifier would rule out an AUC of 0.6.
    assert found.auc < 0.5 and found.p_value > 0.05
    assert found.verdict == "inconclusive"
