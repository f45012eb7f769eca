"""ROUGE-L against hand cases and the plain table."""

import numpy as np
import pytest

from jaxcontam.replication.overlap import common_words, rouge_l, rouge_words


def table_length(a, b):
    """Longest common subsequence by the plain table."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i in range(len(a)):
        for j in range(len(b)):
            table[i + 1, j + 1] = (
                table[i, j] + 1
                if a[i] == b[j]
                else max(table[i, j + 1], table[i + 1, j])
            )
    return table[-1, -1]


def test_common_words_equal_the_plain_table():
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = (list(rng.choice(list("abcde"), rng.integers(0, 90))) for _ in range(2))
        assert common_words(a, b) == table_length(a, b)


@pytest.mark.parametrize(
    ("reference", "candidate", "recall", "precision"),
    [
        # The cases of Lin 2004, section 3.1: two orders of the same four words.
        ("police killed the gunman", "police kill the gunman", 3 / 4, 3 / 4),
        ("police killed the gunman", "the gunman kill police", 2 / 4, 2 / 4),
        ("one two three four", "four three two one", 1 / 4, 1 / 4),
        ("a b c", "x a y b z c", 1.0, 3 / 6),
        ("The CAT, (sat).", "the cat sat", 1.0, 1.0),
        ("it's", "it s", 1.0, 1.0),
        ("", "a", 0.0, 0.0),
        ("a", "", 0.0, 0.0),
        ("дом", "дом", 0.0, 0.0),
    ],
)
def test_hand_cases(reference, candidate, recall, precision):
    found = rouge_l(reference, candidate)
    assert (found.recall, found.precision) == pytest.approx((recall, precision))
    both = recall + precision
    expected = 2 * recall * precision / both if both else 0.0
    assert found.f1 == pytest.approx(expected)
    # Words are ASCII letters and digits, in lower case.
    assert rouge_words("Naïve 3.14 x_y\nÉ") == ["na", "ve", "3", "14", "x", "y"]
