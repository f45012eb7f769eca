"""Blind scorers: exact counts, files of natural order, size, and what they say."""

import itertools
import math

import numpy as np
import pytest

from jaxcontam.stats.adjacency import double_centred
from jaxcontam.stats.pretests import blind, blind_pretests
from jaxcontam.stats.pretests.attraction import attraction_of, far_apart
from jaxcontam.stats.pretests.blind import KINDS, direction_of, matrices_of, read_tokens
from tests.support import pretest_files as files


def blind_matrices(texts, kind):
    """Matrices of texts as they stand."""
    return matrices_of(read_tokens(texts, kind), kind)


def by_hand(a, b, others, cache, n_kinds):
    """log p(b | a) by loops over what was read; also the sum of p over all tokens."""
    a, b = [0, *a, 1], [0, *b, 1]
    heap = [token for row in others for token in (0, *row, 1)]
    total, sums = 0.0, []
    for t in range(1, len(b)):

        def p_of(token, t=t):
            p = (heap.count(token) + 1 / n_kinds) / (len(heap) + 1)
            for n, pseudocount in enumerate(cache.pseudocounts, 1):
                padding = [0] * (n - 1)
                own = padding + b[:t] + [token]
                other = padding + a
                context = own[t : t + n - 1]
                found = seen = 0.0
                for s in range(1, len(a)):
                    if other[s : s + n - 1] == context:
                        distance = len(a) - 1 - s + t
                        weight = 1 + 20 * math.exp(-distance / cache.memory)
                        seen += weight
                        found += weight * (a[s] == token)
                for s in range(1, t):
                    if own[s : s + n - 1] == context:
                        seen += 1
                        found += b[s] == token
                p = (found + pseudocount * p) / (seen + pseudocount)
            return p

        sums.append(sum(p_of(token) for token in range(n_kinds)))
        total += math.log(p_of(b[t]))
    return total, sums


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_those_of_counting_by_hand(kind):
    rng = np.random.default_rng(0)
    letters = [chr(2 + i) for i in range(3)]
    rows = [rng.choice(letters, rng.integers(0, 7)).tolist() for _ in range(9)]
    # Words are told apart by what stands between them.
    texts = [("" if kind == "characters" else " ").join(row) for row in rows]
    if kind == "words":
        texts = [text.translate({2: "x", 3: "y", 4: "z"}) for text in texts]
    seen = dict.fromkeys(letter for row in rows for letter in row)
    numbers = {letter: n for n, letter in enumerate(seen, 2)}
    tokens = [[numbers[letter] for letter in row] for row in rows]
    first = 0
    for matrix in blind_matrices(texts, kind):
        for i, j in itertools.permutations(range(len(matrix)), 2):
            others = tokens[: first + j] + tokens[first + j + 1 :]
            pair, n = (tokens[first + i], tokens[first + j]), len(numbers) + 2
            expected, sums = by_hand(*pair, others, blind._CACHES[kind], n)
            assert matrix[i, j] == pytest.approx(expected, abs=1e-9)
            assert sums == pytest.approx([1.0] * len(sums), abs=1e-9)
        first += len(matrix)
    assert first == 9


def test_long_rows_keep_their_ends_and_every_row_is_read(monkeypatch):
    cache = blind._Cache((50.0, 1.0), 3.0, 20 * 21)
    monkeypatch.setitem(blind._CACHES, "characters", cache)
    texts = ["a" * 15 + "ca" * (5 + i % 3) + "c" * 15 for i in range(21)]
    whole = blind_matrices(["a" * 10 + "c" * 10] * 21, "characters")
    cut = blind_matrices(texts, "characters")
    np.testing.assert_allclose(np.concatenate(cut), np.concatenate(whole))
    # Less than 16 tokens a row: smaller blocks, the same work.
    cache = blind._Cache((50.0, 1.0), 3.0, 10 * 21)
    monkeypatch.setitem(blind._CACHES, "characters", cache)
    sizes = [len(matrix) for matrix in blind_matrices(texts, "characters")]
    assert sum(sizes) == 21 and max(sizes) == 4


def test_work_in_parts_gives_the_same_matrices(monkeypatch):
    texts = files.sentences(np.random.default_rng(1), 40)
    at_once = blind_matrices(texts, "words")
    monkeypatch.setattr(blind, "_CELLS", 300)
    for one, other in zip(at_once, blind_matrices(texts, "words"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


LABELS = "labels_in_text labels_in_chat key_order spacing quotes prefixes habits"


@pytest.mark.parametrize("make", [*LABELS.split(), "documents", "dialogue"])
def test_files_in_natural_order_attract(make):
    found = refused(getattr(files, make)(np.random.default_rng(0), 600))
    assert found & {"blind_attraction:words", "blind_attraction:characters"}
    # Likeness reads the same backwards.
    assert not any("direction" in name for name in found)


@pytest.mark.parametrize(
    ("name", "makes"),
    [
        ("blind_lags:words", "later_copies zipped"),
        ("blind_direction:words", "names_handed_on chained_sums translations answered"),
    ],
)
def test_likeness_two_rows_away_and_direction_are_seen(name, makes):
    for make in makes.split():
        tests = blind_pretests(getattr(files, make)(np.random.default_rng(2), 300))
        found = {test.name: test for test in tests}[name]
        assert not found.passed and found.statistic > 0, make


def test_runs_that_fill_strata_are_seen_from_afar():
    rng = np.random.default_rng(7)
    styles = np.repeat(rng.permutation([0, 1] * 15), 16).tolist()
    rows = [("Q: {}.", "Question: {}")[k].format(files.text(rng)) for k in styles]
    found = refused(rows)
    assert "blind_runs:words" in found
    assert sorted(far_apart(37)) == list(range(32))
    assert far_apart(16).tolist()[:8] == [0, 1, 4, 5, 8, 9, 12, 13]


def test_rows_that_move_among_equal_values_only_are_not_refused():
    rng = np.random.default_rng(3)
    labels = np.repeat(rng.integers(3, size=60), 5).tolist()
    rows = [f"{files.text(rng)} {'abc'[label] * 5}" for label in labels]
    assert "blind_attraction:words" in refused(rows)
    assert not refused(rows, groups=labels)


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b", "c"], ["same"] * 30])
def test_what_cannot_vary_is_not_applicable(texts):
    tests = blind_pretests(texts)
    assert len(tests) == 8
    assert all(t.passed and t.p_value == 1 and not t.applicable for t in tests)


def test_pvalues_of_few_strata_are_those_of_all_orders():
    rng = np.random.default_rng(5)
    matrices = [rng.normal(size=(4, 4)) + np.eye(4, k=1) for _ in range(2)]
    orders = np.array(list(itertools.permutations(range(4))))
    centred = [double_centred(matrix) for matrix in matrices]
    sums = [one[orders[:, :-1], orders[:, 1:]].sum(axis=1) for one in centred]
    of_all = np.add.outer(*sums).ravel()
    above, below = (np.mean(sign * (of_all - of_all[0]) >= -1e-9) for sign in (1, -1))
    near, _ = attraction_of(matrices, [np.zeros(4, int)] * 2)
    # Columns are 40,320 draws a stratum, not each order once: standard errors of 1 %.
    assert near.p_value == pytest.approx(min(1.0, 2 * min(above, below)), rel=0.05)
    one, other = (np.trace(matrix, 1) - np.trace(matrix, -1) for matrix in centred)
    # All signs of two, either way.
    p_value = 0.5 + 0.5 * (abs(one - other) >= abs(one + other))
    assert direction_of(matrices).p_value == p_value


def test_a_gain_at_each_boundary_is_the_statistic():
    gained = [0.7 * np.eye(8, k=1)] * 30
    near, _ = attraction_of(gained, [np.zeros(8, int)] * 30)
    assert near.statistic == pytest.approx(0.7, rel=0.05)
    # Groups turn on their own: with one row a group nothing turns.
    assert not direction_of(gained, [np.arange(8)] * 30).applicable
    # Centring takes 1 / 28 of what only points forward: it looks like row effects.
    assert direction_of(gained).statistic == pytest.approx(0.35 * (1 - 1 / 28))


def refused(texts, **kwargs):
    return {test.name for test in blind_pretests(texts, **kwargs) if not test.passed}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_once_and_moved_as_numbers(kind):
    """Also where a row, and tokens that it alone holds, are left out."""
    texts = ["a b", "c  d!", "", "zz 9", "b a c", "d d", "e", "a", "f g"]
    order = np.array([8, 0, 7, 2, 4, 6, 1, 5])
    moved = blind.read_tokens(texts, kind).rows(order)
    again = blind_matrices([texts[i] for i in order.tolist()], kind)
    for one, other in zip(blind.matrices_of(moved, kind), again, strict=True):
        np.testing.assert_array_equal(one, other)
