"""Texts with labels: formats by their fields, labels, clusters, splits of the hub."""

import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.data import hub_splits
from jaxcontam.data.hub_splits import files_of_split, parse_hub_split
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import load_labelled, parse_label
from jaxcontam.models.hub import download_model
from tests.support.labelled_rows import write_lines

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


def write_parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize(
    ("write", "suffix"), [(write_lines, "jsonl"), (write_parquet, "parquet")]
)
def test_wikimia_is_known_by_its_fields(tmp_path, write, suffix):
    path = write(tmp_path / f"WikiMIA_length32.{suffix}", WIKIMIA)
    texts = load_labelled(path)
    assert texts.name == "WikiMIA_length32"
    assert texts.texts == tuple(row["input"] for row in WIKIMIA)
    assert texts.labels == (True, False, True)
    assert texts.clusters is None
    assert len(texts) == len(texts.rows) == 3


def test_snippets_of_one_book_are_a_cluster(tmp_path):
    texts = load_labelled(write_lines(tmp_path / "BookMIA.jsonl", BOOKMIA))
    assert texts.texts == ("It was", "a night", "of rain")
    assert texts.labels == (True, True, False)
    assert texts.clusters == ("7", "7", "8")


def test_flags_name_other_fields(tmp_path):
    rows = [
        {"q": "a b", "seen": "non-member", "doc": "x"},
        {"q": "c", "seen": "Member"},
    ]
    path = write_lines(tmp_path / "t.jsonl", [r | {"doc": "x"} for r in rows])
    texts = load_labelled(path, text_field="q", label_field="seen", cluster_field="doc")
    assert (texts.texts, texts.labels) == (("a b", "c"), (False, True))
    assert texts.clusters == ("x", "x")


def test_plain_lines_have_no_labels(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("one\ntwo\n")
    texts = load_labelled(path)
    assert (texts.texts, texts.labels) == (("one", "two"), None)


def test_records_of_no_known_format_are_never_texts_as_a_whole(tmp_path):
    lines = ['{"question": "why?", "answer": 3}', '{"question": "so",  "answer": 4}']
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(
        InputError, match=r"text\? \(it has: question, answer"
    ) as caught:
        load_labelled(path)
    assert caught.value.hint == "name it with --text-field"
    template = load_labelled(path, template="{question} {answer}")
    assert template.texts == ("why? 3", "so 4")
    plain = path.with_suffix(".txt")
    plain.write_text("\n".join(lines))
    assert load_labelled(plain).texts == tuple(lines)


@pytest.mark.parametrize("field", ["input", "snippet", "text"])
@pytest.mark.parametrize("other", [{"txt": "b"}, {"label": 1}, "b"])
def test_one_row_without_the_text_field_is_named(tmp_path, field, other):
    rows = [{field: "a", "label": 1}, other, {field: "c", "label": 0}]
    with pytest.raises(InputError, match=rf"t: row 2: no field '{field}'") as caught:
        load_labelled(write_lines(tmp_path / "t.jsonl", rows))
    assert "--text-field" in caught.value.hint


def test_a_template_changes_neither_labels_nor_documents(tmp_path):
    path = write_lines(tmp_path / "BookMIA.jsonl", BOOKMIA)
    plain, filled = (
        load_labelled(path),
        load_labelled(path, template="{book}: {snippet}"),
    )
    assert filled.texts[0] == "B: It was"
    assert filled.labels == plain.labels == (True, True, False)
    assert filled.clusters == plain.clusters is not None


def test_a_row_without_the_book_is_named(tmp_path):
    rows = [*BOOKMIA, {"snippet": "alone", "label": 0}]
    with pytest.raises(InputError, match="t: row 4: no field 'book_id'") as caught:
        load_labelled(write_lines(tmp_path / "t.jsonl", rows))
    assert "--document-field" in caught.value.hint


def test_a_row_without_a_label_is_unknown_and_hides_no_other(tmp_path):
    rows = [*WIKIMIA, {"input": "new"}]
    path = write_lines(tmp_path / "t.jsonl", rows)
    for flags in ({}, {"label_field": "label"}):
        assert load_labelled(path, **flags).labels == (True, False, True, None)


def test_a_class_label_beside_a_text_is_no_membership(tmp_path):
    rows = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    path = write_lines(tmp_path / "t.jsonl", rows)
    assert load_labelled(path).labels is None
    assert load_labelled(path, label_field="label").labels == (True, False)


def test_labels_are_left_alone_where_the_file_says_who_is_a_member(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", [{"text": "a", "label": 3}])
    assert load_labelled(path, with_labels=False).labels is None


@pytest.mark.parametrize(
    ("value", "label"),
    [
        *[(value, True) for value in (1, 1.0, True, "1", "true", "Member", "seen")],
        *[(value, False) for value in (0, 0.0, False, "0", "False", "unseen")],
        *[(value, False) for value in ("nonmember", "non-member", "non_member")],
        *[(value, None) for value in (None, "", float("nan"))],
    ],
)
def test_a_label_is_read_in_every_common_spelling(value, label):
    assert parse_label(value, "here") is label


@pytest.mark.parametrize("value", [2, -1, 0.5, "maybe", [1], {"a": 1}])
def test_any_other_label_names_its_row(tmp_path, value):
    rows = [{"input": "a", "label": 1}, {"input": "b", "label": value}]
    with pytest.raises(InputError, match=r"t: row 2: label .* is neither") as caught:
        load_labelled(write_lines(tmp_path / "t.jsonl", rows))
    assert "--label-field" in caught.value.hint


@pytest.mark.parametrize(
    ("rows", "flags", "message"),
    [
        ([{"a": "x", "label": 1}], {}, r"which field is the text\? \(it has: a, label"),
        ([{"text": "x"}], {"label_field": "y"}, r"t: row 1: no field 'y' \(it has: te"),
        ([{"text": "x"}], {"cluster_field": "y"}, r"t: row 1: no field 'y'"),
        ([{"text": None}], {}, r"no texts \(1 record whose 'text' is null left out"),
        (
            [{"text": "x", "d": 1}, {"text": "y", "d": None}],
            {"cluster_field": "d"},
            "t: row 2: field 'd' is null",
        ),
        (
            [{"text": "x"}, {"text": None}],
            {"template": "{text}"},
            "t: row 2: field 'text' is null",
        ),
        ([{"text": "x"}], {"length": 0}, "--length must be at least 1, got 0"),
        ([{"text": "x\ud800"}], {}, "t: row 1: unpaired surrogate"),
        (["x"], {"label_field": "y"}, r"t: row 1: no field 'y' \(plain text"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, rows, flags, message):
    with pytest.raises(InputError, match=message):
        load_labelled(write_lines(tmp_path / "t.jsonl", rows), **flags)


def test_a_row_without_its_text_is_left_out_and_counted(tmp_path):
    rows = [
        {"input": text, "label": label, "d": f"d{i}"}
        for i, (text, label) in enumerate(
            [("null", 1), (None, 1), ("b", None), (float("nan"), 0), ("c", 0)]
        )
    ]
    found = load_labelled(write_lines(tmp_path / "t.jsonl", rows), cluster_field="d")
    assert found.texts == ("null", "b", "c")
    assert found.labels == (True, None, False)
    assert found.clusters == ("d0", "d2", "d4")
    assert found.rows == (rows[0], rows[2], rows[4])
    assert found.left_out == ("2 records whose 'input' is null left out",)


def test_length_cuts_and_counts_short_texts(tmp_path):
    rows = [{"text": "a b c d"}, {"text": "a b"}, {"text": ""}, {"text": "a b c"}]
    texts = load_labelled(write_lines(tmp_path / "t.jsonl", rows), length=3)
    assert texts.texts == ("a b c", "a b", "", "a b c")
    assert texts.n_short == 2


class Hub:
    """A hub of one dataset: files at the main revision and in the hub's own copy."""

    def __init__(self, folder, files, converted=()):
        self.folder, self.files, self.converted = folder, files, converted
        self.downloaded = []

    def list_files(self, dataset, revision):
        if revision is not None and not self.converted:
            raise OSError("404: no such revision")
        return self.files if revision is None else self.converted

    def download(self, dataset, path, revision):
        self.downloaded.append((path, revision))
        kind = "jsonl" if path.endswith("jsonl") else "parquet"
        target = self.folder / f"{len(self.downloaded)}.{kind}"
        write = write_lines if kind == "jsonl" else write_parquet
        return str(write(target, WIKIMIA))

    def load(self, source, **flags):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hub_splits, "_list_files", self.list_files)
            patch.setattr(hub_splits, "_download", self.download)
            return load_labelled(source, **flags)


def test_a_split_of_the_hub_is_its_files_in_order(tmp_path):
    files = [
        "README.md",
        "data/WikiMIA_length64-00001-of-00002.parquet",
        "data/WikiMIA_length64-00000-of-00002.parquet",
        "data/WikiMIA_length64_paraphrased-00000-of-00001.parquet",
        "data/WikiMIA_length32-00000-of-00001.parquet",
    ]
    hub = Hub(tmp_path, files)
    texts = hub.load("hf:swj0419/WikiMIA:WikiMIA_length64")
    assert hub.downloaded == [(files[2], None), (files[1], None)]
    assert texts.name == "WikiMIA-WikiMIA_length64"
    assert texts.labels == (True, False, True) * 2


def test_a_dataset_without_split_names_is_train(tmp_path):
    hub = Hub(tmp_path, [".gitattributes", "README.md", "book_data.jsonl"])
    assert len(hub.load("hf:swj0419/BookMIA:train")) == 3
    with pytest.raises(InputError, match=r"no file of that split \(it has: book_data"):
        hub.load("hf:swj0419/BookMIA:test")


def test_the_hubs_own_copy_serves_where_no_file_names_the_split(tmp_path):
    hub = Hub(tmp_path, ["data.zip"], ["default/test/0000.parquet"])
    hub.load("hf:org/name:test")
    assert hub.downloaded == [("default/test/0000.parquet", "refs/convert/parquet")]


def test_a_revision_pins_a_dataset(tmp_path):
    class Pinned(Hub):
        def list_files(self, dataset, revision):
            assert (dataset, revision) == ("org/name", "v1")
            return self.files

    hub = Pinned(tmp_path, ["a/test.jsonl"], ["default/train/0000.parquet"])
    hub.load("hf:org/name@v1:a:test")
    assert hub.downloaded == [("a/test.jsonl", "v1")]
    # The hub's own copy is of another revision.
    with pytest.raises(InputError, match="hf:org/name@v1:train: no file of that split"):
        hub.load("hf:org/name@v1:train")
    with pytest.raises(InputError, match="not a split on the hub"):
        hub.load("hf:org/name@:train")


def test_a_config_chooses_among_files():
    paths = ["en/train.jsonl", "de/train.jsonl", "en/test.jsonl"]
    assert files_of_split(paths, parse_hub_split("hf:o/n:de:train")) == [paths[1]]


@pytest.mark.parametrize(
    ("paths", "source", "example"),
    [
        (
            ["a_b/test-00000-of-00001.parquet", "all/test-00000-of-00001.parquet"],
            "hf:o/n:test",
            "CONFIG = a_b",
        ),
        (
            [f"data/W_{n}-00000-of-00001-0ab.parquet" for n in (32, 64)],
            "hf:o/n:train",
            "CONFIG = W_32",
        ),
        (["W_32.csv", "W_64.csv"], "hf:o/n:train", "CONFIG = W_32"),
        (["train.csv", "train_small.csv"], "hf:o/n:train", "CONFIG = train_small"),
    ],
)
def test_subsets_are_not_joined_silently(paths, source, example):
    with pytest.raises(InputError, match="2 subsets have that split") as caught:
        files_of_split(paths, parse_hub_split(source))
    assert example in caught.value.hint
    config = example.split(" = ")[1]
    named = source.replace("o/n:", f"o/n:{config}:")
    assert len(files_of_split(paths, parse_hub_split(named))) == 1


@pytest.mark.parametrize(
    "paths",
    [
        [
            "data/train-00000-of-00002-1f.parquet",
            "data/train-00001-of-00002-9c.parquet",
        ],
        ["c4-train.00000-of-00002.json", "c4-train.00001-of-00002.json"],
        ["train/0000.parquet", "train/0001.parquet"],
        ["train/part-0.jsonl", "train/part-1.jsonl"],
        ["00000.jsonl", "00001.jsonl"],
    ],
)
def test_numbered_parts_are_one_table(paths):
    assert files_of_split(paths, parse_hub_split("hf:o/n:train")) == paths


def test_without_the_hub_one_line_says_what_to_do(monkeypatch):
    def offline(dataset, revision):
        raise ConnectionError("no route to host\nmore\nlines")

    monkeypatch.setattr(hub_splits, "_list_files", offline)
    with pytest.raises(InputError) as caught:
        load_labelled("hf:swj0419/WikiMIA:WikiMIA_length64")
    assert str(caught.value) == (
        "hf:swj0419/WikiMIA:WikiMIA_length64: not readable from the hub "
        "(no route to host)"
    )
    assert "by hand" in caught.value.hint


@pytest.mark.parametrize(
    "source", ["hf:", "hf:a/b", "hf:a/b:", "hf:a/b:c:d:e", "hf::x"]
)
def test_a_malformed_hub_name_is_refused(source):
    with pytest.raises(InputError, match="not a split on the hub"):
        load_labelled(source)


@pytest.mark.parametrize("revision", ["../..", "v1/../main", "/main"])
def test_a_revision_that_is_a_path_is_not_asked_of_the_hub(revision):
    for read, word in (
        (load_labelled, f"hf:org/name@{revision}:test"),
        (download_model, f"org/name@{revision}"),
    ):
        with pytest.raises(InputError, match=f"'{revision}' is no revision"):
            read(word)
