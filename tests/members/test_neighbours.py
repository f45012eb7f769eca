"""Neighbours of a text: near it, never it, and drawn from the text alone."""

import math

import pytest

from jaxcontam.members.passes import SHARE, edited

TEXT = (
    "The quick brown fox jumps over the lazy dog, and then the dog gets up\n"
    "to look for the fox in  all places where a fox may be found at night."
)


# One word, one character, white space alone, equal words, letters of several bytes.
@pytest.mark.parametrize("text", [TEXT, "word", "a", " ", "\n\n", "no no no", "éé 雨"])
def test_neighbours_are_neither_empty_nor_the_text(text):
    for seed in range(40):
        found = edited(text, 5, seed)
        assert len(found) == 5
        assert all(found)
        assert text not in found


def test_neighbours_differ_from_each_other():
    assert len(set(edited(TEXT, 20, 0))) == 20


def test_neighbours_depend_on_the_seed_and_the_text_alone():
    assert edited(TEXT, 4, 1) == edited(TEXT, 4, 1)
    assert edited(TEXT, 4, 1) != edited(TEXT, 4, 2)
    # More of them do not change the first ones.
    assert edited(TEXT, 9, 1)[:4] == edited(TEXT, 4, 1)


def test_a_neighbour_keeps_most_of_the_words():
    words = TEXT.split()
    most = math.ceil(SHARE * len(words))
    for neighbour in edited(TEXT, 50, 0):
        own = neighbour.split()
        assert abs(len(own) - len(words)) <= most
        kept = [word for word in words if word in own]
        # A swap of two words keeps both; all other edits touch one word each.
        assert len(kept) >= len(words) - 2 * most


def test_every_kind_of_edit_occurs():
    """Lengths fall, rise and stay; words fall, rise and stay."""
    found = edited(TEXT, 60, 3)
    assert {(len(x.split()) > 30) - (len(x.split()) < 30) for x in found} == {-1, 0, 1}
    short = edited("word", 60, 3)
    assert "wword" in short and "wrod" in short and "wor" in short
    assert "word word" in short


def test_an_empty_text_has_no_neighbours():
    with pytest.raises(ValueError, match="empty text"):
        edited("", 1, 0)
