"""A direction that is learned from a part of a file and found in the others."""

import itertools

import numpy as np
import pytest

from jaxcontam.stats.pretests import learned
from jaxcontam.stats.pretests.learned import _agreement, learned_direction
from jaxcontam.stats.pretests.similarity import tfidf

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


def test_level_holds_where_rows_drift():
    """Topics in runs: the order is no random one, and reads as well backwards."""
    rng = np.random.default_rng(6)
    rejected = 0
    for _ in range(100):
        topic, rows = 0, []
        for _ in range(80):
            topic = rng.integers(5) if rng.random() < 0.3 else topic
            rows.append(" ".join(rng.choice(WORDS[12 * topic : 12 * topic + 16], 5)))
        rejected += learned_direction(rows).p_value <= 0.1
    # 10 are expected, with a standard deviation of 3.
    assert rejected <= 19


def test_groups_without_neighbours_do_not_count():
    """The first half of the file has no two rows of one group in a stratum."""
    rows = rows_of(np.random.default_rng(5), 6_000, ROLES)
    groups = [*range(3_000), *([0] * 3_000)]
    found = learned_direction(rows, groups=groups)
    assert found.statistic > 10
    # Within a group no neighbour follows the one before it.
    alternate = [i % 8 for i in range(6_000)]
    assert not learned_direction(rows, groups=alternate).applicable


@pytest.mark.parametrize("rows", [(), ("one",), ("a b", "c d", "e f", "g h")])
def test_nothing_in_common_teaches_nothing(rows):
    found = learned_direction(rows)
    assert (found.applicable, found.p_value) == (False, 1.0)
