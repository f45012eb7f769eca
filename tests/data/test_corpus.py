"""Streams of documents: every kind of file, damage, going on, memory."""

import gzip
import itertools
import json
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.data import corpus, records
from jaxcontam.data.corpus import Document, Fault, list_corpus, read_documents
from jaxcontam.errors import InputError

TEXTS = ["One fish.", "Zwei\nFische, „drei“", "", 'quoted "x", y', "last \U0001f41f"]


def written(folder, suffix, texts=TEXTS):
    path = folder / f"docs{suffix}"
    kind = suffix.removesuffix(".gz").removesuffix(".zst")
    if kind == ".parquet":
        table = pyarrow.table({"n": range(len(texts)), "text": texts})
        pyarrow.parquet.write_table(table, path, row_group_size=2)
        return path
    if kind == ".jsonl":
        text = "".join(json.dumps({"n": 1, "text": t}) + "\n" for t in texts)
    elif kind == ".json":
        text = json.dumps([{"text": t} for t in texts], ensure_ascii=False, indent=1)
    elif kind in (".csv", ".tsv"):
        comma = "," if kind == ".csv" else "\t"
        quoted = ['"' + t.replace('"', '""') + '"' for t in texts]
        text = f"id{comma}text\n" + "".join(f"7{comma}{t}\n" for t in quoted)
    elif kind == ".wet":
        bodies = [text.encode() for text in texts]
        path.write_bytes(packed(suffix, [warc("conversion", body) for body in bodies]))
        return path
    else:
        text = "\n".join(texts)
    # As archives are written: in several parts, one after the other.
    data = text.encode()
    path.write_bytes(packed(suffix, [data[:9], data[9:]]))
    return path


def packed(suffix, parts):
    if suffix.endswith(".gz"):
        parts = map(gzip.compress, parts)
    if suffix.endswith(".zst"):
        zstd = pyarrow.Codec("zstd")
        parts = [zstd.compress(part, asbytes=True) for part in parts]
    return b"".join(parts)


def warc(kind, body, content_type="text/plain"):
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"


def read(path, field="text"):
    return list(read_documents(path, text_field=field))


def documents(items):
    return [item.text for item in items if isinstance(item, Document)]


KINDS = [
    *(s + gz for s in (".jsonl", ".json", ".csv", ".tsv") for gz in ("", ".gz")),
    *(".jsonl.zst", ".json.zst", ".csv.zst", ".wet", ".wet.gz", ".wet.zst", ".parquet"),
]


@pytest.mark.parametrize("suffix", KINDS)
def test_documents_are_those_that_were_written(tmp_path, suffix):
    items = read(written(tmp_path, suffix))
    assert documents(items) == TEXTS
    assert not [item for item in items if isinstance(item, Fault)]


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.zst"])
def test_text_file_is_one_document(tmp_path, suffix):
    items = read(written(tmp_path, suffix))
    assert documents(items) == ["\n".join(TEXTS)]
    assert [(item.line, item.has_lines) for item in items] == [(1, True)]


@pytest.mark.parametrize("suffix", [*KINDS[:8], ".txt", ".txt.gz", ".parquet"])
def test_small_blocks_change_nothing(tmp_path, suffix, monkeypatch):
    path = written(tmp_path, suffix)
    whole = [(item.text, item.line) for item in read(path)]
    monkeypatch.setattr(records, "BLOCK", 7)
    monkeypatch.setattr(corpus, "BLOCK", 7)
    assert [(item.text, item.line) for item in read(path)] == whole


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt"])
def test_byte_order_mark_is_no_text(tmp_path, suffix):
    path = written(tmp_path, suffix)
    plain = documents(read(path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert documents(read(path)) == plain


def test_json_file_of_lines_is_read_as_lines(tmp_path):
    path = tmp_path / "c4.json.gz"
    path.write_bytes(gzip.compress(b'{"text": "a b"}\n{"text": "c"}\n'))
    assert documents(read(path)) == ["a b", "c"]


def test_a_long_text_file_comes_in_documents_that_repeat_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 16)
    monkeypatch.setattr(corpus, "_TEXT", 400)
    monkeypatch.setattr(corpus, "_REPEATED", 50)
    path = tmp_path / "one.txt"
    lines = ["fünf Mäuse " * 3 + f"{i}\n" for i in range(40)]
    text = "".join(lines) + "".join(f"ü{i}" for i in range(300)) + "\nend"
    path.write_text(text, encoding="utf-8")
    items = read(path)
    assert len(items) > 5
    whole = items[0].text
    for before, item in itertools.pairwise(items):
        assert len(item.text) <= 400 + 16 and item.line >= before.line
        repeated = next(
            n for n in range(len(item.text), 0, -1) if whole.endswith(item.text[:n])
        )
        assert repeated >= 50
        assert item.line == text[: len(whole) - repeated].count("\n") + 1
        whole += item.text[repeated:]
    assert whole == text


DAMAGE = {
    "json": (b'{"text": "x"', "not JSON (Expecting ',' delimiter, column 13)"),
    "bytes": (b'{"text": "\xff"}', "not UTF-8 (byte 10: 0xff)"),
    "field": (b'{"body": "x"}', "no field 'text' (it has: body)"),
    "number": (b'{"text": 3}', "field 'text' is not a string (int)"),
    "list": (b"[1]", "neither an object nor a string (list)"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_line_is_named_and_the_rest_is_read(tmp_path, name):
    line, reason = DAMAGE[name]
    path = tmp_path / "docs.jsonl"
    path.write_bytes(b'{"text": "before"}\n' + line + b'\n\n"after"\n')
    before, fault, after = read(path)
    assert (before.text, after.text, after.line) == ("before", "after", 4)
    assert isinstance(fault, Fault)
    assert (fault.line, fault.reason) == (2, reason)


def test_line_longer_than_the_limit_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_RECORD", 100)
    monkeypatch.setattr(records, "BLOCK", 30)
    path = tmp_path / "docs.jsonl"
    path.write_text(f'{{"text": "{"x" * 300}"}}\n"after"\n')
    fault, after = read(path)
    assert isinstance(fault, Fault)
    assert (fault.line, after.text, after.line) == (1, "after", 2)


def test_damaged_row_is_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_bytes(b'id,text\n1,a\n2\n3,"b"c\n4,\xff\n5,d\n')
    items = read(path)
    assert documents(items) == ["a", "d"]
    faults = [(item.line, item.reason) for item in items if isinstance(item, Fault)]
    assert faults == [
        (3, "1 columns (the header has 2)"),
        (4, "not a row of fields (',' expected after '\"')"),
        (5, "not UTF-8"),
    ]


def test_open_quote_ends_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_RECORD", 100)
    path = tmp_path / "docs.csv"
    path.write_text('id,text\n1,a\n2,"b\n' + "3,c\n" * 100)
    good, fault = read(path)
    assert good.text == "a"
    assert isinstance(fault, Fault)
    assert fault.line == 3
    assert "is a quote left open?" in fault.reason


def test_a_quote_of_a_tsv_that_is_left_open_takes_no_other_row(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_RECORD", 1000)
    path = tmp_path / "docs.tsv"
    texts = ['"Wow', *"abcdefghij" * 9, '"', "end", '"last']
    path.write_text("text\tlabel\n" + "".join(f"{text}\t1\n" for text in texts))
    items = read(path)
    assert documents(items) == texts


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_record_of_values_without_end_is_not_parsed(tmp_path, suffix):
    many = "[" + "[]," * 2_000_000 + "[]]"
    long = json.dumps('a, [b], {c} "\\' * 150_000)  # as many signs, in one text
    ends = ("\n", "") if suffix == ".jsonl" else (",", "]")
    path = tmp_path / f"docs{suffix}"
    rows = ["[" * (suffix == ".json") + '"x"', long, many, '"y"']
    path.write_text(ends[0].join(rows) + ends[1])
    tracemalloc.start()
    items = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    fault = next(item for item in items if isinstance(item, Fault))
    assert (fault.line, "of too many values" in fault.reason) == (3, True)
    last = ["y"] * (suffix == ".jsonl")
    assert documents(items) == ["x", json.loads(long), *last]
    # Each list would take 64 bytes, 128 MB in all.
    assert peak < 70_000_000


def test_text_after_the_end_of_an_array_is_a_fault(tmp_path):
    path = tmp_path / "docs.json"
    for end in ("", " \n"):
        path.write_text(f'["a"]{end}')
        assert documents(read(path)) == ["a"]
    path.write_text('["a"]\n["b"]\n')
    good, fault = read(path)
    assert (good.text, fault.line) == ("a", 2)
    assert "text after the end of the array" in fault.reason


def test_damaged_line_of_text_is_named_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 8)
    path = tmp_path / "docs.txt"
    path.write_bytes(b"a line\nanother" + b" \xff line\nthe end")
    items = read(path)
    assert documents(items) == ["a line\nanother ", "the end"]
    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.line, fault.reason) == (2, "not UTF-8 (0xff)")


@pytest.mark.parametrize(
    ("data", "n_read"),
    [
        (b'["a", "b", {"text": ', 2),
        (b'["a" "b"]', 1),
        (b'["a", \xff]', 0),
        (b'["a", nope, "c"' + b', "x"' * 50 + b"]", 1),
        (b"[", 0),
    ],
)
def test_damaged_array_is_read_up_to_the_damage(tmp_path, data, n_read):
    path = tmp_path / "docs.json"
    path.write_bytes(data)
    *good, fault = read(path)
    assert len(good) == n_read
    assert isinstance(fault, Fault)
    assert fault.line == n_read + 1


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".txt.gz", ".json.gz", ".csv.gz"])
def test_truncated_gzip_is_one_fault(tmp_path, suffix):
    texts = [json.dumps(list(range(i, i + 400))) for i in range(300)]
    path = written(tmp_path, suffix, texts)
    path.write_bytes(path.read_bytes()[:-2000])
    items = read(path)
    assert isinstance(items[-1], Fault)
    assert not any(isinstance(item, Fault) for item in items[:-1])
    assert len(items) > 1 or suffix == ".json.gz"


def test_truncated_text_names_the_line_of_its_end(tmp_path):
    text = "".join(f"{i} {i * i % 9973}\n" for i in range(20_000))
    packed = gzip.compress(text.encode())
    path = tmp_path / "a.txt.gz"
    path.write_bytes(packed[: len(packed) // 2])
    document, fault = read(path)
    assert isinstance(document, Document) and isinstance(fault, Fault)
    assert fault.line == document.text.count("\n") + 1 > 1000


def test_a_text_file_of_blank_lines_takes_no_more_than_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_TEXT", 1 << 19)
    monkeypatch.setattr(corpus, "_REPEATED", 1 << 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n" * ((1 << 19) + 9))
    tracemalloc.start()
    first, second = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (first.line, second.line) == (1, (1 << 19) - (1 << 10) + 1)
    assert peak < 8 << 20


def test_no_gzip_is_one_fault(tmp_path):
    path = tmp_path / "docs.jsonl.gz"
    path.write_text('"a"\n')
    (fault,) = read(path)
    assert isinstance(fault, Fault)
    assert "Not a gzipped file" in fault.reason


@pytest.mark.parametrize(
    ("suffix", "n_bytes"),
    [(".jsonl", 30_000_000), (".json", 9_000_000), (".csv", 9_000_000)],
)
def test_memory_is_bounded_whatever_the_size(tmp_path, suffix, n_bytes):
    line = "lorem ipsum dolor sit amet " * 40
    n = n_bytes // len(line)
    rows = {
        ".jsonl": (json.dumps({"text": line}) + "\n" for _ in range(n)),
        ".json": (("," if i else "[") + json.dumps(line) for i in range(n)),
        ".csv": (f'"{line}\n"\n' if i else "text\n" for i in range(n + 1)),
    }
    path = tmp_path / f"big{suffix}"
    with open(path, "w") as file:
        file.writelines(rows[suffix])
        file.write("]" if suffix == ".json" else "")
    tracemalloc.start()
    n_characters = sum(len(d.text) for d in read_documents(path, text_field="text"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_characters >= n * len(line)
    # A block, its text and what is left of the block before: some MB, not 9 or 30.
    assert peak < 6_000_000


def test_files_are_sorted_and_hidden_and_own_ones_are_left_out(tmp_path):
    names = "b.txt a/z.jsonl.gz a/y.CSV .git/x.txt c.md out/o.json"
    for name in names.split():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    files, others = list_corpus(tmp_path, leave_out=tmp_path / "out")
    assert [file.name for file in files] == ["a/y.CSV", "a/z.jsonl.gz", "b.txt"]
    assert others == ["c.md"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "no such file or folder"),
        ("empty", "no file of the kinds"),
        ("x.arrow", "unknown suffix '.arrow'"),
        ("x.tar.gz", "unknown suffix '.gz'"),
    ],
)
def test_corpus_that_is_none_is_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.arrow").touch()
    (tmp_path / "x.tar.gz").touch()
    with pytest.raises(InputError, match=message):
        list_corpus(tmp_path / name, leave_out=tmp_path / "out")


def test_a_missing_corpus_has_the_hint_of_its_command(tmp_path):
    for hint in ("", "give it first"):
        with pytest.raises(InputError) as caught:
            list_corpus(tmp_path / "none", leave_out=None, missing_hint=hint)
        assert caught.value.hint == hint


@pytest.mark.parametrize("suffix", [".wet.gz", ".jsonl.zst", ".parquet"])
def test_archive_that_is_cut_short_is_named(tmp_path, suffix):
    path = written(tmp_path, suffix, TEXTS * 400)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 - 5])
    *_, last = read(path)
    assert last.reason.startswith("nothing from here on is readable (")


def test_parquet_without_the_field_names_those_that_it_has(tmp_path):
    (fault,) = read(written(tmp_path, ".parquet"), field="body")
    assert "no field 'body' (it has: n, text)" in fault.reason


def test_a_parquet_column_that_holds_no_text_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"text": ["y"], "bytes": [b"z"]})
    pyarrow.parquet.write_table(table, path)
    assert documents(read(path)) == ["y"]
    (fault,) = read(path, field="bytes")
    assert "field 'bytes' is not a string (binary)" in fault.reason
    data = pyarrow.array([b"fine", b"\xff"]).buffers()
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, data)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    good, bad = read(path)
    assert (good.text, bad.reason) == ("fine", "not UTF-8")
