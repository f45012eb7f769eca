"""Rates of documents by a cut from known ones, and the sweep over shares of tokens."""

import numpy as np
import pytest

from jaxcontam.members.rates import document_rates, halves, sweep_min_k
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.roc import auc_delong

LABELS = np.arange(400) % 2 == 0
ALL = np.ones(400, bool)
ROLES = ("member", "member", "nonmember", "nonmember", "text")
# The last text but one stands at the cut.
SCORES = np.array([5.0, 6, 7, 8, 1, 2, 3, 5.5, 5.75, np.nan])


def test_the_share_that_separates_is_chosen_and_judged_on_the_other_half():
    values = np.random.default_rng(0).normal(size=(400, 3))
    values[LABELS, 1] += 2.0
    found = sweep_min_k(("a", "b", "c"), values, LABELS, seed=0)
    assert found.chosen == "b"
    held_out = halves(LABELS, ALL, seed=0)

    def auc(half, column):
        sides = (values[half & (side == LABELS), column] for side in (True, False))
        return auc_delong(*sides)

    assert (found.auc, found.auc_se) == auc(~held_out, 1)
    assert found.held_out_aucs["a"] == auc(held_out, 0)[0]


def test_halves_are_stratified_and_seeded_and_keep_documents_whole():
    first, again, other = (halves(LABELS, ALL, seed=seed) for seed in (3, 3, 4))
    assert first[LABELS].sum() == first[~LABELS].sum() == 100
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    clusters = [f"book {i // 8}" for i in range(400)]
    labels = np.arange(400) // 8 % 2 == 0
    by_cluster = halves(labels, ALL, seed=0, clusters=clusters).reshape(50, 8)
    assert (by_cluster.all(axis=1) | ~by_cluster.any(axis=1)).all()


def test_texts_without_a_score_take_no_part():
    values = np.random.default_rng(2).normal(size=(400, 2))
    values[::5] = np.nan
    assert not halves(LABELS, np.isfinite(values[:, 0]), seed=0)[::5].any()
    assert np.isfinite(sweep_min_k(("a", "b"), values, LABELS, seed=0).auc)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a", "2 members and 2 non-members"),
        ("ab", r"must match values of \(6, 1\), got 2"),
    ],
)
def test_halves_that_are_too_small_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        sweep_min_k(names, np.ones((6, 1)), LABELS[:6], seed=0)


def test_copies_share_a_half_and_do_not_make_the_error_smaller():
    values = np.random.default_rng(8).normal(size=(80, 2))
    labels, nine = np.arange(80) < 40, np.arange(80).repeat(9)
    once = sweep_min_k(("a", "b"), values, labels, seed=0)
    copied = sweep_min_k(
        ("a", "b"), values[nine], labels[nine], seed=0, clusters=nine.tolist()
    )
    assert copied.chosen == once.chosen
    assert copied.auc == pytest.approx(once.auc)
    assert copied.auc_se == pytest.approx(once.auc_se)


def rates_of(scores, documents=("m1", "m2", "n1", "n2", "asked"), roles=ROLES, n=2):
    """Two texts of each document, unless `n` says how many."""
    role_N = np.repeat(roles, n)
    found = document_rates(
        "s",
        np.array(scores, float),
        np.repeat(documents, n).tolist(),
        role_N.tolist(),
        known_N=role_N != "text",
        asked_N=role_N == "text",
    )
    return found, {row.document: row for row in found.rates}


def test_rates_by_hand():
    """5.75 misses the 5 alone, and 4 takes in the 5.5 alone: the higher cut is kept."""
    found, rates = rates_of(SCORES)
    assert found.threshold == 5.75
    assert found.accuracy == (3 / 4 + 1) / 2
    assert (found.n_members, found.n_nonmembers) == (2, 2)
    # m1 is judged by 7, 8 against the others: 6.25. m2 by 5, 6: 4 takes in 5.5 and
    # finds both. n1 by 3, 5.5: 5.75, as with all. n2 by 1, 2: (2 + 5) / 2.
    assert found.tpr_held_out == 2 / 4
    assert found.fpr_held_out == 1 / 4
    assert found.accuracy_held_out == (2 / 4 + 3 / 4) / 2
    known = [rates[name] for name in ("m1", "m2", "n1", "n2")]
    assert [row.threshold for row in known] == [6.25, 4.0, 5.75, 3.5]
    assert [row.rate for row in known] == [0.0, 1.0, 0.0, 0.5]
    asked = rates["asked"]
    assert (asked.n_texts, asked.n_scored, asked.n_above) == (2, 1, 1)
    assert (asked.rate_low, asked.rate_high) == wilson_interval(1, 1)
    assert asked.threshold == found.threshold


def test_a_document_without_a_score_stays_in_the_table():
    asked = rates_of([*SCORES[:8], np.nan, np.nan])[1]["asked"]
    assert (asked.n_texts, asked.n_scored) == (2, 0)
    assert (asked.n_above, asked.rate) == (None, None)
