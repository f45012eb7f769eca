"""`windows`: each target once, long contexts for all of them, a bounded cost."""

import math

import pytest

from jaxcontam.scoring.rows import Window, windows

CONTEXTS = [2, 3, 4, 5, 8, 17]
LENGTHS = range(1, 90)


def covers():
    """Every (n_tokens, context, windows) of the grid."""
    return [(n, context, windows(n, context)) for context in CONTEXTS for n in LENGTHS]


def test_every_token_but_the_first_is_a_target_exactly_once():
    for n, _, found in covers():
        targets = [
            t for window in found for t in range(window.first_target, window.stop)
        ]
        assert targets == list(range(1, n))


def test_window_is_never_longer_than_the_context_and_stays_in_the_sequence():
    for n, context, found in covers():
        for window in found:
            assert 0 <= window.start < window.first_target <= window.stop <= n
            assert window.stop - window.start <= context


def test_every_target_has_all_tokens_or_half_a_context_before_it():
    for _, context, found in covers():
        for window in found:
            behind = window.first_target - window.start
            assert window.start == 0 or behind >= context / 2


def test_long_sequence_is_read_in_full_windows_to_its_end():
    for n, context, found in covers():
        if n > context:
            assert {window.stop - window.start for window in found} == {context}
            assert found[-1].stop == n


def test_number_of_windows_is_that_of_a_stride_of_half_a_context():
    for n, context, found in covers():
        strides = max(0, math.ceil((n - context) / (context // 2)))
        assert len(found) == 1 + strides


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, [Window(0, 1, 1)]),
        (4, [Window(0, 4, 1)]),
        (5, [Window(0, 4, 1), Window(1, 5, 4)]),
        (6, [Window(0, 4, 1), Window(2, 6, 4)]),
        (9, [Window(0, 4, 1), Window(2, 6, 4), Window(4, 8, 6), Window(5, 9, 8)]),
    ],
)
def test_windows_of_four_by_hand(n, expected):
    assert windows(n, 4) == expected
