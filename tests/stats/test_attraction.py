"""Attraction beside direction: which one a report shows, in words and numbers."""

import math

import pytest

from jaxcontam.proof.advice import AuditedFile
from jaxcontam.proof.plots import split_plot
from jaxcontam.proof.sentences import attraction_sentence, gains_of, kind_of, pair_test
from jaxcontam.stats.result import Neighbours
from tests.support.report_documents import order_result

pytestmark = pytest.mark.unoptimised


def gains(forward, backward, se=0.1):
    """Two independent gains and their difference."""
    return Neighbours(
        forward=forward,
        forward_se=se,
        backward=backward,
        backward_se=se,
        excess=forward - backward,
        excess_se=math.sqrt(2) * se,
    )


def row(forward, backward, se=0.1, **changes):
    found = gains(forward, backward, se)
    fields = {"method": "direction", "neighbours": found, "log10_p": -6.0}
    return order_result(**fields | changes)


@pytest.mark.parametrize(
    ("forward", "backward", "kind"),
    [
        (1.9, 0.1, "memory"),
        (2.0, 1.0, "both"),
        (2.0, 1.9, "alike"),
        (0.3, 0.15, "unclear"),
        (0.1, 1.0, "against"),
        (-1.0, -0.9, "unlike"),
        (0.05, -0.05, "nothing"),
    ],
)
def test_gains_are_told_apart_by_their_intervals(forward, backward, kind):
    found = gains(forward, backward)
    assert kind_of(found) == kind
    half = 1.959964 * 0.1
    one, _, excess = gains_of(found).values()
    assert (one.low, one.high) == pytest.approx((forward - half, forward + half))
    assert excess.high - excess.low == pytest.approx(2 * math.sqrt(2) * half)


@pytest.mark.parametrize(
    ("verdict", "changes", "words"),
    [
        ("contaminated", {}, "the order was remembered, not just alike"),
        ("inconclusive", {"log10_p": -1.5}, "but so may chance"),
        ("suspected", {}, "an order that a reader can predict"),
        ("invalid design", {}, "and so does a file that points forward itself"),
    ],
)
def test_memory_is_named_only_where_the_verdict_does(verdict, changes, words):
    sentence = attraction_sentence(row(1.9, 0.1, 0.15, **changes), verdict)
    assert words in sentence
    assert sentence.startswith(
        "An example gains 1.9 nats after the one published before it (1.6 to 2.2), "
        "and 0.1 after the one published after it (-0.2 to 0.4): "
    )
    assert ("remembered" in sentence) == (verdict == "contaminated")


def test_test_of_whole_orders_shows_the_gains_of_a_pair_test_beside_it():
    own = order_result()
    some, all_pairs = row(1.0, 0.0), row(1.1, 0.0, lag_profile=(0.1,) * 10)
    assert pair_test(AuditedFile(own, (some, all_pairs))) is all_pairs
    assert pair_test(AuditedFile(some, (all_pairs,))) is some
    assert pair_test(AuditedFile(own)) is None
    assert attraction_sentence(own, None) is None


def test_split_of_memory_and_natural_order_says_its_numbers_and_repeats():
    profile = (0.0, 0.1, None, 0.2, 0.3, 2.5, 0.2, 0.1, 0.0, None)
    whole = row(1.9, 0.1, lag_profile=profile).numbers
    svg = split_plot(whole)
    assert svg == split_plot(whole)
    assert "1 after it, as published: 2.50" in svg
    assert "1 before it, the wrong way: 0.30" in svg
    assert "3 before it" not in svg
    # Where few pairs were scored only the neighbours are known.
    assert "1 after it, as published: 1.90" in split_plot(row(1.9, 0.1).numbers)
    assert split_plot(order_result().numbers) is None
