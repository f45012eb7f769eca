"""`eval.books`: rates of books by how often a model read them."""

import pytest

from eval.books import BooksStudy, rates_by_copies

pytestmark = pytest.mark.unoptimised


def row(title, rate, **changes):
    return {"title": title, "rate": rate, "role": "text", "primary": True} | changes


def test_rates_are_grouped_by_the_copies_in_the_title():
    rows = [
        row("copies_0-00", 0.1),
        row("copies_0-01", 0.3),
        row("copies_8-00", 1.0),
        row("copies_8-01", None),
        row("copies_8-00", 0.0, primary=False),
        row("known_seen-00", 0.5, role="member"),
    ]
    assert rates_by_copies({"books": rows}) == [
        {"copies": 0, "n_books": 2, "mean": 0.2, "least": 0.1, "largest": 0.3},
        {"copies": 8, "n_books": 1, "mean": 1.0, "least": 1.0, "largest": 1.0},
    ]


@pytest.mark.slow
def test_books_that_were_read_often_have_higher_rates(tmp_path):
    document = BooksStudy(out=tmp_path, tiny=True).run()
    found = {one["copies"]: one["mean"] for one in rates_by_copies(document)}
    assert list(found) == [0, 1, 2, 4, 8]
    assert found[8] > found[0]
