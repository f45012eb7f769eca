"""Counts, times and sizes as an editor would have them."""

import pytest

from jaxcontam.amounts import amount, counted, duration_words

pytestmark = pytest.mark.unoptimised


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "less than a second"),
        (0.6, "about 1 second"),
        (119, "about 119 seconds"),
        (119.6, "about 2 minutes"),
        (7_100, "about 118 minutes"),
        (7_200, "about 2 hours"),
        (5_000_000, "about 1,388.9 hours"),
    ],
)
def test_a_time_has_one_unit_in_its_number(seconds, words):
    assert duration_words(seconds) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (140.2, "140"),
        (12_345.0, "12,000"),
        (1, "1.0"),
        (0.97, "0.97"),
        (0.999, "1.0"),
        (-9.96, "-10"),
        (0.00123, "0.0012"),
        (0.0000123, "1.2e-05"),
        (0.0, "0"),
        (float("inf"), "inf"),
    ],
)
def test_an_amount_has_two_digits_and_no_exponent(value, text):
    assert amount(value) == text


def test_what_a_user_typed_keeps_its_digits():
    assert amount(0.5, 3, padded=False) == "0.5"
    assert amount(1_500.0, 3, padded=False) == "1,500"


def test_one_of_a_kind_is_singular():
    assert counted(1, "text") == "1 text" and counted(0, "text") == "0 texts"
    assert counted(2_000, "match", "matches") == "2,000 matches"
