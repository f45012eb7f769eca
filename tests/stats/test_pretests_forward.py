"""Directional pre-tests: files that point forward, and their signs read backwards."""

import numpy as np
import pytest

from jaxcontam.stats.pretests import forward
from jaxcontam.stats.pretests.forward import (
    _handed_on,
    _scripts,
    forward_pretests,
    numbers_by_place,
    scales,
)
from jaxcontam.stats.pretests.similarity import read_words
from tests.support import pretest_files as files

FORWARD = {
    "forward_numbers": files.counted,
    "forward_dates": files.dated,
    "forward_names": files.names_handed_on,
    "forward_references": files.taken_up,
    "forward_turns": files.answered,
    "forward_translations": files.translations,
}


@pytest.mark.parametrize("name", FORWARD)
def test_each_kind_is_found_and_changes_its_sign_read_backwards(name):
    texts = FORWARD[name](np.random.default_rng(0), 160)
    forward = {test.name: test for test in forward_pretests(texts)}[name]
    backward = {test.name: test for test in forward_pretests(texts[::-1])}[name]
    assert not forward.passed and forward.directional
    assert not backward.passed
    assert backward.statistic == pytest.approx(-forward.statistic, rel=0.1)


@pytest.mark.parametrize("make", [files.weekdays, files.lettered])
def test_marks_that_start_again_point_forward(make):
    assert "forward_dates" in refused(make(np.random.default_rng(1), 160))


@pytest.mark.parametrize(
    "make", [files.documents, files.dialogue, files.later_copies, files.prefixes]
)
def test_likeness_and_alternation_do_not_point_forward(make):
    assert not refused(make(np.random.default_rng(2), 160))


# A quarter of a minute.
@pytest.mark.slow
def test_files_of_either_direction_are_refused_at_most_one_time_in_a_hundred():
    """Strata of a forward file, each the other way round at random: the null itself."""
    n_files, n_refused = 300, 0
    for seed in range(n_files):
        rng = np.random.default_rng(seed)
        rows = [*files.counted(rng, 60), *files.answered(rng, 60)]
        rows = [row for part in zip(rows[:60], rows[60:], strict=True) for row in part]
        strata = [rows[i : i + 5] for i in range(0, 120, 5)]
        turned = [s[::-1] if rng.random() < 0.5 else s for s in strata]
        texts = [row for stratum in turned for row in stratum]
        n_refused += bool(refused(texts, seed=seed))
    # Familywise level 0.01, plus 3.3 standard errors of 300 files.
    assert n_refused / n_files <= 0.01 + 3.3 * np.sqrt(0.01 * 0.99 / n_files)


def test_rows_are_compared_with_rows_of_their_group():
    rng = np.random.default_rng(3)
    counts = {"a": 0, "b": 1000}
    rows, groups = [], []
    for _ in range(200):
        group = "ab"[rng.integers(2)]
        counts[group] += 1 if group == "a" else -1
        rows.append(f"{files.text(rng)} {counts[group]}")
        groups.append(group)
    found = {test.name: test for test in forward_pretests(rows, groups=groups)}
    assert found["forward_numbers"].p_value > 0.05
    found = {test.name: test for test in forward_pretests(rows, groups=["a"] * 200)}
    assert found["forward_numbers"].applicable


@pytest.mark.parametrize("texts", [[], ["one"], ["a", "b"], [""] * 9, ["7"] * 30])
def test_what_cannot_vary_is_not_applicable(texts):
    tests = forward_pretests(texts)
    assert len(tests) == 6
    assert all(t.passed and t.p_value == 1 and not t.applicable for t in tests)


def test_numbers_are_read_at_their_places():
    numbers = numbers_by_place(
        ["No. 7 costs 1,250.50 in 2 shops", "no number", "No. 8"]
    )
    np.testing.assert_equal(numbers[0], [7, np.nan, 8])
    np.testing.assert_equal(numbers[1], [1250, np.nan, np.nan])
    # Digits of any script.
    (first, *_) = numbers_by_place(["no", "٣ birds", "4"])
    np.testing.assert_array_equal(first, [np.nan, 3, 4])
    # The last number, and the first after the word that stands before most.
    np.testing.assert_equal(numbers[6], [2, np.nan, 8])
    np.testing.assert_equal(numbers[8], [7, np.nan, 8])


@pytest.mark.parametrize(
    ("earlier", "later", "scale"),
    [
        ("due 2001-09-30", "due 2001-10-01", 0),
        ("3 May 2011", "on May 4, 2011", 0),
        ("at 9:59", "at 10:00:01", 1),
        ("in March", "in April", 2),
        ("on Tuesday", "Wednesday, late", 3),
        ("the second", "a 3rd one", 4),
        ("secondly", "finally", 4),
        ("Chapter IX", "Chapter X", 5),
        ("iv. four", "v. five", 5),
        ("(a) one", "b. two", 6),
    ],
)
def test_scales_rise(earlier, later, scale):
    values, _ = scales([earlier, later, "nothing of the kind"])
    assert values[scale, 0] < values[scale, 1]
    assert np.isnan(values[scale, 2])


def refused(texts, **kwargs):
    return {test.name for test in forward_pretests(texts, **kwargs) if not test.passed}


def test_words_are_handed_on_from_their_middle_place():
    rows = ["x a b a", "a x", "c x c x", "x d"]
    left, right = np.array([0, 2]), np.array([1, 3])
    found = _handed_on(read_words(tuple(rows)).numbered, left, right)
    # `a` at (1 + 3) / 2 of 3 and then at 0; `x` stands in too many rows.
    np.testing.assert_allclose(found, [2 / 3, 0.0])


def test_scripts_are_shares_of_letters(monkeypatch):
    rows = ["ab é1", "", "漢b!", "aaa\ud800"]
    found = _scripts(rows)
    np.testing.assert_array_equal(found[0], [1 / 3, 0, 1 / 2, 0])
    monkeypatch.setattr(forward, "_ROWS_AT_ONCE", 2)
    np.testing.assert_array_equal(_scripts(rows), found)
    letters = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [3, 0, 0, 0]])
    shares = letters / np.maximum(letters.sum(axis=1, keepdims=True), 1)
    centred = shares - shares.mean(axis=0)
    spread = np.linalg.eigvalsh(centred.T @ centred)[-2:]
    np.testing.assert_allclose((found[1:] ** 2).sum(axis=1), spread)
