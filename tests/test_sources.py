"""Corpora by name: every document in its order, and no record lost in silence."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from jaxcontam.errors import InputError
from train.readers import array_records
from train.sources import open_corpus, read_documents

TEXTS = ["one", "two\nlines", "", "naïve 漢字 🐈", "x" * 200_000, " spaced "]


def write_jsonl(path, texts, field="text"):
    rows = "".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts)
    path.write_text(rows, encoding="utf-8")


def write_parquet(path, texts, kind=None, **options):
    columns = {"id": range(len(texts)), "text": pa.array(texts, kind or pa.string())}
    pq.write_table(pa.table(columns), path, **options)


def write_array_record(path, records):
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()


def write_any(path, texts):
    """One file of texts, by its suffix."""
    name = path.name.removesuffix(".gz")
    plain = path.with_name(name)
    if name.endswith(".parquet"):
        write_parquet(plain, texts, row_group_size=2)
    elif name.endswith(".array_record"):
        write_array_record(plain, [json.dumps({"text": t}).encode() for t in texts])
    elif name.endswith(".json"):
        plain.write_text(json.dumps([{"text": text} for text in texts]))
    elif name.endswith((".csv", ".tsv")):
        sign = "," if name.endswith(".csv") else "\t"
        rows = "".join(f'{i}{sign}"{text}"\n' for i, text in enumerate(texts))
        plain.write_text(f"id{sign}text\n{rows}", encoding="utf-8")
    else:
        write_jsonl(plain, texts)
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()


@pytest.mark.parametrize(
    "name",
    [
        "a.jsonl",
        "a.jsonl.gz",
        "a.json",
        "a.json.gz",
        "a.csv",
        "a.csv.gz",
        "a.tsv",
        "a.parquet",
        "a.array_record",
    ],
)
def test_every_kind_of_file_gives_its_texts_in_their_order(tmp_path, name):
    write_any(tmp_path / name, TEXTS)
    assert read_documents([tmp_path / name]) == TEXTS


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_txt_is_one_document_however_long(tmp_path, name):
    text = "".join(f"line {i} of a book\n" for i in range(150_000))
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name[-1] == "z" else data)
    assert read_documents([tmp_path / name]) == [text]


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_txt_of_nothing_but_space_has_no_document(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert read_documents([tmp_path / "a.txt"]) == []


@pytest.mark.parametrize(
    ("name", "where"),
    [("a.txt", "a.txt"), ("a.jsonl", "a.jsonl:2"), ("a.parquet", "a.parquet:2")],
)
def test_a_document_that_would_fill_the_memory_is_refused(
    tmp_path, name, where, monkeypatch
):
    monkeypatch.setattr("train.readers.MAX_DOCUMENT", 1 << 20)
    fits, is_too_long = "x" * (1 << 20), "é" * ((1 << 19) + 1)
    if name == "a.txt":
        (tmp_path / name).write_text(is_too_long, encoding="utf-8")
    else:
        write_any(tmp_path / name, [fits, is_too_long])
    with pytest.raises(InputError) as caught:
        read_documents([tmp_path / name])
    assert f"{where}: one document of over 1 MiB" in str(caught.value)


def test_records_of_plain_text_are_texts(tmp_path):
    write_array_record(tmp_path / "a.array_record", [t.encode() for t in TEXTS])
    assert read_documents([tmp_path / "a.array_record"]) == TEXTS


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_columns_of_other_string_types_are_texts(tmp_path, kind):
    write_parquet(tmp_path / "a.parquet", TEXTS, kind)
    assert read_documents([tmp_path / "a.parquet"]) == TEXTS


def test_a_folder_is_searched_in_the_order_of_names(tmp_path):
    (tmp_path / "deep").mkdir()
    write_jsonl(tmp_path / "b.jsonl", ["b"])
    write_parquet(tmp_path / "a.parquet", ["a"])
    write_jsonl(tmp_path / "deep" / "c.jsonl", ["c"])
    (tmp_path / "README.md").write_text("not read")
    (tmp_path / "d.parquet.gz").write_bytes(b"not read")
    (tmp_path / ".hidden.jsonl").write_text("not read")
    corpus = open_corpus([tmp_path])
    assert list(corpus) == ["a", "b", "c"]
    assert corpus.passed_over == (
        str(tmp_path / "README.md"),
        str(tmp_path / "d.parquet.gz"),
    )


def test_a_runs_own_output_is_left_out(tmp_path):
    (tmp_path / "run").mkdir()
    write_jsonl(tmp_path / "a.jsonl", ["a"])
    write_jsonl(tmp_path / "run" / "set.jsonl", ["a planted set"])
    assert list(open_corpus([tmp_path], leave_out=tmp_path / "run")) == ["a"]
    assert list(open_corpus([tmp_path])) == ["a", "a planted set"]


def test_names_are_read_in_the_order_given_and_none_twice(tmp_path):
    for name in "ab":
        write_jsonl(tmp_path / f"{name}.jsonl", [name])
    assert read_documents([tmp_path / "b.jsonl", tmp_path / "a.jsonl"]) == ["b", "a"]
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match=r"link\.jsonl: twice in the corpus"):
        open_corpus([tmp_path / "a.jsonl", str(tmp_path / "link.jsonl")])


def test_a_parts_identity_changes_with_its_text_and_its_field(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, ["one"])
    corpus = open_corpus([path])
    assert open_corpus([path]).identity == corpus.identity
    others = {open_corpus([path], text_field="id").identity}
    # The same size and the same time of modification.
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    write_jsonl(path, ["two"])
    os.utime(path, ns=times)
    others.add(open_corpus([path]).identity)
    assert len(others - {corpus.identity}) == 2


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    write_jsonl(path, ["one", "two"])
    corpus = open_corpus([path])
    write_jsonl(path, ["one", "two", "three"])
    with pytest.raises(InputError, match=r"a\.jsonl: changed while it was read"):
        list(corpus)


def test_another_field_holds_the_text(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["one"], field="body")
    assert read_documents([tmp_path / "a.jsonl"], text_field="body") == ["one"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"txt": 1}\n', "a.jsonl:2: no field 'text'"),
        ("a.jsonl", b'{"text": "x"}\n\n{"text": 1}\n', "a.jsonl:3: field 'text' is no"),
        ("a.jsonl", b'{"text": "x"}\n{"te', "a.jsonl:2: not JSON"),
        ("a.jsonl", b'{"text": "\\ud83d"}\n', "a.jsonl:1: no Unicode text"),
        ("a.jsonl", b'{"text": "\xff"}\n', "a.jsonl:1: not UTF-8"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"text": "x"}\n' * 9, mtime=0)[:-9],
            "nothing from here",
        ),
        ("a.json", b'[{"text": "x"}, 5]', "a.json:2: neither an object nor"),
        ("a.csv", b"id,text\n1,x\n2\n", "a.csv:3: 1 columns"),
        ("a.txt", b"good\n\xff\n", "a.txt:2: not UTF-8"),
        ("a.parquet", b"no parquet", "a.parquet:1: not readable from here on"),
        ("a.array_record", b"no records", "a.array_record: no records, or no whole"),
        ("a.md", b"# Title", "a.md: unknown suffix '.md'"),
        ("a.parquet.gz", b"", "unknown suffix"),
    ],
)
def test_what_cannot_be_read_stops_by_name_and_line(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_documents([tmp_path / name])
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        (["a", None], pa.string(), "a.parquet:2: no text (NoneType)"),
        ([1, 2], pa.int64(), "a.parquet: field 'text' is no text (int64)"),
    ],
)
def test_a_column_without_texts_is_named(tmp_path, texts, kind, message):
    write_parquet(tmp_path / "a.parquet", texts, kind)
    with pytest.raises(InputError) as caught:
        read_documents([tmp_path / "a.parquet"])
    assert message in str(caught.value)


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a"])
    with pytest.raises(
        InputError, match=r"no field 'body' \(it has: id, text\)"
    ) as caught:
        read_documents([tmp_path / "a.parquet"], text_field="body")
    assert caught.value.hint == "name the field with --text-field"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b'{"txt": "x"}', ":2: no field 'text' (it has: txt)"),
        (b"plain text", ":2: no JSON object, as the records before it are"),
        (b'{"text": null}', ":2: no text (NoneType)"),
    ],
)
def test_records_that_differ_from_the_first_are_named(tmp_path, second, message):
    write_array_record(tmp_path / "a.array_record", [b'{"text": "x"}', second])
    with pytest.raises(InputError) as caught:
        read_documents([tmp_path / "a.array_record"])
    assert message in str(caught.value)


def test_a_record_that_is_no_utf8_is_named(tmp_path):
    write_array_record(tmp_path / "a.array_record", [b"good", b"\xff"])
    with pytest.raises(InputError, match=r"a\.array_record:2: not UTF-8"):
        read_documents([tmp_path / "a.array_record"])


def test_a_flipped_bit_of_an_array_record_is_noticed(tmp_path):
    path = tmp_path / "a.array_record"
    write_array_record(path, [b"text of record %d" % i for i in range(9)])
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="not readable from here on"):
        list(array_records(path))


def test_a_name_that_leads_nowhere_says_what_a_corpus_is(tmp_path):
    with pytest.raises(InputError, match="no such file or folder") as caught:
        open_corpus([tmp_path / "gone"])
    assert ".array_record" in caught.value.hint and "tfds:" in caught.value.hint
    with pytest.raises(InputError, match="no file of the kinds"):
        open_corpus([tmp_path])
    with pytest.raises(InputError, match="no corpus is given"):
        open_corpus([])
