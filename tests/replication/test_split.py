"""Draws and cuts of instances: what they depend on, and what they keep."""

import itertools
import random

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.errors import InputError
from jaxcontam.replication.design import ReplicationDesign
from jaxcontam.replication.instances import (
    Fields,
    cut_text,
    draw_instances,
    find_fields,
    instances_fingerprint,
    sentence_starts,
    text_keys,
)

TEXT = Fields()


def find(benchmark, **flags):
    return find_fields(benchmark, ReplicationDesign(**flags))


def draw(benchmark, fields, *, elsewhere=(), **flags):
    design = ReplicationDesign(**flags)
    return draw_instances(benchmark, fields, design, elsewhere=elsewhere)


def plain(texts):
    return Benchmark("set", tuple(texts), (None,) * len(texts))


def records(rows):
    return Benchmark("set", tuple(str(row) for row in rows), tuple(rows))


def some_texts(n, n_sentences=6):
    return [
        " ".join(f"Row {i} has sentence {j} of some words." for j in range(n_sentences))
        for i in range(n)
    ]


def test_both_pieces_make_the_text_again():
    rng = np.random.default_rng(0)
    for text in (
        "One line.\nAnother one here.\n\nA third,\tafter a tab. And a fourth.",
        "  no sentence at all but\n\twords with  two spaces and line\nbreaks in it ",
        "two words",
        "{a} brace {b} text {label} of six",
    ):
        for seed in rng.integers(0, 1000, 40):
            first, second, _ = cut_text(text, seed=int(seed))
            assert first and second
            kept = text.strip()
            space = kept[len(first) : len(kept) - len(second)]
            assert kept == first + space + second
            assert space.isspace()


def test_cuts_at_a_sentence_when_there_are_several_and_inside_the_only_one():
    several = "Mr. Smith came in. He sat down there! Then he left us."
    for seed in range(20):
        first, second, cut = cut_text(several, seed=seed)
        assert cut == "sentence"
        assert (first.endswith("in."), second.startswith("Then")) in (
            (True, False),
            (False, True),
        )
    only = "a long line of news that holds no full stop before its end."
    assert {cut_text(only, seed=seed)[2] for seed in range(20)} == {"inside"}


def test_cuts_differ_between_rows():
    # The published code seeds anew for each row, so all are cut at 59 % of the words.
    drawn = draw(
        plain([" ".join(["w"] * 99 + [str(i)]) for i in range(60)]), TEXT, k=60, seed=0
    )
    shares = [len(one.first_piece.split()) / 100 for one in drawn.instances]
    assert len(set(shares)) > 15
    assert min(shares) >= 0.4
    assert max(shares) <= 0.7


def test_a_cut_depends_on_seed_and_text_alone():
    text = some_texts(1)[0]
    assert cut_text(text, seed=3) == cut_text(text, seed=3)
    assert len({cut_text(text, seed=seed)[0] for seed in range(30)}) > 1


def test_the_order_of_the_file_does_not_count():
    texts = some_texts(40)
    shuffled = texts.copy()
    random.Random(0).shuffle(shuffled)
    a = draw(plain(texts), TEXT, k=10, seed=1)
    b = draw(plain(shuffled), TEXT, k=10, seed=1)
    assert a.fingerprint == b.fingerprint
    assert [texts[one.index] for one in a.instances] == [
        shuffled[one.index] for one in b.instances
    ]


def test_ten_are_the_beginning_of_fifty():
    texts = plain(some_texts(80))
    fifty = draw(texts, TEXT, k=50, seed=0).instances
    assert draw(texts, TEXT, k=10, seed=0).instances == fifty[:10]


def test_every_row_is_drawn_equally_often():
    texts = plain(some_texts(8))
    counts = np.zeros(8)
    n = 2000
    for seed in range(n):
        drawn = draw(texts, TEXT, k=2, seed=seed)
        counts[[one.index for one in drawn.instances]] += 1
    # 5 standard errors of a share of 1/4 at n = 2000.
    assert np.abs(counts / n - 1 / 4).max() < 5 * np.sqrt(0.25 * 0.75 / n)


def test_texts_in_another_case_are_drawn_once_and_those_elsewhere_never():
    texts = ["two  words", "Two words", "three more words", "four more of them"]
    benchmark = plain(texts)
    elsewhere = text_keys(plain(["THREE more\nwords"]), TEXT)
    drawn = draw(benchmark, TEXT, k=5, seed=0, elsewhere=elsewhere)
    assert (drawn.n_duplicates, drawn.n_elsewhere) == (1, 1)
    assert sorted(one.index for one in drawn.instances) == [1, 3]
    with pytest.raises(InputError, match="all its instances stand more than once"):
        draw(benchmark, TEXT, k=1, seed=0, elsewhere=text_keys(benchmark, TEXT))


def test_instances_keep_the_source_that_the_file_names():
    benchmark = records([{"text": f"some words {i}", "book": i // 2} for i in range(4)])
    fields = find(benchmark, task="plain")
    drawn = draw(benchmark, fields, k=4, seed=0, group_field="book")
    assert {one.index: one.group for one in drawn.instances} == {
        0: "0",
        1: "0",
        2: "1",
        3: "1",
    }
    with pytest.raises(InputError, match="no field 'boook'") as fault:
        draw(benchmark, fields, k=4, seed=0, group_field="boook")
    assert "--group-field must name a field" in fault.value.hint


def test_texts_of_one_word_and_repeated_ones_are_counted_not_drawn():
    texts = ["alone", "", "two words", "two words", "three short words"]
    drawn = draw(plain(texts), TEXT, k=5, seed=0)
    assert (drawn.n_rows, drawn.n_too_short, drawn.n_duplicates) == (5, 2, 1)
    assert sorted(one.index for one in drawn.instances) == [2, 4]
    assert drawn.warnings == ("only 2 of 5 instances could be drawn",)
    with pytest.raises(InputError, match="no text can be cut"):
        draw(plain(["one", "two"]), TEXT, k=1, seed=0)


def test_a_text_that_is_null_is_not_drawn():
    rows = [{"text": None, "question": "Which field is it?", "label": float("nan")}]
    rows += [{**rows[0], "text": text} for text in (*some_texts(2), float("nan"))]
    fields = find(records(rows), task="classification")
    drawn = draw(records(rows), fields, k=9, seed=0)
    assert (fields.texts, drawn.n_too_short, len(drawn.instances)) == (("text",), 2, 2)
    assert {one.label for one in drawn.instances} == {None}
    pairs = Fields(texts=("question", "text"))
    drawn = draw(records(rows), pairs, k=9, seed=0)
    assert (drawn.n_too_short, len(drawn.instances)) == (2, 2)


def test_pairs_keep_both_texts_whole():
    rows = [
        {"premise": f"P {i}. More of it.", "hypothesis": f"H {i}", "label": i % 2}
        for i in range(5)
    ]
    rows.append({"premise": "P", "hypothesis": " ", "label": -1})
    benchmark = records(rows)
    fields = find(benchmark, task="nli")
    assert fields.texts == ("premise", "hypothesis")
    drawn = draw(
        benchmark, fields, k=9, seed=0, label_names=("entailment", "not_entailment")
    )
    assert drawn.n_too_short == 1
    for one in drawn.instances:
        assert one.cut == "pair"
        assert one.first_piece == rows[one.index]["premise"]
        assert one.second_piece == rows[one.index]["hypothesis"]
        names = {0: "0 (entailment)", 1: "1 (not_entailment)"}
        assert one.label == names[rows[one.index]["label"]]


@pytest.mark.parametrize(
    ("label", "names", "expected"),
    [
        (1, (), "1"),
        ("spam", (), "spam"),
        ("ham", ("spam", "ham"), "1 (ham)"),
        ("0", ("spam", "ham"), "0 (spam)"),
        (-1, ("spam", "ham"), None),
        (None, (), None),
    ],
)
def test_labels_are_written_with_their_names(label, names, expected):
    benchmark = records([{"text": "some words here", "label": label}])
    fields = find(benchmark, task="classification")
    drawn = draw(benchmark, fields, k=1, seed=0, label_names=names)
    assert drawn.instances[0].label == expected
    assert any("no label" in words for words in drawn.warnings) == (expected is None)


def test_a_label_without_a_name_is_refused():
    benchmark = records([{"text": "some words here", "label": 7}])
    fields = find(benchmark, task="classification")
    with pytest.raises(InputError, match="label '7' has no name"):
        draw(benchmark, fields, k=1, seed=0, label_names=("a", "b"))


@pytest.mark.parametrize(
    ("row", "flags", "message"),
    [
        ({"a": "x y"}, {}, "no field of a known name .it has: a"),
        ({"text": "x y"}, {"task": "nli"}, "no field of a known name"),
        (
            {"a": "x", "b": "y"},
            {"first_field": "a", "second_field": "b", "text_field": "a"},
            "excludes --text-field",
        ),
        ({"text": "x"}, {"task": "nli", "text_field": "text"}, "takes pairs"),
        ({"text": "x y"}, {"label_field": "gold"}, "example 1: no field 'gold'"),
        ({"a": "x"}, {"first_field": "a", "second_field": "c"}, "no field 'c'"),
    ],
)
def test_fields_that_do_not_exist_are_named(row, flags, message):
    benchmark = records([row])
    with pytest.raises(InputError, match=message):
        fields = find(benchmark, **{"task": "classification", **flags})
        draw(benchmark, fields, k=1, seed=0)


def test_summaries_are_read_from_their_own_field():
    row = {"text": "The article.", "summary": "Its point in words.", "id": 1}
    fields = find(records([row]), task="summary")
    assert fields.texts == ("summary",)
    assert find(records([row]), task="classification").texts == ("text",)


def test_the_fingerprint_sees_pieces_and_not_places():
    texts = some_texts(3)
    one = draw(plain(texts), TEXT, k=3, seed=0)
    other = draw(plain(["First of all", *texts]), TEXT, k=4, seed=0)
    kept = [i for i in other.instances if not i.first_piece.startswith("First")]
    assert instances_fingerprint(kept) == one.fingerprint
    assert draw(plain(texts), TEXT, k=3, seed=1).fingerprint != (one.fingerprint)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two. Three.", ["One.", "Two.", "Three."]),
        (
            "Dr. A. B. Smith of the U.S. Army ran.",
            ["Dr. A. B. Smith of the U.S. Army ran."],
        ),
        ('He said "Go!" Then he went.', ['He said "Go!"', "Then he went."]),
        (
            "It cost 3.50 dollars. Was it much? no",
            ["It cost 3.50 dollars.", "Was it much? no"],
        ),
        ("A title\n\nthe text", ["A title", "the text"]),
        ("wait... what", ["wait... what"]),
        ("Oh ... Then he ?? Yes ! No", ["Oh ...", "Then he ??", "Yes ! No"]),
        ("So did I. Then we left.", ["So did I.", "Then we left."]),
        ("Ende. Über alles.", ["Ende.", "Über alles."]),
        ("no end", ["no end"]),
        ("", []),
    ],
)
def test_sentences_of_hand_cases(text, sentences):
    starts = [0, *sentence_starts(text), len(text)]
    found = [text[a:b].strip() for a, b in itertools.pairwise(starts)]
    assert [one for one in found if one] == sentences


def test_long_runs_of_marks_cost_no_more_than_their_length():
    # Each start of a run tried anew would take minutes here.
    assert sentence_starts("." * 200_000 + "x") == []
    assert sentence_starts("Oh" + "!" * 200_000 + " Yes") == [200_003]
