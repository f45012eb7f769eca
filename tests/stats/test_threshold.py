"""The most accurate threshold, against trying every cut."""

import numpy as np
import pytest

from jaxcontam.stats.roc import best_threshold


def accuracy_at(cut, members, nonmembers):
    return ((members >= cut).mean() + (nonmembers < cut).mean()) / 2


def test_no_cut_is_more_accurate_on_tied_data():
    rng = np.random.default_rng(0)
    for _ in range(300):
        members = rng.integers(0, 6, rng.integers(1, 12)).astype(float)
        nonmembers = rng.integers(0, 6, rng.integers(1, 12)).astype(float)
        found = best_threshold(members, nonmembers)
        # Whole scores: half of them are all cuts that there are.
        tried = {
            cut: accuracy_at(cut, members, nonmembers)
            for cut in np.arange(-0.5, 7.0, 0.5)
        }
        best = max(tried.values())
        assert found.accuracy == pytest.approx(best, abs=1e-12)
        assert accuracy_at(found.value, members, nonmembers) == pytest.approx(best)
        # The highest of them: a higher cut that moves any text is less accurate.
        pooled = np.concatenate([members, nonmembers])
        for cut, accuracy in tried.items():
            if cut > found.value and ((pooled >= found.value) & (pooled < cut)).any():
                assert accuracy < best - 1e-12


def test_the_cut_lies_half_way_between_the_groups():
    found = best_threshold(np.array([4.0, 5.0]), np.array([1.0, 2.0]))
    assert (found.value, found.accuracy) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("members", "nonmembers"), [([1.0, 1.0], [1.0]), ([0.0], [1.0, 2.0])]
)
def test_a_score_without_use_makes_nothing_a_member(members, nonmembers):
    found = best_threshold(np.array(members), np.array(nonmembers))
    assert found.accuracy == 0.5
    assert found.value > max(members + nonmembers)


def test_neighbouring_floats_are_told_apart():
    below, above = 1.0, np.nextafter(1.0, 2.0)
    found = best_threshold(np.array([above]), np.array([below]))
    assert found.accuracy == 1.0
    assert below < found.value <= above


def test_many_more_members_do_not_move_the_cut():
    """Both groups weigh the same, however many there are of each."""
    members, nonmembers = np.array([2.0, 4.0, 5.0, 6.0]), np.array([1.0, 3.0])
    assert (
        best_threshold(np.tile(members, 50), nonmembers).value
        == best_threshold(members, nonmembers).value
    )


@pytest.mark.parametrize(
    ("members", "nonmembers", "message"),
    [([], [1.0], "at least 1 score, got 0 and 1"), ([np.nan], [1.0], "finite")],
)
def test_bad_scores_are_refused(members, nonmembers, message):
    with pytest.raises(ValueError, match=message):
        best_threshold(np.array(members), np.array(nonmembers))
