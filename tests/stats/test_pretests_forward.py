"""Directional pre-tests: files that point forward, and their signs read backwards."""

import itertools

import numpy as np
import pytest

from jaxcontam.stats.pretests import blind_pretests, forward, learned
from jaxcontam.stats.pretests.forward import (
    _handed_on,
    _scripts,
    forward_pretests,
    numbers_by_place,
    scales,
)
from jaxcontam.stats.pretests.learned import _agreement, learned_direction
from jaxcontam.stats.pretests.similarity import read_words, tfidf
from tests.support import pretest_files as files

FORWARD = {
    "numbers": files.counted,
    "dates": files.dated,
    "names": files.names_handed_on,
    "references": files.taken_up,
    "turns": files.answered,
    "translations": files.translations,
}


@pytest.mark.parametrize("name", FORWARD)
def test_each_kind_is_found_and_changes_its_sign_read_backwards(name):
    texts = FORWARD[name](np.random.default_rng(0), 160)
    forward, backward = (
        {test.name: test for test in forward_pretests(rows)}[f"forward_{name}"]
        for rows in (texts, texts[::-1])
    )
    assert forward.directional and not forward.passed and not backward.passed
    assert backward.statistic == pytest.approx(-forward.statistic, rel=0.1)


def test_marks_that_start_again_point_forward_and_likeness_does_not():
    for make in (files.weekdays, files.lettered):
        assert "forward_dates" in refused(make(np.random.default_rng(1), 160))
    for make in (files.documents, files.dialogue, files.later_copies, files.prefixes):
        assert not refused(make(np.random.default_rng(2), 160))


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


VAGUE = [], ["one"], ["a", "b"], ["a b", "c d", "e f", "g h"], [""] * 9, ["7"] * 30


@pytest.mark.parametrize("texts", VAGUE)
def test_what_cannot_vary_is_not_applicable(texts):
    tests = *forward_pretests(texts), *blind_pretests(texts), learned_direction(texts)
    assert len(tests) == 7 + 8 + 1
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


WORDS = [f"{a}{b}" for a, b in itertools.product("bdfgklmnprst", "aeiouyw")]
MONTHS = ["janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août"]
SIGNS = (("?",), ("!",), (".",))
ROLES = (("hello", "please"), ("try", "perhaps"), ("thanks", "great"))


def rows_of(rng, n, marks):
    """Random words around one that its place in the file gives."""
    return [
        " ".join([*rng.choice(WORDS, 4), rng.choice(marks[i % len(marks)]), "and"])
        for i in range(n)
    ]


@pytest.mark.parametrize("marks", [[(m,) for m in MONTHS], ROLES, SIGNS])
def test_rule_that_rows_follow_is_learned_and_its_random_order_teaches_nothing(marks):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, 120, marks)
    found = learned_direction(rows)
    assert found.directional and found.applicable
    assert found.p_value <= 0.001
    p_values = [learned_direction(rng.permutation(rows)).p_value for _ in range(40)]
    # 40 uniform p-values have a mean of 0.5 with a standard error of 0.046.
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.14)


def test_file_read_backwards_is_as_directed():
    """phi changes its sign in every stratum, so no product of two does."""
    rows = rows_of(np.random.default_rng(1), 96, ROLES)
    one, other = learned_direction(rows), learned_direction(rows[::-1])
    # The same sum, standardised by other draws.
    assert other.statistic == pytest.approx(one.statistic, rel=0.02)


def test_sum_is_that_of_all_pairs_of_strata():
    """Against phi as matrices, over every assignment of signs."""
    rng = np.random.default_rng(2)
    words = [list(rng.choice(WORDS[:6], 5)) for _ in range(24)]
    x_NV = tfidf(words).toarray().astype(np.float64)
    phi_K = np.array(
        [
            sum(
                np.outer(x_NV[i], x_NV[i + 1]) - np.outer(x_NV[i + 1], x_NV[i])
                for i in range(first, first + 3)
            )
            for first in range(0, 24, 4)
        ]
    ).reshape(6, -1)
    products_KK = phi_K @ phi_K.T / 2
    np.fill_diagonal(products_KK, 0.0)

    left = np.array([i for i in range(23) if i % 4 != 3])
    found = _agreement(tfidf(words), left, left + 1, left // 4)
    np.testing.assert_allclose(found, products_KK, atol=1e-6)


def test_long_files_are_compared_in_parts(monkeypatch):
    """A rule is found in 3,000 strata, no more than 512 of which meet."""
    sizes = []

    def agreement(*vectors_and_pairs):
        sizes.append(len(found := _agreement(*vectors_and_pairs)))
        return found

    monkeypatch.setattr(learned, "_agreement", agreement)
    rng = np.random.default_rng(3)
    rows = np.array(rows_of(rng, 12_000, [(m,) for m in MONTHS]))
    # Two rows of three are out of their place.
    moved = np.flatnonzero(rng.random(len(rows)) < 2 / 3)
    rows[moved] = rows[rng.permutation(moved)]
    assert learned_direction(rows.tolist()).p_value <= 0.001
    assert sum(sizes) == 4 * 3_000 and max(sizes) == 512


def test_groups_without_neighbours_do_not_count():
    """The first half of the file has no two rows of one group in a stratum."""
    rows = rows_of(np.random.default_rng(5), 6_000, ROLES)
    groups = [*range(3_000), *([0] * 3_000)]
    found = learned_direction(rows, groups=groups)
    assert found.statistic > 10
    # Within a group no neighbour follows the one before it.
    alternate = [i % 8 for i in range(6_000)]
    assert not learned_direction(rows, groups=alternate).applicable
