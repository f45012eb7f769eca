"""What the canary study makes of a report, without any model."""

import numpy as np
import pytest

from eval.canaries.runs import CANARIES, copies_of, run_of
from eval.canaries.tables import grids_of


def made_row(name, copies, method, p, **changes):
    fields = {
        "benchmark": name,
        "copies": copies,
        "method": method,
        "p_value": p,
        "log10_p": float(np.log10(p)),
        "validity": "exact",
        "p_floor": 1e-40,
        "verdict": "contaminated" if p < 1e-3 else "inconclusive",
        "effect": 1.5,
        "effect_se": 0.25,
        "n_orders": 9,
        "primary": method == "direction",
    }
    return fields | changes


def found(rows, seen=()):
    return run_of(
        {
            "model": {"name": "a-model", "n_parameters": 1_000},
            "results": rows,
            "study": {"n_tokens": 100, "canary_share": 0.25, "seen": dict(seen)},
        }
    )


def plan_rows(plan, method="adjacency", p=1e-9, **changes):
    return [
        row
        for name, copies in copies_of(plan).items()
        for row in (
            made_row(name, copies, method, p, **changes),
            made_row(f"{name}-held", 0, method, 0.5, **changes),
        )
    ]


def grid(run, title):
    (one,) = (one for one in grids_of(run) if title in one.title)
    return one


def column(one, word):
    (number,) = (i for i, name in enumerate(one.header) if word in name)
    return {row[0]: row[number] for row in one.rows}


def test_papers_figures_stand_only_beside_the_papers_copies():
    first, second = found(plan_rows("published")), found(plan_rows("lower"))
    assert (first.label, second.label) == ("published", "lower")
    quoted = column(grid(first, "published: 1,000 parameters"), "paper")
    assert quoted == {name: one.sharded_p or "" for name, one in CANARIES.items()}
    assert "paper" not in " ".join(grid(second, "lower: 1,000 parameters").header)


def test_the_test_that_decides_stands_first_with_its_verdict():
    decided = plan_rows("lower", "direction", 1e-5, verdict="suspected")
    run = found([*plan_rows("lower", "adjacency"), *decided])
    assert run.methods == ["direction", "adjacency"]
    orders = grid(run, "p-values of the planted sets")
    assert "Verdict: direction" in orders.title
    assert set(column(orders, "verdict").values()) == {"suspected"}
    controls = grid(run, "later lines of the same files, which were not planted")
    assert column(controls, "verdict")["piqa-held"] == "suspected"
    assert controls.header[-2:] == ("direction", "adjacency")


def test_shares_count_sets_and_name_no_level_below_the_floor():
    rows = plan_rows("published", "permutation", 0.05, p_floor=0.05, n_orders=19)
    (cells,) = grid(found(rows), "95 % Wilson").rows
    assert cells == (
        "permutation",
        # Wilson's interval of 10 of 10 and of 0 of 10.
        "10 of 10 (0.72 to 1.00)",
        "-",
        "0 of 10 (0.00 to 0.28)",
        "-",
    )


@pytest.mark.parametrize(("n_seen", "n_controls"), [(10, 10), (11, 9)])
def test_controls_of_which_much_was_read_are_in_no_count(n_seen, n_controls):
    """At most 5 % of 200 lines is 10."""
    run = found(plan_rows("published"), {"mnli-held": (n_seen, 200)})
    controls = grid(run, "later lines of the same files, which were not planted")
    assert column(controls, "seen")["mnli-held"] == f"{n_seen} of 200"
    counted = grid(run, "95 % Wilson interval over sets")
    (cells,) = counted.rows
    assert cells[1].startswith("10 of 10") and cells[3].startswith(f"0 of {n_controls}")
    assert ("mnli-held" in counted.title) == (n_controls < 10)
