"""`score_gap.judging`: what scores of items say, without a model."""

import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.score_gap.flags import InflationDesign
from jaxcontam.score_gap.items import seen_groups
from jaxcontam.score_gap.judging import judged_inflation

pytestmark = pytest.mark.unoptimised

SIDES = ("published", "other")


def scored(side, item, score, text="", **fields):
    scores = score if isinstance(score, dict) else {"m": score}
    return {"side": side, "item": item, "text": text, "scores": scores, **fields}


def counting(side, n, score, start=0):
    """Items of different words, of which none repeats another."""
    asked = {"group": None, "choices": ["a", "b"], "answers": ["a"]}
    return [
        scored(side, str(i), score, f"{side} word{i} number{i}?", **asked)
        for i in range(start, start + n)
    ]


def judged(rows, *models, **design):
    return judged_inflation(rows, models or ("m",), InflationDesign(**design))


def test_items_are_paired_by_name_and_rewrites_averaged():
    published, other = {"a": 1, "b": 1, "c": 0, "d": None}, {"b": 0, "a": 0, "z": 1}
    rows = [scored("published", *one) for one in published.items()]
    rows += [scored("other", *one) for one in (*other.items(), ("b", 1))]
    found = judged(rows)
    assert (found.n_published, found.n_other) == (2, 2)
    assert found.accuracies[0].other == 0.25
    assert found.decides.points == 75
    assert found.warnings == (
        "items without a score of each model, left out: 1",
        "items without a partner, left out: 2",
        "items with several rewrites, whose mean is used: 1",
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([scored("published", "a", 1)] * 2, "item 'a' is published twice"),
        ([scored(side, "a", 1) for side in SIDES], "few items to compare: 1 and 1"),
        (
            [row | {"group": 1} for side in SIDES for row in counting(side, 20, 1)],
            "too few items to compare: 20 and 20 in one",
        ),
    ],
)
def test_items_that_are_too_few_or_stand_twice_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        judged(rows)


@pytest.mark.parametrize(("n", "said"), [(9, "cannot tell"), (10, "inflated")])
@pytest.mark.parametrize("unpaired", [True, False])
def test_a_verdict_needs_ten_items_of_a_side_and_ten_groups(n, said, unpaired):
    """A model that is right on all published items and on no other."""
    rows = [scored("published", str(i), 1) for i in range(30)]
    rows += [scored("other", str(i), 0) for i in range(n)]
    found = judged(rows, unpaired=unpaired, equally_hard=True)
    assert found.decides.low > 0
    assert (found.verdict, found.reason) == (said, "items" if n < 10 else "")
    rows = [
        row | {"group": f"passage {int(row['item']) % n}"}
        for side, score in zip(SIDES, (1, 0), strict=True)
        for row in counting(side, 40, score)
    ]
    asked = InflationDesign(equally_hard=True, fields=("document=passage",))
    found = judged_inflation(rows, ["m"], asked)
    assert (found.verdict, found.n_groups) == (said, n)
    assert InflationDesign.said(asked.words).fields == asked.fields
    # As an earlier version wrote it.
    old = InflationDesign.said(("inflation", "m", "--group-field", "passage"))
    assert old.fields == asked.fields


def test_a_rewrite_that_is_a_published_item_shows_nothing():
    """Five of each kind: only another answer makes the same words another item."""
    rows = [*counting("published", 30, 1.0), *counting("other", 15, 0.0)]
    same = [row | {"side": "other"} for row in rows[15:30]]
    rows += same[:5]
    rows += [row | {"item": str(int(row["item"]) - 1)} for row in same[5:10]]
    rows += [row | {"answers": ["b"]} for row in same[10:]]
    found = judged(rows, equally_hard=True)
    assert (found.n_published, found.decides.points) == (20, 75)
    assert found.warnings == (
        "rewrites that equal a published item, left out: 10",
        "items without a partner, left out: 10",
    )


def test_an_item_on_both_sides_of_a_split_is_left_out_of_both():
    """Out of one alone, easy items that stand on both would look like inflation."""
    rows = [*counting("published", 30, 0.5), *counting("other", 30, 0.5, start=40)]
    easy = counting("published", 6, 1.0, start=90)
    rows += [row | {"side": side} for side in SIDES for row in easy]
    found = judged(rows, unpaired=True, equally_hard=True)
    assert (found.n_published, found.n_other, found.decides.points) == (30, 30, 0)
    assert found.warnings == ("items on both sides, left out: 12",)


@pytest.mark.parametrize("unpaired", [True, False])
def test_items_that_nearly_repeat_another_are_one_draw(unpaired):
    """Twelve items that stand five times each are no sixty."""
    rng = np.random.default_rng(0)
    rows = [
        row | {"item": f"{row['item']}-{j}", "text": f"{words}{'!' * j}"}
        for side in SIDES
        for row in counting(side, 12, 0.0)
        for score in [float(rng.integers(2))]
        for words in [" ".join(f"{side}{row['item']}{a}" for a in "abcdefghij")]
        for row in [row | {"scores": {"m": score}}]
        for j in range(5)
    ]
    flags = {"unpaired": unpaired, "equally_hard": True}
    found = judged(rows, **flags)
    alone = judged([row for row in rows if row["item"].endswith("-0")], **flags)
    assert (found.n_published, found.n_groups, alone.n_groups) == (60, 12, None)
    assert found.decides.low == pytest.approx(alone.decides.low)
    n = 96 if unpaired else 48
    warning = f"items that nearly repeat another one, grouped with it: {n}"
    assert found.warnings == (warning,)


def test_a_rewrite_that_stands_twice_counts_once():
    rows = [*counting("published", 10, 1.0), *counting("other", 10, 0.0)]
    rows += [rows[-1], rows[-1] | {"text": "anything else", "scores": {"m": 1.0}}]
    found = judged(rows, equally_hard=True)
    assert found.accuracies[0].other == pytest.approx(0.05)


def test_a_model_stronger_than_all_references_is_not_judged_by_them():
    rng = np.random.default_rng(0)
    shares = {"m": 0.9, "a": 0.5, "b": 0.6}
    rows = [
        scored(
            side, str(i), {m: float(rng.random() < p + gain) for m, p in shares.items()}
        )
        for side, gain in (("published", 0.1), ("other", 0.0))
        for i in range(300)
    ]
    found = judged(rows, *shares)
    assert (found.verdict, found.reason) == ("cannot tell", "outside")
    assert judged(rows, *shares, equally_hard=True).verdict == "inflated"


def test_fields_whose_values_repeat_may_name_a_passage():
    rows = [
        {
            "id": i,
            "passage": f"p{i // 4}",
            "level": i % 3,
            "question": f"{i % 20}?",
            "score of another": f"{i % 12 / 12:.3f}",
        }
        for i in range(60)
    ]
    (note,) = seen_groups(rows, {"id", "question"})
    assert note.startswith("values of passage repeat (15 in 60): ")
    assert "--fields document=NAME" in note
    (note,) = seen_groups([], (), [f"{i // 4} {'x' * 64} {i}" for i in range(60)])
    assert note.startswith("45 items begin like another one: ")
    assert seen_groups(rows, {"id", "question", "passage"}) == []
