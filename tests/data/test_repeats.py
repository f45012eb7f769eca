"""What is kept of a file before a test stands in an order as fair as the file's own."""

import collections
import dataclasses
import itertools
import json

import numpy as np
import pytest
import scipy.stats

from jaxcontam.data.benchmark import Benchmark, drawn_places, without_repeats
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.known_texts import read_texts
from jaxcontam.orders.benchmarks import as_blocks, block_starts, whole_blocks
from jaxcontam.score_gap.flags import InflationDesign
from jaxcontam.score_gap.items import read_sides

N_ORDERS = 2_000


def file_of(texts, rows=None):
    return Benchmark("b", tuple(texts), tuple(rows or [None] * len(texts)))


def by_block_limit(file):
    """Blocks of one to four rows, as many as are whole within a limit."""
    names = [name for name in file.texts for _ in range(ord(name) - ord("a") + 1)]
    rows = [{"block": name} for name in names]
    whole = whole_blocks(file_of(names, rows), "block", 7)
    return as_blocks(whole, block_starts(whole, "block"))


@pytest.mark.parametrize(
    ("copies", "keep"), [([8, 4, 2, 1], without_repeats), ([1] * 4, by_block_limit)]
)
def test_what_is_kept_stands_in_any_order_equally_often(copies, keep):
    """One file in random orders: given what is kept, all its orders are alike."""
    rng = np.random.default_rng(0)
    rows = np.repeat(list("abcd"), copies)
    found = collections.defaultdict(collections.Counter)
    for _ in range(N_ORDERS):
        kept = keep(file_of(rng.permutation(rows).tolist())).texts
        found[tuple(sorted(kept))][kept] += 1
    p_values = [
        scipy.stats.chisquare([orders[o] for o in itertools.permutations(kept)]).pvalue
        for kept, orders in found.items()
        if len(kept) > 1 and sum(orders.values()) >= 200
    ]
    assert p_values and min(p_values) > 0.001 / len(p_values)


def test_within_groups_what_is_kept_stands_in_any_order_equally_often():
    """x has two copies in one group, y and z have one in each."""
    rng = np.random.default_rng(0)
    found = collections.Counter()
    for _ in range(N_ORDERS):
        first, second = rng.permutation(list("xxyz")), rng.permutation(list("yzww"))
        groups = ["1"] * 4 + ["2"] * 4
        texts = [*first.tolist(), *second.tolist()]
        kept = without_repeats(file_of(texts, [{"group": g} for g in groups]))
        of_first = [
            text
            for text, row in zip(kept.texts, kept.rows, strict=True)
            if row == {"group": "1"}
        ]
        if sorted(of_first) == ["x", "y"]:
            found["".join(of_first)] += 1
    n = found.total()
    assert n > 250
    assert scipy.stats.binomtest(found["xy"], n).pvalue > 0.001


def test_draw_is_fresh_for_every_order_and_the_same_for_one():
    """A draw by what the file holds alone would keep each text's place for good."""
    texts = ["a"] * 50 + ["b", "c"]
    places = set()
    for i in range(50):
        order = [*texts[: 50 - i], "b", "c", *texts[50 - i : 50]]
        kept = without_repeats(file_of(order)).texts
        assert kept == without_repeats(file_of(order)).texts
        places.add(kept.index("a"))
    assert places == {0, 2}


def test_a_file_that_is_written_several_times_keeps_its_order_and_others_are_told():
    kept = without_repeats(file_of(["b", "a", "c"] * 3))
    assert kept.texts == ("b", "a", "c")
    assert "the first copy" in kept.left_out[-1]
    file = dataclasses.replace(file_of(["x", "y", "x"]), left_out=("1 blank line",))
    found = without_repeats(file)
    assert sorted(found.texts) == ["x", "y"] and found.left_out[0] == "1 blank line"
    assert found.left_out[1].startswith("1 of 3 examples repeat another one")
    assert "a random copy" in found.left_out[1]
    assert without_repeats(found) is found


def test_a_limit_draws_by_what_a_file_holds_and_not_by_its_order():
    """The first of two sorted files of unequal length would differ in kind."""
    texts = [f"{i:04}" for i in range(400)]
    drawn = {texts[i] for i in drawn_places(texts, 100)}
    turned = texts[::-1]
    assert {turned[i] for i in drawn_places(turned, 100)} == drawn
    assert drawn_places(texts, None) == list(range(400))
    # Of copies some are drawn, as of anything else.
    copies = drawn_places(["x"] * 200 + texts[:200], 200)
    assert abs(sum(i < 200 for i in copies) - 100) < 3.3 * np.sqrt(200 * 0.25)
    # As many of the first half as chance gives, 3.3 standard errors.
    first = sum(text < "0200" for text in drawn)
    assert abs(first - 50) < 3.3 * np.sqrt(400 * 0.25 * 0.25)


def test_a_limit_of_membership_and_inflation_draws(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"text {'very ' * i}long\n" for i in range(40)))
    run = read_texts(
        MembershipDesign(members=str(path), nonmembers=str(path), sample=10)
    )
    longest = max(map(len, run.texts))
    assert len(run.texts) == 20 and longest > len(f"text {'very ' * 20}long")
    files = []
    for name in ("q", "r"):
        files.append(tmp_path / f"{name}.jsonl")
        lines = (
            json.dumps({"id": str(i), "question": f"{name}{i}?", "answer": "x"})
            for i in range(40)
        )
        files[-1].write_text("\n".join(lines))
    sides = read_sides(*files, InflationDesign(sample=10))
    items = [[one.item for one in side] for side in (sides.published, sides.other)]
    assert items[0] == items[1] and len(items[0]) == 10
    assert max(map(int, items[0])) >= 20
