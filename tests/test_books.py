"""`jaxcontam books`: snippets, thresholds from known books, rates with intervals."""

import numpy as np
import pytest

from jaxcontam.analyses.book_rates import Shelf, book_warnings, judge_books, shelve
from jaxcontam.data.book_files import (
    MEMBER,
    NONMEMBER,
    TESTED,
    Book,
    load_books,
    load_known,
    snippets_of,
)
from jaxcontam.errors import InputError
from jaxcontam.stats.proportions import wilson_interval
from tests.labelled_rows import write_lines

pytestmark = pytest.mark.unoptimised

LONG = " ".join(f"w{i}" for i in range(300))


def test_a_folder_is_its_text_files_in_sorted_order(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden.txt", "notes.md"):
        (tmp_path / name).write_text(f"\ufeffThe text of {name}.\nSecond line.")
    books = load_books([tmp_path], TESTED)
    assert [book.title for book in books] == ["a", "b", "c"]
    assert books[0].pieces == ("The text of a.txt.\nSecond line.",)


def test_a_table_has_one_book_a_title(tmp_path):
    rows = [
        {"title": "A", "text": "one two"},
        {"title": "B", "text": "three"},
        {"title": "A", "text": "four"},
    ]
    books = load_books([write_lines(tmp_path / "t.jsonl", rows)], MEMBER)
    assert [(book.title, book.pieces) for book in books] == [
        ("A", ("one two", "four")),
        ("B", ("three",)),
    ]
    assert {book.role for book in books} == {MEMBER}


BOOKMIA = [
    {"book_id": 1, "book": "Old", "snippet": f"old {i}", "label": 1} for i in range(3)
] + [{"book_id": 2, "book": "New", "snippet": "new", "label": 0}]


def test_known_books_come_from_labels(tmp_path):
    books = load_known(write_lines(tmp_path / "t.jsonl", BOOKMIA))
    assert [(book.title, book.role, len(book.pieces)) for book in books] == [
        ("Old", MEMBER, 3),
        ("New", NONMEMBER, 1),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*BOOKMIA, BOOKMIA[0] | {"label": 0}], "book 'Old' is a member and a non"),
        ([{"title": "A", "text": "x"}], "no field 'label'"),
        ([{"text": "x", "label": 1}], "row 1: no title"),
    ],
)
def test_known_books_without_a_side_are_refused(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        load_known(write_lines(tmp_path / "t.jsonl", rows))


def test_known_books_leave_out_rows_without_a_label(tmp_path):
    rows = [*BOOKMIA, {"book_id": 3, "book": "Unknown", "snippet": "what"}]
    books = load_known(write_lines(tmp_path / "t.jsonl", rows))
    assert [book.title for book in books] == ["Old", "New"]
    titled = [{"title": t, "text": "x", "label": n} for n, t in enumerate("ab")]
    books = load_known(write_lines(tmp_path / "u.jsonl", titled))
    assert [book.role for book in books] == [MEMBER, NONMEMBER]


def test_a_missing_title_field_is_named_by_its_own_flag(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", [{"text": "x"}])
    with pytest.raises(InputError, match="no field 'name'") as caught:
        load_books([path], TESTED, title_field="name")
    assert caught.value.hint.startswith("--title-field must name")


def test_text_files_are_known_in_capitals(tmp_path):
    (tmp_path / "A.TXT").write_text("one")
    assert [book.title for book in load_books([tmp_path], TESTED)] == ["A"]


def test_a_folder_without_books_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no \.txt file"):
        load_books([tmp_path], TESTED)
    with pytest.raises(InputError, match="no such file"):
        load_books([tmp_path / "missing.txt"], TESTED)


def test_snippets_depend_on_the_text_and_not_on_the_title():
    first, renamed = (
        snippets_of(Book(title=title, pieces=(LONG,)), n_snippets=4, n_words=20, seed=5)
        for title in ("A", "B")
    )
    assert first == renamed
    assert len(first) == 4


def test_pieces_are_the_snippets_of_a_book_in_pieces():
    book = Book(title="A", pieces=("a b c", " ", "d", "e f g h"))
    assert snippets_of(book, n_snippets=9, n_words=3, seed=0) == ("a b c", "d", "e f g")
    few = snippets_of(book, n_snippets=2, n_words=3, seed=0)
    assert len(few) == 2
    assert set(few) < {"a b c", "d", "e f g"}


@pytest.fixture
def shelf():
    """Two known books a side and one in question, two snippets each."""
    return Shelf(
        titles=("m1", "m2", "n1", "n2", "asked"),
        roles=(MEMBER, MEMBER, NONMEMBER, NONMEMBER, TESTED),
        book=np.repeat(np.arange(5), 2),
    )


SCORES = np.array([[5.0, 6, 7, 8, 1, 2, 3, 5.5, 9, np.nan]]).T


def test_rates_by_hand(shelf):
    """5.75 misses the 5 alone, and 4 takes in the 5.5 alone: the higher cut is kept."""
    (threshold,), rates = judge_books(shelf, ["s"], SCORES, primary="s")
    assert threshold.threshold == 5.75
    assert threshold.accuracy == (3 / 4 + 1) / 2
    assert (threshold.n_members, threshold.n_nonmembers) == (4, 4)
    # m1 is judged by 7, 8 against the others: 6.25. m2 by 5, 6: 4 takes in 5.5 and
    # finds both. n1 by 3, 5.5: 5.75, as with all. n2 by 1, 2: (2 + 5) / 2.
    assert threshold.tpr_held_out == 2 / 4
    assert threshold.fpr_held_out == 1 / 4
    assert threshold.accuracy_held_out == (2 / 4 + 3 / 4) / 2
    found = {rate.title: rate for rate in rates}
    assert [found[t].threshold for t in ("m1", "m2", "n1", "n2")] == [
        6.25,
        4.0,
        5.75,
        3.5,
    ]
    assert [found[t].rate for t in ("m1", "m2", "n1", "n2")] == [0.0, 1.0, 0.0, 0.5]
    asked = found["asked"]
    assert (asked.n_snippets, asked.n_scored, asked.n_above) == (2, 1, 1)
    assert (asked.rate_low, asked.rate_high) == wilson_interval(1, 1)


def test_a_single_known_book_on_a_side_has_no_held_out_accuracy():
    shelf = Shelf(
        titles=("m", "n", "x"),
        roles=(MEMBER, NONMEMBER, TESTED),
        book=np.array([0, 0, 1, 1, 2]),
    )
    values = np.array([[3.0, 4.0, 1.0, 2.0, 2.4]]).T
    (threshold,), rates = judge_books(shelf, ["s"], values, primary="s")
    assert threshold.accuracy == 1.0
    assert threshold.accuracy_held_out is None
    assert [rate.rate for rate in rates] == [None, None, 0.0]


def test_a_book_without_a_score_stays_in_the_table(shelf):
    values = SCORES.copy()
    values[8:] = np.nan
    _, rates = judge_books(shelf, ["s"], values, primary="s")
    assert len(rates) == 5
    assert rates[-1].title == "asked"
    assert (rates[-1].n_snippets, rates[-1].n_scored, rates[-1].rate) == (2, 0, None)


def test_each_score_has_its_own_threshold(shelf):
    values = np.concatenate([SCORES, -SCORES], axis=1)
    thresholds, rates = judge_books(shelf, ["s", "reversed"], values, primary="s")
    assert [t.primary for t in thresholds] == [True, False]
    # Turned round, the best cut is above all known snippets but those it finds unseen.
    assert thresholds[1].accuracy < thresholds[0].accuracy
    assert len(rates) == 10


def test_held_out_accuracy_of_noise_is_not_above_chance():
    """The cut's own accuracy is above 0.5 on pure noise; the held-out one is not."""
    own, held_out = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shelf = Shelf(
            titles=tuple("abcdefghijkl"),
            roles=(MEMBER,) * 6 + (NONMEMBER,) * 6,
            book=np.repeat(np.arange(12), 5),
        )
        # Snippets of a book resemble each other.
        values = np.repeat(rng.normal(size=12), 5) + rng.normal(size=60)
        (threshold,), _ = judge_books(shelf, ["s"], values[:, None], primary="s")
        own.append(threshold.accuracy)
        held_out.append(threshold.accuracy_held_out)
    # Four standard errors of the mean of 40 runs.
    assert np.mean(own) - 4 * np.std(own) / 40**0.5 > 0.5
    assert np.mean(held_out) < 0.5 + 4 * np.std(held_out) / 40**0.5


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([("m", MEMBER), ("n", NONMEMBER), ("o", NONMEMBER)], "1 known members with"),
        ([("m", MEMBER), ("m", NONMEMBER)], "the same text is known as a member"),
    ],
)
def test_too_few_known_books_are_refused(known, message):
    books = [
        Book(title=name, pieces=(f"{name} {LONG}",), role=role) for name, role in known
    ]
    books.append(Book(title="asked", pieces=(LONG,)))
    with pytest.raises(InputError, match=message):
        shelve(books, n_snippets=10, n_words=9, seed=0)


def test_an_empty_book_is_counted_and_keeps_its_place():
    known = [
        Book(title=f"{role}{i}", pieces=(f"{role} {i} {LONG}",), role=role)
        for role in (MEMBER, NONMEMBER)
        for i in range(2)
    ]
    books = [
        Book(title="empty", pieces=(" \n",)),
        *known,
        Book(title="b", pieces=("x",)),
    ]
    shelf, texts = shelve(books, n_snippets=5, n_words=9, seed=0)
    assert shelf.titles[0] == "empty"
    assert len(texts) == 4 * 5 + 1
    assert 0 not in shelf.book
    assert book_warnings(books, shelf, 5) == [
        "books in question without words, and so no rate: 1",
        "books too short for 5 snippets, which have fewer: 1 of 6",
    ]
