"""No clean model is accused: small files of many kinds through `audit`, `membership`.

Copies, near-copies, ties, blank and look-alike rows, groups, passages, published in a
drawn order; sides of unequal size or ease; models that are functions of texts and never
saw a file. Where a file satisfies the null hypothesis and the test says that it is
exact, p-values are counted at 0.05, 0.01 and 0.001; everywhere the word that accuses
is, at its own level. A count fails where so many have an exact binomial probability
below 0.01 divided by the number of counts.
"""

from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from scipy.stats import binom, binomtest

from tests.support import clean_orders, clean_sides
from tests.support.clean_orders import Rows
from tests.support.clean_readers import KERNELS, Cell, Finding, Reader

LEVELS = {f"p<={x}": x for x in (0.05, 0.01, 0.001)}
ACCUSING = {"audit": "contaminated", "membership": "members rank higher"}
# Less of what costs more, such as the baselines of `membership`.
COMMANDS = {
    "released": (clean_orders.released, 1.0),
    "shuffled": (clean_orders.shuffled, 1.0),
    "labelled": (clean_sides.labelled, 0.15),
    "asked": (clean_sides.asked, 0.2),
    "reference": (clean_sides.beside_reference, 0.06),
}


class Held(NamedTuple):
    """A count against its level, and the chance of so many or more."""

    cell: Cell
    what: str
    level: float
    count: int
    n: int
    chance: float


def held(findings):
    """Every count of every cell, and of sums over readers, kinds and both."""
    cells = {}
    for one in findings:
        cell = one.cell
        for kind, reader in {
            (k, r) for k in (cell.kind, "") for r in (cell.reader, "")
        }:
            tally = cells.setdefault(cell._replace(kind=kind, reader=reader), Counter())
            tally["n"] += 1
            tally["tested"] += one.p is not None
            if one.p is not None:
                # A ratio of whole numbers may be a rounding above its level.
                tally.update(w for w, x in LEVELS.items() if one.p <= x * (1 + 1e-12))
            tally[one.verdict] += 1
    for cell, tally in cells.items():
        word = ACCUSING[cell.command.split()[0]]
        for what, level in ((LEVELS if cell.holds else {}) | {word: 0.001}).items():
            # A file that was refused was not accused either.
            n = tally["tested" if what in LEVELS else "n"]
            chance = float(binom.sf(tally[what] - 1, n, level))
            yield Held(cell, what, level, tally[what], n, chance)


def failures(findings):
    """Counts above their level."""
    counts = [*held(findings)]
    return [one for one in counts if one.chance < 0.01 / len(counts)]


@pytest.mark.parametrize("n_files", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_clean_model_is_accused(name, n_files, tmp_path):
    ask, share = COMMANDS[name]
    numbers = range(max(1, round(share * n_files)))
    found = [one for i in numbers for one in ask(i, Path(tmp_path))]
    assert not failures(found)
    # Few files cannot tell one accusation in a thousand from more.
    words = {one.verdict for one in found} if n_files < 100 else set()
    assert words.isdisjoint(ACCUSING.values())


def findings(p_values, *, verdict=None):
    cell = Cell(command="audit --order FILE", test="adjacency", kind="a", reader="b")
    return [Finding(cell=cell, p=p, verdict=verdict) for p in p_values]


def test_counts_fail_beyond_the_bound_over_all_of_them():
    rng = Random(0)
    uniform = [rng.random() for _ in range(2_000)]
    counts = [*held(findings(uniform))]
    # A cell and its three sums; three levels and a word each.
    assert len(counts) == 16 and not failures(findings(uniform))
    for one in counts[:4]:
        expected = binomtest(one.count, one.n, one.level, alternative="greater")
        assert one.chance == pytest.approx(expected.pvalue)
    halved = failures(findings([p / 2 for p in uniform]))
    assert {one.what for one in halved} >= {"p<=0.05", "p<=0.01"}
    # 12 of 2,000 words of a level of one in a thousand.
    accused = findings([0.5] * 12, verdict="contaminated") + findings([0.5] * 1_988)
    assert {one.what for one in failures(accused)} == {"contaminated"}
    # A file that is refused is counted and not tested.
    counted = {one.what: (one.count, one.n) for one in held(findings([None, 0.01]))}
    assert counted["p<=0.05"] == counted["p<=0.01"] == (1, 1)
    assert counted["contaminated"] == (0, 2)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_reader_scores_a_text_by_its_lines_alone(kernel):
    reader = Reader(kernel, 3)
    lines = ["boat sail", "anchor boat rope", "", "oven"]
    parts = [reader.of_text(a, b) for a, b in zip(["", *lines], lines, strict=False)]
    whole = reader.of_text("", "".join(f"{line}\n" for line in lines))
    assert whole == pytest.approx(sum(parts))
    after = [("boat sail\n", "oven\n"), ("oven\nboat sail\n", "oven")]
    first, again = Reader(kernel, 3)(after)
    assert first == again <= 0


def test_groups_keep_their_places_and_blocks_stay_whole():
    rows = Rows(lines=tuple("abcdef"), groups=(1, 2, 1, 2, 2, 3))
    orders = {tuple(rows.drawn(Random(seed))) for seed in range(200)}
    assert len(orders) == 12  # 2! 3! 1!
    assert {tuple(rows.groups[i] for i in order) for order in orders} == {rows.groups}
    blocks = Rows(lines=rows.lines, groups=(1, 1, 2, 2, 2, 3), flags={"block_field": 0})
    orders = {tuple(blocks.drawn(Random(seed))) for seed in range(200)}
    assert len(orders) == 6 and (2, 3, 4, 5, 0, 1) in orders
