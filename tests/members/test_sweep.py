"""The sweep over shares of tokens: it chooses on one half and judges on the other."""

import numpy as np
import pytest

from jaxcontam.members.rates import halves, sweep_min_k
from jaxcontam.members.scores import sweep_methods
from jaxcontam.stats.roc import auc_delong

LABELS = np.arange(400) % 2 == 0
ALL = np.ones(400, bool)


def test_the_sweep_is_that_of_the_paper():
    assert [row.setting for row in sweep_methods()] == [
        f"k={k}%" for k in (10, 20, 30, 40, 50)
    ]


def test_the_share_that_separates_is_chosen_and_judged_on_the_other_half():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 3))
    values[LABELS, 1] += 2.0
    found = sweep_min_k(("a", "b", "c"), values, LABELS, seed=0)
    assert found.chosen == "b"
    held_out = halves(LABELS, ALL, seed=0)
    other = ~held_out
    assert (found.auc, found.auc_se) == auc_delong(
        values[other & LABELS, 1], values[other & ~LABELS, 1]
    )
    assert (
        found.held_out_aucs["a"]
        == auc_delong(
            *(values[held_out & (label == LABELS), 0] for label in (True, False))
        )[0]
    )


def test_the_judged_auc_of_noise_is_not_inflated_by_the_choice():
    """50 shares without signal: the best on its own half is above chance, the judged
    one is at chance."""
    rng = np.random.default_rng(1)
    held_out, judged = [], []
    for seed in range(60):
        values = rng.normal(size=(80, 50))
        names = [str(i) for i in range(50)]
        found = sweep_min_k(names, values, LABELS[:80], seed=seed)
        held_out.append(max(found.held_out_aucs.values()))
        judged.append(found.auc)
    assert np.mean(held_out) > 0.6
    # An AUC of 20 and 20 texts has a standard error of 0.092; 60 of them, 4 se.
    assert abs(np.mean(judged) - 0.5) < 4 * 0.092 / np.sqrt(60)


def test_halves_are_stratified_and_seeded():
    first, again, other = (halves(LABELS, ALL, seed=seed) for seed in (3, 3, 4))
    assert first[LABELS].sum() == first[~LABELS].sum() == 100
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_texts_of_a_cluster_stay_together():
    clusters = [f"book {i // 8}" for i in range(400)]
    labels = np.arange(400) // 8 % 2 == 0
    by_cluster = halves(labels, ALL, seed=0, clusters=clusters).reshape(50, 8)
    assert (by_cluster.all(axis=1) | ~by_cluster.any(axis=1)).all()


def test_texts_without_a_score_take_no_part():
    values = np.random.default_rng(2).normal(size=(400, 2))
    values[::5] = np.nan
    assert not halves(LABELS, np.isfinite(values[:, 0]), seed=0)[::5].any()
    assert np.isfinite(sweep_min_k(("a", "b"), values, LABELS, seed=0).auc)


def test_halves_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="2 members and 2 non-members"):
        sweep_min_k(("a",), np.ones((6, 1)), LABELS[:6], seed=0)
    with pytest.raises(ValueError, match=r"must fit values of \(6, 1\), got 2"):
        sweep_min_k(("a", "b"), np.ones((6, 1)), LABELS[:6], seed=0)


def test_copies_share_a_half_and_do_not_make_the_error_smaller():
    rng = np.random.default_rng(8)
    values, labels = rng.normal(size=(80, 2)), np.arange(80) < 40
    nine = np.arange(80).repeat(9)
    once = sweep_min_k(("a", "b"), values, labels, seed=0)
    copied = sweep_min_k(
        ("a", "b"), values[nine], labels[nine], seed=0, clusters=nine.tolist()
    )
    np.testing.assert_array_equal(
        halves(labels[nine], np.ones(720, bool), seed=0, clusters=nine.tolist()),
        halves(labels, np.ones(80, bool), seed=0)[nine],
    )
    assert (copied.chosen, copied.auc) == (once.chosen, pytest.approx(once.auc))
    assert copied.auc_se == pytest.approx(once.auc_se)
