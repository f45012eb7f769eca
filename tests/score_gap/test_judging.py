"""`score_gap.judging`: what scores of items say, without a model."""

import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.score_gap.items import seen_groups
from jaxcontam.score_gap.judging import InflationDesign, judged_inflation

pytestmark = pytest.mark.unoptimised


def test_items_are_paired_by_name_and_rewrites_averaged():
    rows = [
        {"side": side, "item": item, "text": "", "scores": {"m": score}}
        for side, item, score in (
            *(
                ("published", "a", 1.0),
                ("published", "b", 1.0),
                ("published", "c", 0.0),
            ),
            *(("other", "b", 0.0), ("other", "b", 1.0), ("other", "a", 0.0)),
            *(("other", "z", 1.0), ("published", "d", None)),
        )
    ]
    found = judged_inflation(rows, ["m"], InflationDesign())
    assert (found.n_published, found.n_other) == (2, 2)
    assert found.accuracies[0].other == 0.25
    assert found.decides.points == 75
    assert found.warnings == (
        "items without a score of each model, left out: 1",
        "items without a partner, left out: 2",
        "items with several rewrites, taken by mean: 1",
    )
    again = [*rows, rows[0]]
    with pytest.raises(InputError, match="item 'a' is published twice"):
        judged_inflation(again, ["m"], InflationDesign())
    with pytest.raises(InputError, match="too few items to compare: 0 and 0"):
        judged_inflation([rows[0], rows[6]], ["m"], InflationDesign())


@pytest.mark.parametrize(("n", "said"), [(9, "cannot tell"), (10, "inflated")])
@pytest.mark.parametrize("paired", [True, False])
def test_a_verdict_needs_ten_items_of_a_side(n, said, paired):
    """A model that is right on all published items and on no other."""
    rows = [
        {"side": side, "item": str(i), "text": "", "scores": {"m": score}}
        for side, score, size in (("published", 1.0, 30), ("other", 0.0, n))
        for i in range(size)
    ]
    asked = InflationDesign(unpaired=not paired, equally_hard=True)
    found = judged_inflation(rows, ["m"], asked)
    assert found.decides.low > 0
    assert (found.verdict, found.reason) == (said, "items" if n < 10 else "")


def asked_item(side, item, text, score, *, group=None, answer="a"):
    return {
        "side": side,
        "item": item,
        "group": group,
        "text": text,
        "choices": ["a", "b"],
        "answers": [answer],
        "scores": {"m": score},
    }


def counting(side, n, score, start=0):
    """Items of different words, of which none repeats another."""
    return [
        asked_item(side, str(i), f"{side} word{i} number{i}?", score)
        for i in range(start, start + n)
    ]


def test_a_rewrite_that_is_a_published_item_shows_nothing():
    """Five of each kind: only another answer makes the same words another item."""
    rows = [*counting("published", 30, 1.0), *counting("other", 15, 0.0)]
    same = counting("published", 15, 1.0, start=15)
    for row in same[:5]:
        rows.append(row | {"side": "other"})
    for row, of in zip(same[5:10], same[4:9], strict=True):
        rows.append(row | {"side": "other", "item": of["item"]})
    for row in same[10:]:
        rows.append(row | {"side": "other", "answers": ["b"]})
    found = judged_inflation(rows, ["m"], InflationDesign(equally_hard=True))
    assert (found.n_published, found.decides.points) == (20, 75)
    assert found.warnings == (
        "rewrites that equal a published item, left out: 10",
        "items without a partner, left out: 10",
    )


def test_an_item_on_both_sides_of_a_split_is_left_out_of_both():
    """Out of one alone, easy items that stand on both would look like inflation."""
    rows = [*counting("published", 30, 0.5), *counting("other", 30, 0.5, start=40)]
    easy = counting("published", 6, 1.0, start=90)
    rows += [row | {"side": side} for side in ("published", "other") for row in easy]
    asked = InflationDesign(unpaired=True, equally_hard=True)
    found = judged_inflation(rows, ["m"], asked)
    assert (found.n_published, found.n_other, found.decides.points) == (30, 30, 0)
    assert found.warnings == ("items on both sides, left out: 12",)


@pytest.mark.parametrize("paired", [True, False])
def test_items_that_nearly_repeat_another_are_one_draw(paired):
    """Twelve items that stand five times each are no sixty."""
    rng = np.random.default_rng(0)
    rows = [
        asked_item(side, f"{i}-{j}", text + "!" * j, scores[i])
        for side in ("published", "other")
        for scores in [rng.integers(2, size=12).astype(float)]
        for i in range(12)
        for text in [" ".join(f"{side}{i}{word}" for word in "abcdefghij")]
        for j in range(5)
    ]
    asked = InflationDesign(unpaired=not paired, equally_hard=True)
    found = judged_inflation(rows, ["m"], asked)
    once = [row for row in rows if row["item"].endswith("-0")]
    alone = judged_inflation(once, ["m"], asked)
    assert (found.n_published, found.n_groups, alone.n_groups) == (60, 12, None)
    assert found.decides.low == pytest.approx(alone.decides.low)
    n = 48 if paired else 96
    assert found.warnings == (
        f"items that nearly repeat another one, drawn with it: {n}",
    )


def test_a_rewrite_that_stands_twice_counts_once():
    rows = [*counting("published", 10, 1.0), *counting("other", 10, 0.0)]
    rows += [rows[-1], asked_item("other", "9", "anything else", 1.0)]
    found = judged_inflation(rows, ["m"], InflationDesign(equally_hard=True))
    assert found.accuracies[0].other == pytest.approx(0.05)


@pytest.mark.parametrize(("n_groups", "said"), [(9, "cannot tell"), (10, "inflated")])
def test_a_verdict_needs_ten_groups(n_groups, said):
    rows = [
        row | {"group": f"passage {int(row['item']) % n_groups}"}
        for side, score in (("published", 1.0), ("other", 0.0))
        for row in counting(side, 40, score)
    ]
    asked = InflationDesign(equally_hard=True, group_field="passage")
    found = judged_inflation(rows, ["m"], asked)
    assert (found.verdict, found.n_groups) == (said, n_groups)
    assert InflationDesign.said(asked.words).group_field == "passage"


def test_all_items_in_one_group_are_refused():
    rows = [
        row | {"group": 1}
        for side in ("published", "other")
        for row in counting(side, 20, 1.0)
    ]
    with pytest.raises(InputError, match="too few items to compare: 20 and 20 in one"):
        judged_inflation(rows, ["m"], InflationDesign())


def test_a_model_stronger_than_all_references_is_not_judged_by_them():
    rng = np.random.default_rng(0)
    shares = {"m": 0.9, "a": 0.5, "b": 0.6}
    rows = [
        {"side": s, "item": str(i), "text": "", "scores": own}
        for s, gain in (("published", 0.1), ("other", 0.0))
        for i in range(300)
        for own in [{m: float(rng.random() < p + gain) for m, p in shares.items()}]
    ]
    found = judged_inflation(rows, ["m", "a", "b"], InflationDesign())
    assert (found.verdict, found.reason) == ("cannot tell", "outside")
    vouched = judged_inflation(
        rows, ["m", "a", "b"], InflationDesign(equally_hard=True)
    )
    assert vouched.verdict == "inflated"


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
    assert "--group-field" in note
    (note,) = seen_groups([], (), [f"{i // 4} {'x' * 64} {i}" for i in range(60)])
    assert note.startswith("45 items begin as another one does: ")
    assert seen_groups(rows, {"id", "question", "passage"}) == []
