"""Exact repeats: the first of equal examples stays."""

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.repeats import first_of_equals, without_repeats


def test_first_of_equal_texts_stays_in_its_place():
    texts = ["b", "a", "b", "c", "a", "b", "B"]
    assert first_of_equals(texts).tolist() == [0, 1, 3, 6]
    assert first_of_equals([(1, 2), (1,), (1, 2)]).tolist() == [0, 1]


def test_distinct_texts_all_stay():
    assert first_of_equals(["a", "b"]).tolist() == [0, 1]
    assert first_of_equals([]).tolist() == []


def test_what_is_left_out_is_told():
    file = Benchmark("b", ("x", "y", "x"), (None,) * 3, left_out=("1 blank line",))
    found = without_repeats(file)
    assert found.texts == ("x", "y") and found.left_out[0] == "1 blank line"
    assert found.left_out[1].startswith("1 of 3 examples repeat an earlier one")
    assert without_repeats(found) is found
