"""Judging scores: one verdict, the texts alone as the rival, pools of non-members."""

import dataclasses
import json

import numpy as np
import pytest

from jaxcontam.members.blind import Blind, conditions, ranking_verdict, verdict_warnings
from jaxcontam.members.page import membership_sentence, roc_plot
from jaxcontam.members.rates import score_pictures
from jaxcontam.members.result import BesideReference, BlindBaseline
from jaxcontam.reports.figure import histogram
from jaxcontam.reports.numbers import plain_p
from jaxcontam.stats.roc import auc_delong, paired_delong
from tests.support.two_sides import asked, drawn, ranked, scores_of, told


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
    assert primary.increment_low is not None and primary.increment_low > 0.1
    assert noise.p_value is not None and noise.p_value > 0.01
    json.dumps([dataclasses.asdict(row) for row in rows], allow_nan=False)
    other = ranked(*seen, primary="2").results[2]
    assert other.verdict in ("no difference", "inconclusive")


def test_without_a_baseline_nothing_goes_beyond_may_rank_higher(seen):
    labels = np.arange(18) < 9
    (row,) = ranked(seen[0][:18], labels, scores_of(labels * 1.0)).results
    assert (row.p_value, row.verdict) == (1 / 10_000, "may rank higher")
    assert "no blind baseline" in row.warnings[-1]
    assert row.increment is None


def test_labels_that_the_texts_tell_are_confounded_however_good_the_score(seen):
    texts, labels, table = seen
    dated = told([f"{t} 2024" for t in texts], labels, lambda t: t[:-4] + "2010")
    assert ranked(dated, labels, table).results[0].verdict == "confounded"
    found = asked(dated, labels, table, n_permutations=19)
    assert found.set_result is not None
    assert found.set_result.verdict == "confounded"
    assert "texts alone tell the suspected set from the pool" in found.warnings[-1]


def test_a_row_with_some_of_its_scores_is_refused(seen):
    texts, labels, table = seen
    values = table.values.copy()
    values[9, 1] = np.nan
    with pytest.raises(ValueError, match="row 9"):
        ranked(texts, labels, scores_of(values))


def test_rates_that_too_few_nonmembers_allow_are_empty_or_called_rough(seen):
    row = ranked(*seen, fprs=(0.001, 0.01, 0.05, 0.1)).results[0]
    none, few, ten, many = row.operating_points
    assert (none.tpr, none.threshold, none.tpr_low, none.tpr_high) == (None,) * 4
    assert none.expected_false == pytest.approx(0.2)
    assert few.tpr is not None and few.tpr_low is not None and few.tpr_low <= few.tpr
    assert ten.expected_false == 10
    assert many.convention == "le"
    about = [text for text in row.warnings if "false-positive" in text]
    assert len(about) == 2
    assert "at least 1000 non-members, there are 200" in about[0]
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
    assert whole.increment is not None and whole.increment_p is not None
    assert whole.increment > 0.1 and whole.increment_p < 0.01
    assert whole.verdict == "members rank higher"


def test_the_order_of_texts_changes_no_auc(seen):
    texts, labels, table = seen
    order = np.random.default_rng(2).permutation(400)
    again = ranked([texts[i] for i in order], labels[order], table.rows(order))
    for row, other in zip(again.results, ranked(*seen).results, strict=True):
        assert row.auc == pytest.approx(other.auc, abs=1e-12)
        assert row.operating_points[1].tpr == other.operating_points[1].tpr


def blind_of(auc, low, above=False):
    """Baselines of which the best has this AUC, and this corrected lower end."""
    rows = (
        ()
        if auc is None
        else (BlindBaseline(name="n", auc=auc, auc_low=0, auc_high=1),)
    )
    return Blind(rows, np.empty((0, 1)), np.empty(0), low, above)


def beside(p_value=1e-4, half_p_value=0.01):
    return BesideReference(
        score="min_k",
        score_auc=0.7,
        reference_auc=0.53,
        p_value=p_value,
        half_p_value=half_p_value,
    )


@pytest.mark.parametrize(
    ("p_value", "auc", "auc_high", "blind", "increment_p", "reference", "verdict"),
    [
        (0.0001, 0.9, 0.95, (0.52, 0.47), 0.001, beside(), "members rank higher"),
        (0.0001, 0.9, 0.95, (0.52, 0.47), 0.001, None, "may rank higher"),
        (0.0001, 0.9, 0.95, (0.52, 0.47), 0.001, beside(0.002), "may rank higher"),
        (0.0001, 0.9, 0.95, (0.52, 0.47), 0.001, beside(1e-4, 0.1), "may rank higher"),
        (0.0001, 0.9, 0.95, (0.62, 0.56), 0.001, beside(), "confounded"),
        (0.0001, 0.9, 0.95, (0.62, 0.56), 0.001, None, "confounded"),
        (0.0001, 0.56, 0.6, (0.57, 0.51, True), 0.001, beside(), "confounded"),
        (0.0001, 0.7, 0.75, (0.57, 0.51, True), 0.001, beside(), "may rank higher"),
        (0.0001, 0.7, 0.75, (0.57, 0.51), 0.2, beside(), "may rank higher"),
        (0.01, 0.6, 0.7, (0.5, 0.45), 0.001, beside(), "may rank higher"),
        (0.3, 0.52, 0.58, (0.5, 0.45), 0.4, beside(), "no difference"),
        (0.3, 0.52, 0.7, (0.5, 0.45), 0.4, beside(), "inconclusive"),
        (0.0001, 0.9, 0.95, (None, None), None, None, "may rank higher"),
    ],
)
def test_verdict_rule(p_value, auc, auc_high, blind, increment_p, reference, verdict):
    unmet = conditions(blind_of(*blind), increment_p, reference)
    found = ranking_verdict(
        p_value, auc=auc, auc_high=auc_high, blind=blind_of(*blind), unmet=unmet
    )
    assert found == verdict
    # What keeps a word from more is said, with what is needed.
    said = verdict_warnings(found, p_value, auc, unmet)
    assert bool(said) == (verdict == "may rank higher")


@pytest.mark.parametrize(
    ("auc", "blind", "verdict"),
    [
        (0.7, (0.53, 0.51, True), "confounded"),
        (0.7, (0.53, 0.51), "members rank higher"),
        # The sets differ, and not by what the score was named for.
        (0.48, (0.53, 0.51), "inconclusive"),
    ],
)
def test_sets_that_the_texts_tell_apart_at_all_are_confounded(auc, blind, verdict):
    unmet = () if auc > 0.5 else ("the reference model may rank as well",)
    found = ranking_verdict(
        0.0005, auc=auc, auc_high=0.9, blind=blind_of(*blind), unmet=unmet, is_set=True
    )
    assert found == verdict


def test_swapped_members_are_said_to_rank_the_other_way_round(seen):
    texts, labels, table = seen
    row = ranked(texts, ~labels, table).results[0]
    assert row.auc < 0.2 and row.verdict == "members rank lower"
    assert "were the files, or the labels, swapped" in row.warnings[-1]
    assert "members look less familiar" in membership_sentence(row, [])
    found = asked(texts, ~labels, table, n_permutations=999).set_result
    # A classifier ranks either way; the score says which.
    assert found is not None and found.p_value == 0.001 and found.auc > 0.7
    assert found.verdict == "members rank lower"


def test_members_stand_out_of_a_pool_and_nonmembers_do_not(seen):
    found = asked(*seen, fprs=(0.001, 0.05))
    assert found.p_values.shape == found.adjusted.shape == (200, 3)
    assert (found.adjusted >= found.p_values).all()
    none, at5 = found.thresholds[:2]
    assert (none.threshold, none.n_above, none.fpr_low) == (None, None, None)
    assert at5.threshold is not None and at5.n_above is not None
    assert at5.n_above == np.count_nonzero(found.p_values[:, 0] <= 0.05) > 40
    assert at5.fpr_low is not None and at5.fpr_low < 0.05 < (at5.fpr_high or 0)
    # All 200 were seen; more tells the first score more, and noise tells nothing.
    first, second, noise = (
        asked(*seen, primary=name, n_permutations=9).seen for name in "012"
    )
    assert 1 >= first.estimate >= first.low > 0.5 > second.low > 0.1 > noise.low
    assert first.beyond_reference and not noise.beyond_reference
    # 10 of 200 are expected; the pool's own noise counts too: sd 4.3, 4 of those.
    assert (found.thresholds[5].n_above or 0) <= 28
    assert found.set_result is not None
    assert found.set_result.p_value == found.set_result.p_adjusted == 1 / 100
    assert found.set_result.verdict == "may rank higher"
    assert "at least 999 non-members, there are 200" in found.warnings[0]


def test_few_or_unscored_suspects_keep_their_rows():
    values = np.random.default_rng(3).normal(size=35)
    values[2] = np.nan
    found = asked(drawn(35, 4), np.arange(35) < 5, scores_of(values))
    assert np.isnan(found.p_values[2, 0]) and np.isnan(found.adjusted[2, 0])
    assert np.isfinite(np.delete(found.p_values, 2)).all()
    assert found.set_result is None
    assert any("no set-level test" in text for text in found.warnings)


def test_plots_name_every_score_with_its_auc_and_repeat_to_the_byte(seen):
    _, labels, table = seen
    pictures = score_pictures(table, labels)
    plot = roc_plot(pictures, primary="0")
    for picture, score in zip(pictures, table.values.T, strict=True):
        auc, _ = auc_delong(score[labels], score[~labels])
        assert picture.auc == pytest.approx(auc, abs=1e-12)
        assert f">{picture.method}, AUC {auc:.3f}<" in plot
    assert ">chance<" in plot
    assert plot == roc_plot(pictures, primary="0")
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
