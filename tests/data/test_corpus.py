"""Streams of documents: every kind of file, damage, memory, pages of crawls."""

import gzip
import itertools
import json
import tracemalloc
import zlib

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


def read_file(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read(path)


def documents(items):
    return [item.text for item in items if isinstance(item, Document)]


KINDS = [
    *(s + gz for s in (".jsonl", ".json", ".csv", ".tsv") for gz in ("", ".gz")),
    *(".jsonl.zst", ".json.zst", ".csv.zst", ".wet", ".wet.gz", ".wet.zst", ".parquet"),
]


@pytest.mark.parametrize("suffix", [*KINDS, ".txt", ".txt.gz", ".txt.zst"])
def test_documents_are_those_written_in_any_blocks(tmp_path, suffix, monkeypatch):
    path = written(tmp_path, suffix)
    whole = read(path)
    is_text = suffix.startswith(".txt")
    assert documents(whole) == (["\n".join(TEXTS)] if is_text else TEXTS)
    assert not [item for item in whole if isinstance(item, Fault)]
    assert not is_text or (whole[0].line, whole[0].has_lines) == (1, True)
    if ".wet" not in suffix:
        monkeypatch.setattr(records, "BLOCK", 7)
        monkeypatch.setattr(corpus, "BLOCK", 7)
    again = [(item.text, item.line) for item in read(path)]
    assert again == [(item.text, item.line) for item in whole]
    if suffix in (".jsonl", ".json", ".csv", ".txt"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert documents(read(path)) == documents(whole)


def test_a_long_text_file_comes_in_documents_that_repeat_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 16)
    monkeypatch.setattr(corpus, "_TEXT", 400)
    monkeypatch.setattr(corpus, "_REPEATED", 50)
    lines = ["fünf Mäuse " * 3 + f"{i}\n" for i in range(40)]
    text = "".join(lines) + "".join(f"ü{i}" for i in range(300)) + "\nend"
    items = read_file(tmp_path, "one.txt", text)
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


def line(data, reason):
    """A line between two good ones."""
    data = b'{"text": "before"}\n' + data + b'\n\n"after"\n'
    return ".jsonl", data, ["before", "after"], [(2, reason)]


OF_TABLE = [(3, "1 columns (the header has 2)"), (4, "',' expected"), (5, "not UTF-8")]
QUOTES = ['"Wow', *"abcdefghij" * 9, '"', "end", '"last']


@pytest.mark.parametrize(
    ("suffix", "data", "texts", "faults"),
    [
        line(b'{"text": "x"', "not JSON (Expecting ',' delimiter, column 13)"),
        line(b'{"text": "\xff"}', "not UTF-8 (byte 10: 0xff)"),
        line(b'{"body": "x"}', "no field 'text' (it has: body)"),
        line(b'{"text": 3}', "field 'text' is not a string (int)"),
        line(b"[1]", "neither an object nor a string (list)"),
        (".jsonl", b'"%s"\n"after"\n' % (b"x" * 3000), ["after"], [(1, "longer than")]),
        (".csv", b'id,text\n1,a\n2\n3,"b"c\n4,\xff\n5,d\n', ["a", "d"], OF_TABLE),
        (
            ".csv",
            b'n,text\n1,a\n2,"b\n' + b"3,c\n" * 600,
            ["a"],
            [(3, "unclosed quote")],
        ),
        (".tsv", "\n".join(["text", *QUOTES]).encode() + b"\n", QUOTES, []),
        # The end of a block, which is as long as a line.
        (".txt", b"a\nanother \xff z\nend", ["a\nanother ", "end"], [(2, "0xff)")]),
        # C4's files hold lines.
        (".json", b'{"text": "a b"}\n{"text": "c"}\n', ["a b", "c"], []),
        (".json", b'["a"]', ["a"], []),
        (".json", b'["a"] \n', ["a"], []),
        (".json", b'["a"]\n["b"]\n', ["a"], [(2, "text after the end of the array")]),
        (".json", b'["a", "b", {"text": ', ["a", "b"], [(3, "")]),
        (".json", b'["a" "b"]', ["a"], [(2, "")]),
        (".json", b'["a", \xff]', [], [(1, "")]),
        (".json", b'["a", nope, "c"' + b', "x"' * 50 + b"]", ["a"], [(2, "")]),
        (".json", b"[", [], [(1, "")]),
        (".jsonl.gz", b'"a"\n', [], [(1, "readable (Not a gzipped file")]),
    ],
)
def test_damage_is_named(tmp_path, monkeypatch, suffix, data, texts, faults):
    monkeypatch.setattr(records, "MAX_RECORD", 2000)
    monkeypatch.setattr(records, "BLOCK", 30)
    monkeypatch.setattr(corpus, "BLOCK", 8)
    items = read_file(tmp_path, f"docs{suffix}", data)
    assert documents(items) == texts
    found = [item for item in items if isinstance(item, Fault)]
    assert len(found) == len(faults)
    for fault, (number, reason) in zip(found, faults, strict=True):
        assert fault.line == number and reason in fault.reason
    if suffix == ".jsonl":
        assert items[-1].line == data.count(b"\n")


def peak_of(read_all):
    """What is read, and the most memory that it took."""
    tracemalloc.start()
    found = read_all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, peak


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_record_of_values_without_end_is_not_parsed(tmp_path, suffix):
    many = "[" + "[]," * 2_000_000 + "[]]"
    long = json.dumps('a, [b], {c} "\\' * 150_000)  # as many signs, in one text
    ends = ("\n", "") if suffix == ".jsonl" else (",", "]")
    path = tmp_path / f"docs{suffix}"
    rows = ["[" * (suffix == ".json") + '"x"', long, many, '"y"']
    path.write_text(ends[0].join(rows) + ends[1])
    items, peak = peak_of(lambda: read(path))
    fault = next(item for item in items if isinstance(item, Fault))
    assert (fault.line, "of too many values" in fault.reason) == (3, True)
    last = ["y"] * (suffix == ".jsonl")
    assert documents(items) == ["x", json.loads(long), *last]
    # Each list would take 64 bytes, 128 MB in all.
    assert peak < 70_000_000


@pytest.mark.parametrize(
    "suffix",
    [
        *(f"{kind}.gz" for kind in (".jsonl", ".txt", ".json", ".csv", ".wet")),
        *(".jsonl.zst", ".parquet"),
    ],
)
def test_archive_that_is_cut_short_is_one_fault(tmp_path, suffix):
    texts = [json.dumps(list(range(i, i + 400))) for i in range(300)]
    path = written(tmp_path, suffix, texts)
    path.write_bytes(path.read_bytes()[:-2000])
    *good, last = read(path)
    assert last.reason.startswith("nothing from here on is readable (")
    assert not any(isinstance(item, Fault) for item in good)
    assert good or suffix in (".json.gz", ".jsonl.zst", ".parquet")
    if suffix == ".txt.gz":
        assert last.line == good[-1].line + good[-1].text.count("\n") > 100


def test_a_text_file_of_blank_lines_takes_no_more_than_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "_TEXT", 1 << 19)
    monkeypatch.setattr(corpus, "_REPEATED", 1 << 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n" * ((1 << 19) + 9))
    (first, second), peak = peak_of(lambda: read(path))
    assert (first.line, second.line) == (1, (1 << 19) - (1 << 10) + 1)
    assert peak < 8 << 20


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
    documents = read_documents(path, text_field="text")
    n_characters, peak = peak_of(lambda: sum(len(one.text) for one in documents))
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
    with pytest.raises(InputError, match=message) as caught:
        list_corpus(tmp_path / name, leave_out=tmp_path / "out", missing_hint="first")
    assert (caught.value.hint == "first") == (name == "none")


def test_a_parquet_column_that_holds_no_text_is_named(tmp_path):
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"text": ["y"], "bytes": [b"z"]})
    pyarrow.parquet.write_table(table, path)
    assert documents(read(path)) == ["y"]
    for field, said in (
        ("body", "no field 'body' (it has: text, bytes)"),
        ("bytes", "field 'bytes' is not a string (binary)"),
    ):
        (fault,) = read(path, field=field)
        assert fault.reason == said
    data = pyarrow.array([b"fine", b"\xff"]).buffers()
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 2, data)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    good, bad = read(path)
    assert (good.text, bad.reason) == ("fine", "not UTF-8")


HTTP = "HTTP/1.1 200 OK\r\nContent-Type: "
WORDS = "a page of some words that chunks and packings cut anywhere"
HTML = f"<p>{WORDS}</p>".encode()
CHUNKED, GZIP = "Transfer-Encoding: chunked", "Content-Encoding: gzip"
DEFLATE = "Content-Encoding: deflate"
RAW = zlib.compressobj(wbits=-15)


def response(body, *fields, kind="text/html"):
    head = "\r\n".join([f"{HTTP}{kind}", *fields])
    return warc("response", f"{head}\r\n\r\n".encode() + body)


def chunks(body, size=7, end=b"0\r\n\r\n"):
    parts = (body[i : i + size] for i in range(0, len(body), size))
    return b"".join(b"%x;x=1\r\n%s\r\n" % (len(p), p) for p in parts) + end


def test_pages_of_a_crawl_are_read_without_their_marks(tmp_path):
    marked = b"<html><head><style>p {}</style><script>var x = 1</script></head>"
    marked += b"<body><p>Caf\xe9 <b>au</b> lait</p><p>&lt;2&gt;</p></body></html>"
    crawled = [
        warc("warcinfo", b"software: x"),
        warc("request", b"GET / HTTP/1.1"),
        response(marked, kind="text/html; charset=latin-1"),
        response(b"\x89", kind="image/png"),
        response(marked, "Content-Encoding: br"),
    ]
    page, fault = read_file(tmp_path, "crawl.warc.gz", packed(".gz", crawled))
    assert page.line == 3
    assert page.text.split() == ["Caf\u00e9", "au", "lait", "<2>"]
    assert (fault.line, fault.reason) == (5, "a page packed by br")


def of_charset(charset, words):
    page = f'<meta charset="{charset}"><p>{words}</p>'
    return response(page.encode(charset.replace("gb2312", "gbk"))), words


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (response(chunks(HTML), CHUNKED), WORDS),
        (response(chunks(HTML, end=b""), CHUNKED), WORDS),
        (response(chunks(HTML, size=10).replace(b"\r\n", b"\n"), CHUNKED), WORDS),
        (response(chunks(gzip.compress(HTML)), CHUNKED, GZIP), WORDS),
        (response(gzip.compress(HTML), "content-encoding: X-GZIP"), WORDS),
        (response(zlib.compress(HTML), DEFLATE), WORDS),
        (response(RAW.compress(HTML) + RAW.flush(), DEFLATE), WORDS),
        # What many crawlers write: the page as it is, below its old header.
        (response(HTML, CHUNKED, GZIP), WORDS),
        # A page may name its charset itself; a sign that GB 2312 lacks and pages of
        # that name hold.
        *(of_charset(charset, "大學镕") for charset in ("gb2312", "gbk")),
        *(of_charset(charset, "大學") for charset in ("big5", "utf-8")),
        of_charset("shift_jis", "明治"),
        (response("<p>café".encode(), kind="text/html; charset=undefined"), "café"),
        (response(rb"<p>\ud800", kind="text/html; charset=unicode_escape"), r"\ud800"),
        (response(b"<p>a<![foo[ b ]]> c"), "a c"),
        (response(b"<p>cut short at AT&T"), "cut short at AT&T"),
    ],
)
def test_a_page_is_read_as_its_server_meant_it(tmp_path, record, text):
    (page,) = read_file(tmp_path, "x.warc", record)
    assert page.text.split() == text.split()


LENGTHS = (str(2**60), "9" * 5000)
AFTER = warc("conversion", b"after it")
END = "nothing from here on is readable ("


@pytest.mark.parametrize(
    ("record", "reason", "after"),
    [
        (response(b"3\r\nabc\r\nno size\r\n", CHUNKED), "a page whose chunks have", 1),
        (response(gzip.compress(HTML)[:20] + b"\xff" * 20, GZIP), "a page dam", 1),
        (response(HTML, DEFLATE), "a page damaged in its deflate", 1),
        (response(gzip.compress(bytes(6 << 20)), GZIP), "a page longer than 5 MiB", 1),
        *((AFTER.replace(b": 8\r", b": %s\r" % n.encode()), END, 0) for n in LENGTHS),
    ],
)
def test_a_page_that_cannot_be_unpacked_is_named(tmp_path, record, reason, after):
    fault, *others = read_file(tmp_path, "x.wet", record + AFTER)
    assert fault.reason.startswith(reason)
    assert documents(others) == ["after it"] * after


@pytest.mark.parametrize("limit", ["MAX_RECORD", "_MAX_PAGE"])
def test_a_page_that_is_too_long_is_passed_over(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(corpus, limit, 100)
    pages = [warc("conversion", b, "text/html") for b in (b"x" * 101, b"after it")]
    fault, after = read_file(tmp_path, "x.wet", b"".join(pages))
    assert (fault.line, after.text) == (1, "after it\n")
