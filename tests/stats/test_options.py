"""Order of answer options: exact among the orders that may stand, blind to the rest."""

import functools
import itertools
import math

import numpy as np
import pytest
import scipy.stats

from jaxcontam.stats.option_orders import draw_option_orders, is_sorted, option_pretests
from tests.support.random_items import HOUSE, random_items

pytestmark = pytest.mark.unoptimised

DIGEST = "sha256:" + "c3" * 32


draw = functools.partial(draw_option_orders, seed=0, content_digest=DIGEST)


def reason_to_leave_out(texts):
    """Why an item alone in its file takes no part; None if it does."""
    design = draw([texts], 1)
    return next(iter(design.left_out), None)


def test_one_item_of_each_set_of_options_takes_part():
    sets = [
        HOUSE,
        ["able", "kind", "tree", "bone"],
        ["Kind", " able", "tree.", "BONE"],
        ["kind", "road", "lamp", "stone"],
    ]
    # The smallest digests of the two sets; one option in common joins nothing.
    digests = ["b", "a", "c", "d"]
    for seed in range(5):
        design = draw(sets, 3, seed=seed, digests=digests)
        assert design.items.tolist() == [1, 3]
        assert design.left_out == {"share two options with another item": 2}


def test_a_house_order_of_some_options_is_one_choice():
    """Beside an option that is new in each item."""
    house = [["loses", "gains", "halts", f"new{i}"] for i in range(40)]
    others = [["up", "down", "left"], ["right", "up", "in"], ["left", "out", "up"]]
    design = draw([*house, *others], 3)
    # Of the others the first and the last share two.
    assert sum(k < 40 for k in design.items) == 1
    assert sum(k >= 40 for k in design.items) == 2


def test_choice_among_items_that_share_options_knows_nothing_of_their_orders():
    """Even one that is sorted is chosen, and then its whole set is left out."""
    rng = np.random.default_rng(7)
    digests = [f"{i:02}" for i in range(20)]
    for first in (HOUSE, sorted(HOUSE)):
        others = [[str(x) for x in rng.permutation(HOUSE)] for _ in range(19)]
        design = draw([first, *others], 3, digests=digests)
        assert design.left_out["share two options with another item"] == 19
        assert design.items.tolist() == ([0] if first == HOUSE else [])


def test_of_copies_in_several_orders_chance_takes_one_and_not_the_first():
    """In a sorted file the first copy is the one whose order is alphabetical."""
    copies = [["able", "kind", "bone", "tree"], HOUSE]
    n = 400
    chosen = [draw(copies, 3, seed=i).items.item() for i in range(n)]
    assert abs(np.mean(chosen) - 0.5) <= 3.3 * math.sqrt(0.25 / n)


@pytest.mark.parametrize("n_orders", [1, 3, 5, 23, 99])
def test_orders_are_different_none_sorted_and_the_published_one_comes_first(n_orders):
    items = random_items(np.random.default_rng(1), n=60, sizes=(3, 4, 5, 6, 9))
    design = draw(items, n_orders)
    for i, orders in zip(design.items.tolist(), design.orders, strict=True):
        found = [tuple(order) for order in orders.tolist()]
        n = len(items[i])
        assert found[0] == tuple(range(n))
        assert len(set(found)) == len(found)
        may_stand = math.factorial(n)
        if n < 6:
            may_stand = sum(
                not is_sorted([items[i][j] for j in order])
                for order in itertools.permutations(range(n))
            )
        assert len(found) == min(n_orders + 1, may_stand)
        for order in found:
            assert sorted(order) == list(range(n))
            assert not is_sorted([items[i][j] for j in order])


def test_draws_are_uniform_over_the_other_orders_and_follow_the_seed():
    words = ("koala", "ape", "vole", "crow")
    items = [[f"{word} {i:04}" for word in words] for i in range(6_000)]
    first, again, other = (draw(items, 1, seed=seed).orders for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    drawn = [tuple(orders[1]) for orders in first]
    counts = np.array([drawn.count(order) for order in set(drawn)])
    # 24 orders less 2 alphabetical ones and the published one; lengths tie.
    assert len(counts) == 21
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_draws_are_blind_to_the_published_order():
    """Seen as texts, the draws change only where they would repeat the published."""
    rng = np.random.default_rng(3)
    items = [
        [f"{word} {i}" for word in item]
        for i, item in enumerate(random_items(rng, n=80, sizes=(4, 7)))
    ]
    turned = [[str(x) for x in rng.permutation(item)] for item in items]
    one, other = (
        {
            i: [tuple(version[i][j] for j in order) for order in orders.tolist()]
            for i, orders in zip(design.items.tolist(), design.orders, strict=True)
        }
        for version in (items, turned)
        for design in [draw(version, 2, seed=1)]
    )
    n_same = 0
    for i in one.keys() & other.keys():
        (first, *a), (second, *b) = one[i], other[i]
        if first not in b and second not in a:
            assert a == b
            n_same += 1
    assert n_same > 40


def test_right_option_that_is_fixed_never_moves():
    rng = np.random.default_rng(6)
    items = random_items(rng, n=80, sizes=(3, 4, 7))
    places = [int(rng.integers(len(item))) for item in items]
    design = draw(items, 23, fixed=places)
    for i, orders in zip(design.items.tolist(), design.orders, strict=True):
        assert (orders[:, places[i]] == places[i]).all()


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["crow", "ape", "vole"], None),
        (["ape", "crow", "vole"], "are sorted"),
        (["Vole", "crow", "APE"], "are sorted"),
        (["b", "aaa", "cccccc"], "are sorted"),
        (["ape", "crow"], None),
        (["1", "30", "2"], "are numbers"),
        (["5 cm", "10 cm", "7.5 cm"], "are numbers"),
        (["$20", "$1,000", "-$3"], None),
        (["1990", "1985", "1999", "unknown"], None),
        (["crow", "ape", "crow"], "repeat an option"),
        (["crow", "ape", "All of the above"], "refer to places"),
        (["crow", "none of these", "ape"], "refer to places"),
        (["crow", "ape", "Both A and B"], "refer to places"),
        (["crow", "A, B and C only", "ape"], "refer to places"),
        (["crow", "Neither", "ape"], "refer to places"),
        (["crow", "option b", "ape"], "refer to places"),
        (["II only", "I and II only", "III only"], None),
        (["vitamin A", "a and b are odd", "calcium"], None),
    ],
)
def test_items_that_authors_sort_or_that_name_places_are_left_out(texts, reason):
    assert reason_to_leave_out(texts) == reason


@pytest.mark.parametrize("fault", ["answer_place", "option_length", "option_alphabet"])
def test_pretests_catch_places_that_say_something(fault):
    rng = np.random.default_rng(3)
    items = random_items(rng, n=300, sizes=(4,))
    answers = rng.integers(4, size=300).tolist()
    if fault == "answer_place":
        answers[:120] = [2] * 120
    else:
        key = len if fault == "option_length" else str
        # The first three in order and the last anywhere: not sorted, not random.
        items = [[*sorted(item[:3], key=key), item[3]] for item in items]
    kept = [
        (item, answer)
        for item, answer in zip(items, answers, strict=True)
        if reason_to_leave_out(item) is None
    ]
    found = option_pretests(*map(list, zip(*kept, strict=True)), seed=0)
    assert not {t.name: t.passed for t in found}[fault]
    # The place of answers that never move is not looked at.
    names = [t.name for t in option_pretests(items, answers, seed=0, fixed=True)]
    assert names == ["option_length", "option_alphabet"]
