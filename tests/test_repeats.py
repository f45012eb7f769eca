"""Exact repeats: the first of equal examples stays."""

from jaxcontam.data.repeats import first_of_equals


def test_first_of_equal_texts_stays_in_its_place():
    texts = ["b", "a", "b", "c", "a", "b", "B"]
    assert first_of_equals(texts).tolist() == [0, 1, 3, 6]
    assert first_of_equals([(1, 2), (1,), (1, 2)]).tolist() == [0, 1]


def test_distinct_texts_all_stay():
    assert first_of_equals(["a", "b"]).tolist() == [0, 1]
    assert first_of_equals([]).tolist() == []
