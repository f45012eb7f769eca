"""Every study by its command line: it ends well, goes on, and tells what pages need."""

import pytest

from tests.support.studies import COSTS, STUDIES, commands

pytestmark = pytest.mark.unoptimised


def numbers(document, measured):
    """Without what a run costs, and without speeds."""
    if isinstance(document, list):
        return [numbers(one, measured) for one in document]
    if not isinstance(document, dict):
        return document
    left_out = {*COSTS, *measured}
    kept = (item for item in document.items() if item[0] not in left_out)
    return {name: numbers(one, measured) for name, one in kept}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * one.slow)
        for name, one in STUDIES.items()
    ],
)
def test_a_study_ends_well_and_a_second_run_makes_nothing_again(name, study):
    one, told = STUDIES[name], study(name)
    assert set(told.codes) == {0}
    first, *again = (numbers(found, one.measured) for found in told.documents)
    for found in again:
        assert found == first
    assert one.measured or told.remade == []
    for field, columns in one.holds.items():
        rows = told.document[field]
        assert rows, field
        for row in rows if columns else ():
            assert set(columns.split()) <= row.keys(), field


def test_every_study_stands_in_the_table():
    assert sorted(STUDIES) == sorted(commands())
