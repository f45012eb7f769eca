"""`analyses.inflation_judging`: what scores of items say, without a model."""

import pytest

from jaxcontam.analyses.inflation_judging import Comparison, judged_inflation
from jaxcontam.errors import InputError

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
    found = judged_inflation(rows, ["m"], Comparison())
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
        judged_inflation(again, ["m"], Comparison())
    with pytest.raises(InputError, match="too few items to compare: 0 and 0"):
        judged_inflation([rows[0], rows[6]], ["m"], Comparison())


@pytest.mark.parametrize(("n", "said"), [(9, "cannot tell"), (10, "inflated")])
@pytest.mark.parametrize("paired", [True, False])
def test_a_verdict_needs_ten_items_of_a_side(n, said, paired):
    """A model that is right on all published items and on no other."""
    rows = [
        {"side": side, "item": str(i), "text": "", "scores": {"m": score}}
        for side, score, size in (("published", 1.0, 30), ("other", 0.0, n))
        for i in range(size)
    ]
    asked = Comparison(paired=paired, equally_hard=True)
    found = judged_inflation(rows, ["m"], asked)
    assert found.decides.low > 0
    assert (found.verdict, found.reason) == (said, "items" if n < 10 else "")
