"""What is stated beside what the evidence gives: `differences` names each value."""

import pytest

from jaxcontam.reports.recompute import differences
from jaxcontam.reports.report_files import result_row
from tests.support.report_documents import order_result


def test_differences_are_those_beyond_rounding():
    made = order_result()
    row = result_row(made)
    assert differences("row", row | {"p_value": 1e-6 * (1 + 1e-9)}, made) == []
    stated = row | {"symmetry": 3.0, "verdict": "suspected"}
    assert differences("row", stated, made) == [
        "row.verdict is 'suspected', recomputed 'contaminated'",
        "row.symmetry is 3.0, recomputed None",
    ]
    # A difference near 0 may be rounding, a p-value near 0 is none.
    near = row | {"effect": 0.1 + 0.2 + 1e-5, "p_value": 1.1e-6}
    (fault,) = differences("row", near, made, noise=1e-4, noisy=("effect",))
    assert fault == "row.p_value is 1.1e-06, recomputed 1e-06"
    assert differences("row", near, made, noise=1e-4) == []
    assert differences("rows", [{}], [made]) == ["rows[0]: no benchmark"]


@pytest.mark.parametrize(
    ("stated", "again", "fault"),
    [
        ([1, 2], [1], "x: 2 of them, recomputed 1"),
        ({"a": [1, 2.5]}, {"a": [1, 2.0]}, "x.a[1] is 2.5, recomputed 2.0"),
        ({"a": 1}, {}, "x.a is 1, recomputed None"),
        ({}, {"a": 1}, "x.a is None, recomputed 1"),
        (True, 1, "x is True, recomputed 1"),
        ({"a": 1}, [1], "x is {'a': 1}, recomputed [1]"),
    ],
)
def test_difference_names_its_place(stated, again, fault):
    assert differences("x", stated, again) == [fault]
    assert differences("x", again, again) == []
