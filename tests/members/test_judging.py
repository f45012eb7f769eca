"""Judging scores: one verdict, the texts alone as the rival, pools of non-members."""

import dataclasses
import json

import numpy as np
import pytest

from jaxcontam.members.blind import Blind, conditions, ranking_verdict, verdict_warnings
from jaxcontam.members.judging import judge, judge_texts
from jaxcontam.members.page import membership_sentence, roc_plot
from jaxcontam.members.rates import score_pictures
from jaxcontam.members.result import BesideReference, BlindBaseline, Scores
from jaxcontam.reports.figure import histogram
from jaxcontam.stats.roc import auc_delong, paired_delong

WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in "nrst"]
NAMES = ("min_k", "loss", "noise")


@pytest.fixture(scope="module")
def seen():
    """400 texts of one pool, half of them members by lot, and what is said of them."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=25)) for _ in range(400)]
    labels = rng.permutation(np.arange(400) < 200)
    values = rng.normal(size=(400, 3)) + labels[:, None] * np.array([1.5, 0.7, 0.0])
    return texts, labels, Scores(NAMES, values, rng.normal(size=(400, 2)))


def judged(seen, **changes):
    texts, labels, table = seen
    rest = {"primary": "min_k", "n_boot": 100, "texts": texts} | changes
    return judge("texts", "digest", table, labels, **rest).results


def test_numbers_are_those_of_the_statistics_and_only_the_primary_decides(seen):
    _, labels, table = seen
    rows = judged(seen)
    assert tuple(row.method for row in rows) == NAMES
    for row, score in zip(rows, table.values.T, strict=True):
        assert (row.auc, row.auc_se) == auc_delong(score[labels], score[~labels])
        assert row.auc_low < row.auc < row.auc_high
    primary, loss, noise = rows
    assert (primary.verdict, primary.primary) == ("members rank higher", True)
    assert primary.p_value == primary.p_adjusted == 1 / 10_000
    assert (loss.verdict, loss.p_adjusted, loss.primary) == (None, None, False)
    first, second = table.values[:, 0], table.values[:, 1]
    paired = paired_delong(
        second[labels], second[~labels], first[labels], first[~labels]
    )
    assert (loss.difference, loss.difference_p) == (paired.difference, paired.p_value)
    assert primary.difference is None
    assert primary.increment_low is not None and primary.increment_low > 0.1
    assert noise.p_value is not None and noise.p_value > 0.01
    json.dumps([dataclasses.asdict(row) for row in rows], allow_nan=False)


def test_a_primary_score_of_noise_gives_no_proof(seen):
    row = judged(seen, primary="noise")[2]
    assert row.verdict in ("no difference", "inconclusive")


def test_without_a_baseline_nothing_goes_beyond_may_rank_higher(seen):
    texts, _, _ = seen
    labels = np.arange(18) < 9
    row = judged((texts[:18], labels, Scores(("min_k",), labels[:, None] * 1.0)))[0]
    assert (row.p_value, row.verdict) == (1 / 10_000, "may rank higher")
    assert "no blind baseline" in row.warnings[-1]
    assert row.increment is None


def test_labels_that_the_texts_tell_are_confounded_however_good_the_score(seen):
    texts, labels, table = seen
    dated = [
        f"{text} {2010 if label else 2024}"
        for text, label in zip(texts, labels, strict=True)
    ]
    row = judged((dated, labels, table))[0]
    assert row.verdict == "confounded"


def test_rows_without_a_score_are_counted_and_said(seen):
    texts, labels, table = seen
    values = table.values.copy()
    values[:7] = np.nan
    row = judged((texts, labels, Scores(NAMES, values)))[0]
    assert row.n_unscored == 7
    assert row.n_members + row.n_nonmembers == 393
    assert "left out: 7" in row.warnings[0]


def test_a_row_with_some_of_its_scores_is_refused(seen):
    texts, labels, table = seen
    values = table.values.copy()
    values[9, 1] = np.nan
    with pytest.raises(ValueError, match="row 9"):
        judged((texts, labels, Scores(NAMES, values)))


def test_rates_that_too_few_nonmembers_allow_are_empty_or_called_rough(seen):
    row = judged(seen, fprs=(0.001, 0.01, 0.05, 0.1))[0]
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


def test_documents_widen_the_interval_and_are_counted(seen):
    texts, _, _ = seen
    rng = np.random.default_rng(1)
    codes = np.arange(40).repeat(10)
    labels = codes < 20
    values = (
        rng.normal(size=(40, 1))[codes] + rng.normal(size=(400, 1)) + labels[:, None]
    )
    table = Scores(("min_k",), values)
    alone, whole = (
        judged((texts, labels, table), clusters=c, n_boot=50)[0]
        for c in (None, [f"book{c}" for c in codes])
    )
    assert (alone.n_clusters, whole.n_clusters) == (None, 40)
    assert whole.auc == alone.auc
    assert whole.auc_se > 1.5 * alone.auc_se
    assert whole.auc_low < alone.auc_low


def test_documents_baselines_and_unscored_texts_go_together(seen):
    texts, _, _ = seen
    rng = np.random.default_rng(5)
    codes = np.arange(40).repeat(10)
    labels = codes % 2 == 0
    values = rng.normal(size=(40, 1))[codes] * 0.5 + rng.normal(size=(400, 1))
    values += 1.5 * labels[:, None]
    values[:5] = np.nan
    clusters = [f"book {code}" for code in codes]
    table = Scores(("min_k",), values, rng.normal(size=(400, 2)))
    (row,) = judged((texts, labels, table), clusters=clusters, n_boot=50)
    assert (row.n_members, row.n_nonmembers, row.n_unscored) == (195, 200, 5)
    assert row.n_clusters == 40
    assert row.increment is not None and row.increment_p is not None
    assert row.increment > 0.1 and row.increment_p < 0.01
    assert row.verdict == "members rank higher"


def test_the_order_of_texts_changes_no_auc(seen):
    texts, labels, table = seen
    order = np.random.default_rng(2).permutation(400)
    again = [texts[i] for i in order], labels[order], table.rows(order)
    for row, other in zip(judged(again), judged(seen), strict=True):
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
    row = judged((texts, ~labels, table))[0]
    assert row.auc < 0.2 and row.verdict == "members rank lower"
    assert "were the files, or the labels, swapped" in row.warnings[-1]
    assert "members look less familiar" in membership_sentence(row, [])
    sides = [
        (table.rows(side), [texts[i] for i in np.flatnonzero(side)])
        for side in (~labels, labels)
    ]
    (suspects, asked), (pool, pool_texts) = sides
    found = judge_texts(
        *("set", "d", suspects, pool),
        texts=asked,
        pool_texts=pool_texts,
        n_permutations=999,
    ).set_result
    # A classifier ranks either way; the score says which.
    assert found is not None and found.p_value == 0.001 and found.auc > 0.7
    assert found.verdict == "members rank lower"


def test_members_stand_out_of_a_pool_and_nonmembers_do_not(seen):
    texts, labels, table = seen
    sides = [
        (table.rows(side), [t for t, s in zip(texts, side, strict=True) if s])
        for side in (labels, ~labels)
    ]
    (suspects, suspect_texts), (pool, pool_texts) = sides
    found = judge_texts(
        "set",
        "d",
        suspects,
        pool,
        texts=suspect_texts,
        pool_texts=pool_texts,
        fprs=(0.001, 0.05),
        n_permutations=99,
    )
    assert found.p_values.shape == found.adjusted.shape == (200, 3)
    assert (found.adjusted >= found.p_values).all()
    none, at5 = found.thresholds[:2]
    assert (none.threshold, none.n_above, none.fpr_low) == (None, None, None)
    assert at5.threshold is not None and at5.n_above is not None
    assert at5.n_above == np.count_nonzero(found.p_values[:, 0] <= 0.05) > 40
    assert at5.fpr_low is not None and at5.fpr_low < 0.05 < (at5.fpr_high or 0)
    # All 200 were seen; more tells the first score more, and noise tells nothing.
    shares = [
        judge_texts(
            *("set", "d", suspects, pool),
            texts=suspect_texts,
            pool_texts=pool_texts,
            primary=name,
            n_permutations=9,
        ).seen
        for name in NAMES
    ]
    first, second, noise = (share for share in shares if share is not None)
    assert 1 >= first.estimate >= first.low > 0.5 > second.low > 0.1 > noise.low
    assert first.beyond_reference and not noise.beyond_reference
    # 10 of 200 are expected; the pool's own noise counts too: sd 4.3, 4 of those.
    assert (found.thresholds[5].n_above or 0) <= 28
    assert found.set_result is not None
    assert found.set_result.p_value == found.set_result.p_adjusted == 1 / 100
    assert found.set_result.verdict == "may rank higher"
    assert "at least 999 non-members, there are 200" in found.warnings[0]


def test_a_pool_of_another_date_is_confounded_and_said(seen):
    texts, labels, table = seen
    sides = [
        (
            Scores(NAMES, table.values[side]),
            [f"{t} {year}" for t, s in zip(texts, side, strict=True) if s],
        )
        for side, year in ((labels, 2010), (~labels, 2024))
    ]
    (suspects, suspect_texts), (pool, pool_texts) = sides
    found = judge_texts(
        "set",
        "d",
        suspects,
        pool,
        texts=suspect_texts,
        pool_texts=pool_texts,
        n_permutations=19,
    )
    assert found.set_result is not None
    assert found.set_result.verdict == "confounded"
    assert "texts alone tell the suspected set from the pool" in found.warnings[-1]


def test_few_or_unscored_suspects_keep_their_rows():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(5, 1))
    values[2] = np.nan
    found = judge_texts(
        "set",
        "d",
        Scores(("min_k",), values),
        Scores(("min_k",), rng.normal(size=(30, 1))),
        texts=[f"text {i}" for i in range(5)],
        pool_texts=[f"pool {i}" for i in range(30)],
    )
    assert np.isnan(found.p_values[2, 0]) and np.isnan(found.adjusted[2, 0])
    assert np.isfinite(np.delete(found.p_values, 2)).all()
    assert found.set_result is None
    assert any("no set-level test" in text for text in found.warnings)


def test_plots_name_every_score_with_its_auc_and_repeat_to_the_byte(seen):
    _, labels, table = seen
    pictures = score_pictures(table, labels)
    plot = roc_plot(pictures, primary="min_k")
    for picture, score in zip(pictures, table.values.T, strict=True):
        auc, _ = auc_delong(score[labels], score[~labels])
        assert picture.auc == pytest.approx(auc, abs=1e-12)
        assert f">{picture.method}, AUC {auc:.3f}<" in plot
    assert ">chance<" in plot
    assert plot == roc_plot(pictures, primary="min_k")
    first = pictures[0]
    groups = {"non-members": first.nonmembers, "members": first.members}
    drawn = histogram(groups, "min_k", "share of the texts")
    assert ">members<" in drawn and ">non-members<" in drawn


def test_a_constant_score_can_be_drawn():
    pictures = score_pictures(Scores(("loss",), np.zeros((8, 1))), np.arange(8) < 4)
    assert "AUC 0.500" in roc_plot(pictures)
    groups = {"non-members": pictures[0].nonmembers, "texts": np.empty(0)}
    assert histogram(groups, "loss", "share").startswith("<svg")
