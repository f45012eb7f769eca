"""Cuts and random snippets end between words and keep what is inside."""

import itertools
from collections import Counter

import pytest
import scipy.stats

from jaxcontam.members.known_texts import count_words, cut_words, random_snippets

TEXT = "  one two\n\nthree\tfour  five six seven "


@pytest.mark.parametrize(
    ("n_words", "cut"),
    [(1, "  one"), (3, "  one two\n\nthree"), (7, TEXT.rstrip(" ")), (8, TEXT)],
)
def test_a_cut_keeps_the_white_space_inside(n_words, cut):
    assert cut_words(TEXT, n_words) == cut


def test_a_cut_holds_as_many_words_as_asked():
    for n_words in range(1, 8):
        assert count_words(cut_words(TEXT, n_words)) == n_words


def test_a_text_without_words_has_no_parts():
    assert cut_words(" \n", 3) == " \n"
    assert random_snippets("", n_snippets=3, n_words=2, seed=0) == ()


def test_snippets_are_slices_that_share_no_word():
    text = " ".join(map(str, range(1000)))
    snippets = random_snippets(text, n_snippets=30, n_words=20, seed=1)
    numbers = [[int(word) for word in snippet.split()] for snippet in snippets]
    assert len(snippets) == 30
    for words in numbers:
        assert words == list(range(words[0], words[0] + 20))
    assert all(a[-1] < b[0] for a, b in itertools.pairwise(numbers))


def test_every_set_of_places_is_equally_likely():
    """2 snippets of 2 words fit into 6 words in C(4, 2) = 6 ways."""
    text = "a b c d e f"
    counts = Counter(
        random_snippets(text, n_snippets=2, n_words=2, seed=seed)
        for seed in range(1200)
    )
    assert len(counts) == 6
    # 1,200 seeds: a right law fails one time in 1,000.
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001


def test_a_short_book_gives_what_fits_side_by_side():
    text = " ".join(map(str, range(25)))
    assert len(random_snippets(text, n_snippets=9, n_words=10, seed=0)) == 2
    assert random_snippets(" 1 2 ", n_snippets=9, n_words=10, seed=0) == ("1 2",)


def test_places_depend_on_seed_and_text_alone():
    text = " ".join(map(str, range(500)))
    first, again, other = (
        random_snippets(text, n_snippets=5, n_words=9, seed=seed) for seed in (3, 3, 4)
    )
    assert first == again != other
