"""Texts whose side is known: fields, labels, documents, snippets, shots, the hub."""

import itertools
import re
from collections import Counter

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.stats

from jaxcontam.data import hub_splits
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.hub_splits import files_of_split, parse_hub_split
from jaxcontam.errors import InputError
from jaxcontam.members.design import MembershipDesign
from jaxcontam.members.known_texts import (
    FEWEST,
    MEMBER,
    NONMEMBER,
    RunTexts,
    check_sides,
    count_words,
    cut_words,
    draw_company,
    draw_shots,
    left_out,
    load_labelled,
    load_snippets,
    parse_label,
    random_snippets,
    read_texts,
)
from jaxcontam.models.hub import download_model
from tests.support.labelled_rows import drawn, write_lines

WIKIMIA = [
    {"input": "The cup began.", "label": 1},
    {"input": "The race was held in spring.", "label": 0},
    {"input": "", "label": 1},
]
BOOKMIA = [
    {"book_id": 7, "book": "B", "snippet_id": 0, "snippet": "It was", "label": 1},
    {"book_id": 7, "book": "B", "snippet_id": 1, "snippet": "a night", "label": 1},
    {"book_id": 8, "book": "C", "snippet_id": 0, "snippet": "of rain", "label": 0},
]
TEXT = "  one two\n\nthree\tfour  five six seven "
NUMBERS = " ".join(map(str, range(1000)))


def write_parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize(
    ("write", "suffix"), [(write_lines, "jsonl"), (write_parquet, "parquet")]
)
def test_wikimia_is_known_by_its_fields(tmp_path, write, suffix):
    texts = load_labelled(write(tmp_path / f"WikiMIA_length32.{suffix}", WIKIMIA))
    assert texts.name == "WikiMIA_length32"
    assert texts.texts == tuple(row["input"] for row in WIKIMIA)
    assert (texts.labels, texts.clusters) == ((True, False, True), None)
    assert len(texts) == len(texts.rows) == 3


def test_a_column_of_paraphrases_has_the_labels_of_its_texts(tmp_path):
    rows = [{**row, "paraphrase": row["input"].upper()} for row in WIKIMIA]
    path = write_lines(tmp_path / "WikiMIA_length32.jsonl", rows)
    assert load_labelled(path).texts == tuple(row["input"] for row in WIKIMIA)
    other = load_labelled(path, text_field="paraphrase", length=2)
    assert other.texts == ("THE CUP", "THE RACE", "")
    assert other.labels == (True, False, True)
    # Any other field is one of which nothing is known.
    assert load_labelled(path, text_field="label").labels is None


def test_snippets_of_one_book_are_a_cluster_and_flags_name_other_fields(tmp_path):
    path = write_lines(tmp_path / "BookMIA.jsonl", BOOKMIA)
    plain, filled, other = (
        load_labelled(path, **flags)
        for flags in (
            {},
            {"template": "{book}: {snippet}"},
            {"text_field": "book", "label_field": "label", "cluster_field": "label"},
        )
    )
    assert plain.texts == ("It was", "a night", "of rain")
    assert filled.texts[0] == "B: It was"
    assert filled.labels == plain.labels == other.labels == (True, True, False)
    assert filled.clusters == plain.clusters == ("7", "7", "8")
    assert (other.texts, other.clusters) == (("B", "B", "C"), ("1", "1", "0"))


def test_records_are_texts_as_a_whole_only_in_plain_files(tmp_path):
    lines = ['{"question": "why?", "answer": 3}', '{"question": "so",  "answer": 4}']
    path = tmp_path / "t.txt"
    path.write_text("\n".join(lines))
    found = load_labelled(path)
    assert (found.texts, found.labels) == (tuple(lines), None)
    filled = load_labelled(
        path.rename(path.with_suffix(".jsonl")), template="{question} {answer}"
    )
    assert filled.texts == ("why? 3", "so 4")


def test_a_row_without_a_label_is_unknown_and_hides_no_other(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", [*WIKIMIA, {"input": "new"}])
    for flags in ({}, {"label_field": "label"}):
        assert load_labelled(path, **flags).labels == (True, False, True, None)
    run = read_texts(MembershipDesign(texts=path))
    assert run.warnings[0].startswith("t: 1 of 4 texts have no label")
    assert run.roles == (MEMBER, NONMEMBER, MEMBER, "text")


def test_a_class_label_beside_a_text_is_no_membership(tmp_path):
    rows = [{"text": "good old times", "label": 1}, {"text": "bad", "label": 0}]
    path = write_lines(tmp_path / "t.jsonl", rows)
    assert load_labelled(path).labels is None
    assert load_labelled(path, label_field="label").labels == (True, False)
    design = MembershipDesign(texts=path, text="text", length=2)
    run = read_texts(design)
    assert run.texts == ("good old", "bad")
    short, label = run.warnings
    assert short.startswith("t: 1 of 2 texts have fewer than 2 words")
    assert "'label' of t is not read: --fields member=label" in label
    # The file says who is a member.
    path = write_lines(tmp_path / "t.jsonl", [{"text": "a", "label": 3}])
    assert load_labelled(path, with_labels=False).labels is None


def test_a_label_is_read_in_every_common_spelling():
    no = (0, 0.0, False, "0", "False", "unseen", "nonmember", "non-member")
    for values, label in (
        ((1, 1.0, True, "1", "true", "Member", "seen"), True),
        ((*no, "non_member"), False),
        ((None, "", float("nan")), None),
    ):
        assert all(parse_label(value, "here") is label for value in values)


X = [{"text": "x"}]
NULL = [{"text": "x", "d": 1}, {"text": "y", "d": None}]


@pytest.mark.parametrize(
    ("message", "rows", "flags"),
    [
        (r"text\? \(it has: a, label.*name it with --te", [{"a": 1, "label": 1}], {}),
        (
            "row 4: no field 'book_id'.*--fields document",
            [*BOOKMIA, {"snippet": 1}],
            {},
        ),
        (r"row 1: no field 'y' \(it has: te", X, {"label_field": "y"}),
        (r"row 1: no field 'y' \(plain text", ["x"], {"label_field": "y"}),
        ("row 1: no field 'y'", X, {"cluster_field": "y"}),
        ("row 2: field 'd' is null", NULL, {"cluster_field": "d"}),
        ("row 2: field 'd' is null", NULL, {"template": "{d}"}),
        (r"no texts \(1 record whose 'text' is null left out", [{"text": None}], {}),
        ("row 1: unpaired surrogate", [{"text": "x\ud800"}], {}),
        ("--length must be at least 1, got 0", X, {"length": 0}),
        *[
            (
                "row 2: label .* is neither.*--fields member",
                [WIKIMIA[0], {"input": "", **row}],
                {},
            )
            for row in ({"label": v} for v in (2, -1, 0.5, "x", [1], {"a": 1}))
        ],
        *[
            (f"row 2: no field '{name}'.*--text", [{name: "a"}, row, X[0]], {})
            for name in ("input", "snippet", "text")
            for row in ({"txt": "b"}, {"label": 1}, "b")
        ],
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, message, rows, flags):
    with pytest.raises(InputError) as caught:
        load_labelled(write_lines(tmp_path / "t.jsonl", rows), **flags)
    assert re.search(message, f"{caught.value}; {caught.value.hint}")


def test_a_row_without_its_text_is_left_out_and_counted(tmp_path):
    cells = ("null", 1), (None, 1), ("b", None), (float("nan"), 0), ("c", 0)
    rows = [{"input": t, "label": x, "d": f"d{i}"} for i, (t, x) in enumerate(cells)]
    found = load_labelled(write_lines(tmp_path / "t.jsonl", rows), cluster_field="d")
    assert found.texts == ("null", "b", "c")
    assert found.labels == (True, None, False)
    assert found.clusters == ("d0", "d2", "d4")
    assert found.rows == (rows[0], rows[2], rows[4])
    assert found.left_out == ("2 records whose 'input' is null left out",)


@pytest.mark.parametrize("name", ["set.jsonl", "set.csv", "set.parquet"])
def test_rows_of_no_known_format_are_read_as_an_audit_reads_them(name, tmp_path):
    rows = [{"text": f"{i} + 1?", "answer": str(i + 1)} for i in range(12)]
    path = tmp_path / name
    if path.suffix == ".csv":
        lines = [f"{row['text']},{row['answer']}\n" for row in rows]
        path.write_text("text,answer\n\n" + "".join(lines))
    else:
        (write_parquet if path.suffix == ".parquet" else write_lines)(path, rows)
    run = read_texts(MembershipDesign(texts=path))
    assert run.texts == load_benchmark(path).texts
    blank, *_ = run.warnings
    assert (blank == "set: 1 blank line left out") == (path.suffix == ".csv")
    told = "each whole row is a text (it has: text, answer)"
    assert told in run.warnings[-1]
    # Beside rows of other fields, they would tell the sides apart.
    other = write_lines(tmp_path / "other.jsonl", [{"text": "a"}, {"text": "b"}])
    both = r"the whole row \(text, answer\) in set and the whole row \(text\) in other"
    with pytest.raises(InputError, match=both):
        read_texts(MembershipDesign(texts=path, nonmembers=other))


def test_no_label_stands_in_its_own_text(tmp_path):
    rows = [{"text": t, "seen": i % 2} for i, t in enumerate("abcd")]
    path = write_lines(tmp_path / "set.jsonl", rows)
    run = read_texts(MembershipDesign(texts=path, fields=("member=seen",)))
    assert run.texts == tuple("abcd")
    write_lines(path, [{"q": "a", "seen": 1}])
    with pytest.raises(InputError, match=r"which field is the text\?"):
        read_texts(MembershipDesign(texts=path, fields=("member=seen",)))


def test_a_template_makes_the_text_of_records_on_every_side(tmp_path):
    rows = [{"q": f"a{i}", "a": ".", "known": i % 2} for i in range(4)]
    path = write_lines(tmp_path / "parts.jsonl", rows)
    one = read_texts(
        MembershipDesign(texts=path, text="{q}{a}", fields=("member=known",))
    )
    assert one.texts == ("a0.", "a1.", "a2.", "a3.")
    assert one.roles == (NONMEMBER, MEMBER) * 2
    both = {"members": path, "nonmembers": path, "text": "{q}{a}"}
    assert read_texts(MembershipDesign(**both)).texts == one.texts * 2


def test_documents_of_three_files_keep_their_names_unless_they_share_one(tmp_path):
    texts, members, nonmembers = (
        write_lines(
            tmp_path / f"{name}.jsonl",
            [{"text": f"{name} {i}", "title": f"{name}{i // 2}"} for i in range(4)],
        )
        for name in ("asked", "seen", "new")
    )
    flags = {"text": "text", "fields": ("document=title",)}
    known = {"members": members, "nonmembers": nonmembers, **flags}
    run = read_texts(MembershipDesign(texts=texts, **known))
    assert run.roles == ("text",) * 4 + (MEMBER,) * 4 + (NONMEMBER,) * 4
    assert run.clusters[::4] == ("asked0", "seen0", "new0")
    again = read_texts(MembershipDesign(texts=members, **known))
    assert again.clusters[::4] == ("0/seen0", "1/seen0", "2/new0")
    assert "2 names of documents occur in more than one file" in again.warnings[0]


@pytest.mark.parametrize(
    ("n_words", "cut"),
    [(1, "  one"), (3, "  one two\n\nthree"), (7, TEXT.rstrip(" ")), (8, TEXT)],
)
def test_a_cut_keeps_the_white_space_inside(n_words, cut):
    assert cut_words(TEXT, n_words) == cut
    assert count_words(cut) == min(7, n_words)


def test_snippets_are_slices_that_share_no_word_and_depend_on_the_seed():
    first, again, other = (
        random_snippets(NUMBERS, n_snippets=30, n_words=20, seed=i) for i in (1, 1, 2)
    )
    assert first == again != other
    numbers = [[int(word) for word in snippet.split()] for snippet in first]
    assert len(first) == 30
    for words in numbers:
        assert words == list(range(words[0], words[0] + 20))
    assert all(a[-1] < b[0] for a, b in itertools.pairwise(numbers))


def test_every_set_of_places_is_equally_likely():
    """2 snippets of 2 words fit into 6 words in C(4, 2) = 6 ways."""
    counts = Counter(
        random_snippets("a b c d e f", n_snippets=2, n_words=2, seed=seed)
        for seed in range(1200)
    )
    assert len(counts) == 6
    # 1,200 seeds: a right law fails one time in 1,000.
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001
    # A short book gives what fits side by side.
    for text, n in ((" ".join("abcde" * 5), 2), (" 1 2 ", 1), ("", 0), (" \n", 0)):
        found = random_snippets(text, n_snippets=9, n_words=10, seed=0)
        assert len(found) == n and found[:1] != (" 1 2 ",)


def test_a_folder_is_snippets_of_its_text_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden.txt").write_text(NUMBERS)
    (tmp_path / "notes.md").write_text(NUMBERS)
    with pytest.raises(InputError, match=r"no \.txt file with words"):
        load_snippets(tmp_path)
    for name in ("b.TXT", "sub/a.txt"):
        (tmp_path / name).write_text(f"\ufeff{name} {NUMBERS}")
    (tmp_path / "short.txt").write_text("x y")
    (tmp_path / "empty.txt").write_text(" \n")
    asked = {"n_snippets": 4, "n_words": 20, "seed": 5}
    found = load_snippets(tmp_path, **asked)
    assert found.clusters == ("b",) * 4 + ("short",) + ("sub/a",) * 4
    assert found.texts[:4] == random_snippets(f"b.TXT {NUMBERS}", **asked)
    assert found.left_out == (
        "1 of 4 files without words",
        "1 of 4 files too short for 4 snippets",
    )
    assert (found.texts[4], found.n_short) == ("x y", 1)


def run_of(texts, roles, clusters=None):
    sources = ("run",) * len(texts)
    given = {"texts": tuple(texts), "roles": tuple(roles), "sources": sources}
    return RunTexts(name="run", clusters=clusters, **given)


def test_shots_do_not_depend_on_the_order_of_the_file():
    def shots(texts, seed):
        run = run_of(texts, [MEMBER] * len(texts))
        return [texts[i] for i in draw_shots(run, MEMBER, 4, seed=seed)]

    texts = drawn(30, 6)
    assert shots(texts, 1) == shots(texts[::-1], 1) != shots(texts, 2)
    assert len(set(shots(texts, 1))) == 4


def test_copies_and_documents_of_a_shot_are_left_out():
    run = run_of("abac", [MEMBER, MEMBER, NONMEMBER, MEMBER])
    assert left_out(run, [0]).tolist() == [True, False, True, False]
    documents = run_of("abc", [MEMBER] * 3, clusters=("x", "x", "y"))
    assert left_out(documents, [0]).tolist() == [True, True, False]


def test_too_few_texts_for_a_prefix_are_refused():
    run = run_of(drawn(FEWEST + 2, 7), [MEMBER] * (FEWEST + 2))
    with pytest.raises(InputError, match="too few to use 3"):
        draw_shots(run, MEMBER, 3, seed=0)
    assert len(draw_shots(run, MEMBER, 2, seed=0)) == 2
    run = run_of(drawn(30, 8), [MEMBER, NONMEMBER] * 15, clusters=("d", "e") * 15)
    refusal = "0 documents of members in addition to those of a pre"
    with pytest.raises(InputError, match=refusal):
        check_sides(run, left_out(run, [0]))


def test_company_is_a_ring_of_the_distinct_texts_of_a_side():
    run = run_of("abcaxy ", (MEMBER,) * 4 + (NONMEMBER,) * 3)
    found = draw_company(run, np.arange(7) == 2, seed=0)
    assert found == ("b", "a", "b", "y", "x", found[5]) and found[5] in "xy"
    for seed in range(5):
        company = draw_company(run, np.zeros(7, bool), seed=seed)
        after = dict[str, str](zip(run.texts, company, strict=True))
        assert {after[t] for t in "abc"} == {*"abc"}
        assert all(after[t] != t for t in run.texts)
    assert draw_company(run, np.arange(7) < 3, seed=0) == ()


LENGTHS = [
    "README.md",
    "data/WikiMIA_length64-00001-of-00002.parquet",
    "data/WikiMIA_length64-00000-of-00002.parquet",
    "data/WikiMIA_length64_paraphrased-00000-of-00001.parquet",
    "data/WikiMIA_length32-00000-of-00001.parquet",
]
BOOKS = [".gitattributes", "README.md", "book_data.jsonl"]
OWN_COPY, COPIED = "refs/convert/parquet", "a/test/0.parquet"


@pytest.mark.parametrize(
    ("source", "files", "converted", "expected"),
    [
        ("hf:o/n:WikiMIA_length64", LENGTHS, [], [(LENGTHS[i], None) for i in (2, 1)]),
        # A dataset without split names is train.
        ("hf:o/n:train", BOOKS, [], [(BOOKS[2], None)]),
        ("hf:o/n:test", BOOKS, [], r"no file of that split \(it has: book_data"),
        # The hub's own copy serves where no file names the split.
        ("hf:o/n:test", ["a.zip"], [COPIED], [(COPIED, OWN_COPY)]),
        ("hf:o/n@v1:a:test", ["a/test.jsonl"], [], [("a/test.jsonl", "v1")]),
        # It is of another revision.
        ("hf:o/n@v1:train", ["a/test.jsonl"], ["a/train/0.parquet"], "v1:train: no f"),
    ],
)
def test_a_split_of_the_hub_is_its_files_in_order(
    source, files, converted, expected, tmp_path, monkeypatch
):
    downloaded = []

    def list_files(dataset, revision):
        if revision == OWN_COPY and not converted:
            raise OSError("404: no such revision")
        return converted if revision == OWN_COPY else files

    def download(dataset, path, revision):
        downloaded.append((path, revision))
        write = write_parquet if path.endswith("parquet") else write_lines
        target = tmp_path / f"{len(downloaded)}{path[path.rindex('.') :]}"
        return str(write(target, WIKIMIA))

    monkeypatch.setattr(hub_splits, "_list_files", list_files)
    monkeypatch.setattr(hub_splits, "_download", download)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            load_labelled(source)
    else:
        found = load_labelled(source)
        assert found.labels == (True, False, True) * len(expected)
        assert found.name == "-".join(["n", *source.split(":")[2:]])
        assert downloaded == expected


@pytest.mark.parametrize(
    ("paths", "split", "config"),
    [
        (
            "a_b/test-00000-of-00001.parquet all/test-00000-of-00001.parquet",
            "test",
            "a_b",
        ),
        ("data/W_32-0-of-1-0ab.parquet data/W_64-0-of-1-0ab.parquet", "train", "W_32"),
        ("W_32.csv W_64.csv", "train", "W_32"),
        ("train.csv train_small.csv", "train", "train_small"),
        ("de/train.jsonl en/train.jsonl", "train", "de"),
        # Numbered parts are one table.
        ("data/train-0-of-2-1f.parquet data/train-1-of-2-9.parquet", "train", None),
        ("c4-train.00000-of-00002.json c4-train.00001-of-00002.json", "train", None),
        ("train/0000.parquet train/0001.parquet", "train", None),
        ("train/part-0.jsonl train/part-1.jsonl", "train", None),
        ("00000.jsonl 00001.jsonl", "train", None),
    ],
)
def test_parts_are_joined_and_subsets_not_silently(paths, split, config):
    paths, asked = paths.split(), parse_hub_split(f"hf:o/n:{split}")
    if config is None:
        assert files_of_split(paths, asked) == paths
        return
    with pytest.raises(InputError, match="2 subsets have that split") as caught:
        files_of_split(paths, asked)
    assert f"CONFIG = {config}" in caught.value.hint
    named = parse_hub_split(f"hf:o/n:{config}:{split}")
    assert len(files_of_split(paths, named)) == 1


def test_without_the_hub_one_line_says_what_to_do(monkeypatch):
    def offline(dataset, revision):
        raise ConnectionError("no route to host\nmore\nlines")

    monkeypatch.setattr(hub_splits, "_list_files", offline)
    with pytest.raises(InputError) as caught:
        load_labelled("hf:o/n:train")
    said = "hf:o/n:train: not readable from the hub (no route to host)"
    assert str(caught.value) == said
    assert "by hand" in caught.value.hint


def test_a_malformed_name_is_not_asked_of_the_hub():
    for source in ("hf:", "hf:a/b", "hf:a/b:", "hf:a/b:c:d:e", "hf::x", "hf:a/b@:x"):
        with pytest.raises(InputError, match="not a split on the hub"):
            load_labelled(source)
    for revision in ("../..", "v1/../main", "/main"):
        message = f"'{revision}' is not a revision"
        with pytest.raises(InputError, match=message):
            load_labelled(f"hf:org/name@{revision}:test")
        with pytest.raises(InputError, match=message):
            download_model(f"org/name@{revision}")
