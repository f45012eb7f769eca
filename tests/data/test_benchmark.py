"""`load_benchmark`: what an example is, its order and digests, and every refusal."""

import gzip
import hashlib
import json

import numpy as np
import pytest

from jaxcontam.data import benchmark, corpus
from jaxcontam.data.benchmark import (
    Benchmark,
    content_digest,
    fingerprint,
    load_benchmark,
)
from jaxcontam.errors import InputError
from tests.support.refused import refusal

SUFFIXES = ".jsonl, .json, .csv, .tsv, .txt, .parquet"


@pytest.fixture
def write(tmp_path):
    """Write a file with exactly these bytes; returns its path."""

    def write_file(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def texts_of(path, **flags):
    return list(load_benchmark(path, **flags).texts)


def in_each_format(values):
    """File name -> its content, for strings without quotes, commas and tabs."""
    return {
        "set.jsonl": "".join(f"{json.dumps({'q': v})}\n" for v in values),
        "set.json": json.dumps([{"q": v} for v in values]),
        "set.csv": "q\n" + "".join(f"{v}\n" for v in values),
        "set.tsv": "q\n" + "".join(f"{v}\n" for v in values),
        "set.txt": "".join(f"{v}\n" for v in values),
    }


def test_what_unpacks_to_more_than_a_file_may_have_is_refused(write, monkeypatch):
    monkeypatch.setattr(benchmark, "_MOST_BYTES", 5_000)
    for name in ("many.jsonl.gz", "many.csv.gz"):
        path = write(name, gzip.compress(b"1\n" * 10_000))
        with pytest.raises(InputError, match="unpacked to over the 5,000 bytes"):
            load_benchmark(path)


@pytest.mark.parametrize("name", list(in_each_format([])))
def test_published_order_and_repeats_are_kept_up_to_a_limit(write, name):
    values = [f"text {i}" for i in np.random.default_rng(0).integers(0, 300, 500)]
    content = in_each_format(values)[name]
    path = write(name, content)
    found = load_benchmark(path)
    fields = found.texts if name == "set.txt" else [row["q"] for row in found.rows]
    assert list(fields) == values
    assert (found.name, found.order_provenance) == ("set", "published")
    assert texts_of(path, limit=7) == list(found.texts[:7])
    assert texts_of(path, limit=999) == list(found.texts)
    packed = load_benchmark(write(f"{name}.gz", gzip.compress(path.read_bytes())))
    assert (packed.name, packed.texts) == (found.name, found.texts)
    # Line ends of Windows and a byte order mark change nothing.
    marked = b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode()
    again = load_benchmark(write(name, marked))
    assert (again.texts, again.rows) == (found.texts, found.rows)


def test_raw_line_is_the_example_to_the_last_space(write):
    lines = ['{"q":"2+2?",  "a": 4}', '  {"q": "\\u00e9"} ', '"a string"', "17"]
    path = write("set.jsonl", "\n".join(lines) + "\n")
    found = load_benchmark(path)
    assert list(found.texts) == lines
    assert found.rows == ({"q": "2+2?", "a": 4}, {"q": "é"}, None, None)


def test_array_elements_keep_their_source_text_and_strings_their_value(write):
    text = ' [ {"a" :1.0} , "two ] \\u00e9",[3 , "]"]\n,\tnull , {"b": {"c": []}}]\n'
    found = load_benchmark(write("set.json", text))
    texts = ['{"a" :1.0}', "two ] é", '[3 , "]"]', "null", '{"b": {"c": []}}']
    assert list(found.texts) == texts
    assert found.rows == ({"a": 1.0}, None, None, None, {"b": {"c": []}})


@pytest.mark.parametrize(
    ("head", "end", "words"),
    [
        # BIG-Bench Hard, SQuAD, and one whose last equal key counts, as in parsers.
        ('{"canary": "guid [1]",\n "examples" :', "\n}\n", "; left out: canary"),
        ('{"examples":', ',"n": [1, "x"], "e": []}', "; left out: n, e"),
        ('{"examples": [{}], "examples": ', "}", ""),
    ],
)
def test_rows_may_be_the_one_array_of_an_object(write, head, end, words):
    for rows in ('[{"a" :1.0}, {"b": ["x", "y"]} ]', '["two ] \\u00e9","b"]'):
        array = load_benchmark(write("array.json", rows))
        content = f"\ufeff {head}{rows}{end}"
        found = load_benchmark(write("set.json", content))
        assert (found.texts, found.rows) == (array.texts, array.rows)
        assert found.left_out == (f"rows are those of 'examples'{words}",)
        packed = write("set.json.gz", gzip.compress(content.encode()))
        assert texts_of(packed, limit=1) == list(array.texts[:1])


@pytest.mark.parametrize(("name", "comma"), [("set.csv", ","), ("set.tsv", "\t")])
def test_quoted_row_over_several_lines_is_one_example(write, name, comma):
    rows = [f'"one\r\ntwo\n\nthree"{comma}1', f'"say ""{comma}"""{comma}2', f"x{comma}"]
    # Rows of commas alone are blank.
    blank = f"{comma}\n {comma} \n"
    path = write(name, f"q{comma}a\n{blank}" + "\n".join(rows) + "\n")
    found = load_benchmark(path)
    assert list(found.texts) == rows
    assert found.left_out == ("2 blank lines left out",)
    assert found.rows == (
        {"q": "one\r\ntwo\n\nthree", "a": "1"},
        {"q": f'say "{comma}"', "a": "2"},
        {"q": "x", "a": ""},
    )


@pytest.mark.parametrize("name", ["set.jsonl", "set.csv", "set.tsv", "set.txt"])
def test_only_line_feeds_end_a_line(write, name):
    # str.splitlines would break all of these inside an example; JSON forbids raw
    # control characters inside a string.
    for separator in "\u2028\u2029\x85" + "\x0b\x0c\x1c" * (name != "set.jsonl"):
        value = f"one{separator}still one"
        content = in_each_format([value, "two"])[name]
        content = content.replace(json.dumps(separator)[1:-1], separator)
        found = load_benchmark(write(name, content))
        assert len(found) == 2
        assert (found.texts[0] if name == "set.txt" else found.rows[0]["q"]) == value


@pytest.mark.parametrize("name", ["set.jsonl", "set.csv", "set.txt"])
def test_blank_lines_are_no_examples_and_the_last_line_end_is_optional(write, name):
    content = in_each_format(["one", "two"])[name]
    gaps = write(name, content.replace("\n", "\n\n").rstrip("\n"))
    found = load_benchmark(gaps)
    assert len(found) == 2
    # A table has one below its header, too.
    n = "2 blank lines" if name == "set.csv" else "1 blank line"
    assert found.left_out == (f"{n} left out",)


def test_digests_are_sha256_over_the_examples_own_digests():
    texts = ("b", "é\n", "a", "b")
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    in_order = hashlib.sha256(b"".join(digests)).hexdigest()
    sorted_ = hashlib.sha256(b"".join(sorted(digests))).hexdigest()
    benchmark = Benchmark("b", texts, (None,) * 4)
    assert fingerprint(texts) == benchmark.fingerprint == f"sha256:{in_order}"
    assert content_digest(texts) == benchmark.content_digest == f"sha256:{sorted_}"


def test_groups_are_the_values_of_a_field_that_every_record_has(write):
    lines = ['{"g": "law"}', '{"g": 3}', '{"g": "3"}', '{"g": [1, 2]}', '{"g": [1, 2]}']
    groups = load_benchmark(write("set.jsonl", "\n".join(lines))).groups("g")
    assert groups[:3] == ["law", 3, "3"]
    assert groups[3] == groups[4], "lists are grouped by their content"
    assert len(set(groups)) == 4
    for line, found in (('{"h": 1, "i": 2}', "it has: h, i"), ('"x"', "plain text")):
        benchmark = load_benchmark(write("set.jsonl", f"{lines[0]}\n{line}\n"))
        message, hint = refusal(benchmark.groups, "g")
        assert message == f"set: example 2: no field 'g' ({found})"
        assert hint == "--group-field must name a field of every record"


ARRAY = ":{}: not a JSON array (expected an array, column {})"
OBJECT, HAS = "a JSON object with", "rows (it has: q, b)"
PLAIN = ":1: no field 'q' (the example is plain text)"
WHOLE = "leave out --text"
EMPTY = ": no examples", "nothing to test in this file"
SUFFIX = f"one of {SUFFIXES}"
FOLDER = "there is no folder"
Q = {"text_field": "q"}
QUOTE = "(',' expected after '\"')"
LATIN = b'"caf\xc3\xa9"\n"caf\xe9"\n'
ROW = 'q,a\n"x\ny",2\n'
HALF_GZIP = gzip.compress(b"[]", mtime=0)[:-9]
WIDTH = ":4: {} columns (the header has 2)"


@pytest.mark.parametrize(
    ("name", "content", "flags", "message", "hint"),
    [
        *(
            (name, content, {}, *EMPTY)
            for name, content in (
                *(("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.json", "[]")),
                *(("a.csv", ""), ("a.tsv", "\n"), ("a.txt", "\r\n\n")),
            )
        ),
        *(
            (name, LATIN, {}, ": byte 12: not UTF-8 (0xe9)", "iconv -f latin1 -t ut")
            for name in in_each_format([])
        ),
        ("a.jsonl", '1\n\n{"q": }', {}, ":3: not JSON (Expecting value, col", ".txt"),
        ("a.jsonl", "9" * 5000, {}, ":1: not JSON (", ""),
        ("a.jsonl", '{"q": 1}\n{"q": "', {}, ":2: not JSON (Unt", "cut short"),
        ("a.jsonl", '[\n{"q": 1}\n]\n', {}, ":1: not JSON (Exp", "name it a.json"),
        ("a.jsonl", '[{"q": 1}, {}]\n', {}, ":1: one JSON array, not one value", ""),
        ("a.json", '{"q": 1, "b": [1]}', {}, f": {OBJECT} no array of {HAS}", ".jsonl"),
        ("a.json", '{"q": ["x", {}]}', {}, "no array of rows (it has: q)", ".jsonl"),
        ("a.json", "{}", {}, "no array of rows (it has: nothing)", ".jsonl"),
        ("a.json", '{"q": 1}\n{"q": 2}', {}, ":2: not a JSON array (Extra d", ".jsonl"),
        (
            "a.json",
            '{"q": ["x"], "n": 1, "b": [{}, {}]}',
            {},
            f": {OBJECT} 2 arrays of rows: q, b",
            "write one of them to a .json file of its own",
        ),
        ("a.json", "\n\n 1", {}, ARRAY.format(3, 2), ".jsonl"),
        ("a.json", '["a",\n "b" "c"]', {}, ":2: not a JSON array (Expecting ','", ""),
        ("a.txt", "one\n", Q, PLAIN, WHOLE),
        ("a.jsonl", '"one"\n', Q, PLAIN, WHOLE),
        ("a.md", "x", {}, ": unknown suffix '.md'", SUFFIX),
        ("a.txt", "x".encode("utf-16"), {}, ": byte 0: not", "iconv -f utf-16 -t ut"),
        ("a.txt", b"\x1f\x8b\x08", {}, ": byte 1: not", "compressed: name it a.txt.gz"),
        (
            "a.jsonl.gz",
            "x",
            {},
            ": no whole .gz file (Not a gzipped",
            "name it a.jsonl",
        ),
        ("a.jsonl.gz", HALF_GZIP, {}, ": no whole .gz file (Compr", "copy or"),
        ("a.parquet.gz", "x", {}, ": unknown suffix '.gz'", SUFFIX),
        ("a", "x", {}, ": unknown suffix ''", SUFFIX),
        ("a.csv", f"{ROW}1", {}, WIDTH.format(1), ""),
        ("a.csv", f"{ROW}1,2,3", {}, WIDTH.format(3), ""),
        ("a.csv", f'{ROW}"1,2"', {}, WIDTH.format(1), ""),
        ("a.csv", "q,a,\none,1,\n2,3,x", {}, ":3: 3 columns (the header has 2)", ""),
        # Both ways to read quotes end at the last line, but at its own width.
        ("a.tsv", 'q\ta\n"x\t1\ny"\t2\nz\n', {}, WIDTH.format(1), ""),
        ("a.csv", 'q,a\n1,2\n"x,2', {}, ":3: not .csv (unexpected end of data)", ""),
        ("a.csv", 'q,a\n1,2\n"x"y,2', {}, f":3: not .csv {QUOTE}", ""),
        ("a.csv", "sep=;\nq;a\n1;2\n", {}, ":1: cells are separated by ';'", ""),
        ("a.jsonl", '{"a": "\\ud83d"}', {"check_fields": True}, ":1: unpaired", ""),
        ("a.jsonl", "{}", {"no_header": True}, "--no-header is for .csv and .tsv", ""),
        ("a.txt", "x", {"limit": 0}, "--limit must be at least 1, got 0", ""),
        ("a.txt", "x", {"limit": -3}, "--limit must be at least 1, got -3", ""),
        ("a.txt", "x", Q | {"template": "{q}"}, "exclude each other", ""),
        ("no/a.txt", None, {}, ": no such file", FOLDER),
        # A hint names another spelling and never another file.
        ("bolq_test.jsonl", None, {}, ": no such file", "boolq_test.jsonl'?"),
        ("boolq_train.jsonl", None, {}, ": no such file", None),
        ("part-2.jsonl", None, {}, ": no such file", None),
        ("prat-1.jsonl", None, {}, ": no such file", "part-1.jsonl'?"),
        ("part-1.json.parquet", None, {}, ": no such file", "part-1.parquet'?"),
        ("", None, {}, ": is a folder", "name one file"),
    ],
)
def test_what_cannot_be_read_is_refused(write, name, content, flags, message, hint):
    path = write("boolq_test.jsonl", "{}\n").parent / name
    write("part-1.jsonl", "{}\n")
    write("part-1.parquet", "")
    if content is not None:
        write(name, content)
    said, told = refusal(load_benchmark, path, **flags)
    assert message in said and (said.startswith(str(path)) or "--" in said)
    assert hint in told if hint is not None else told == ""


@pytest.mark.parametrize("flags", [{"text_field": "text"}, {"template": "{text}"}])
def test_unknown_field_names_the_place_and_the_fields_that_exist(write, flags):
    jsonl = write("set.jsonl", '{"text": "x"}\n{"q": 1, "a": 2}\n')
    array = write("set.json", '[{"text": "x"}, {"q": 1, "a": 2}]')
    table = write("set.csv", 'q,a\n"1\n1",2\n')
    hint = "name a field that every record has"
    for path, place in ((jsonl, ":2"), (array, ": element 2"), (table, ":3")):
        message = f"{path}{place}: no field 'text' (it has: q, a)"
        assert refusal(load_benchmark, path, **flags) == (message, hint)


def test_a_first_row_of_data_is_not_taken_for_names(tmp_path):
    path = tmp_path / "set.csv"
    row = "Which of these did the first person on the moon say?,a step,a leap\n"
    path.write_text(row + "2+2?,3,4\n")
    with pytest.raises(InputError, match="1: the first row holds data") as e:
        load_benchmark(path)
    assert e.value.hint.startswith("put a line with 3 names above it, such as questio")
    whole = load_benchmark(path, no_header=True, template="{column_1} {column_3}")
    assert whole.texts[1] == "2+2? 4" and len(whole) == 2
    assert whole.left_out == ("columns are named by position, column_1 to column_3",)
    path.write_text("question,a,b\n" + row + "2+2?,3,4\n")
    assert len(load_benchmark(path)) == 2
    # Short rows: no name of a column stands twice in it, the letter of an answer does.
    path.write_text("2+2?,3,A\n3+3?,4,A\n4+4?,5,B\n5+5?,6,A\n")
    with pytest.raises(InputError, match=r"1: the first row holds data, .* \('A'\)"):
        load_benchmark(path)
    path.write_text("word,n\nword,1\nother,2\n")
    assert len(load_benchmark(path)) == 2


SIGNS, CELLS = "quotes are characters", "quotes enclose cells"
EMPTY_1, EMPTY_3 = (
    f"{n} without a name" for n in ("1 empty column", "3 empty columns")
)
Q3, Q2 = '"id"\t"text"\n', "q\ta\n"


@pytest.mark.parametrize(
    ("suffix", "content", "rows", "note"),
    [
        # Two of a row's cells: each line is a row of its own.
        (".tsv", Q2 + '1\t"f\n2\tb"\n3\tc\n', ['1\t"f', '2\tb"', "3\tc"], f"{SIGNS} ("),
        # One line of the cell is no row.
        (".tsv", Q2 + '1\t"x\ty\nz"\n2\tc\n', [["1", "x\ty\nz"], "2\tc"], None),
        (".csv", 'q,a\n1,"x\nz, y"\n2,c\n', ["1\tx\nz, y", "2\tc"], f"{CELLS} (2 r"),
        (".csv", 'text\n"a\nb"\nc\n', ["a\nb", "c"], None),
        (".tsv", 'text\n"a\nb"\nc\n', ["a\nb", "c"], f"{CELLS} (2 r"),
        (".tsv", Q2 + '1\t5" d\n"2"\t"all"\n', ['1\t5" d', '"2"\t"all"'], f"{SIGNS}$"),
        (".tsv", Q3 + '1\t"say ""x"""\n', ['1\tsay "x"'], f"{CELLS}$"),
        (".csv", 'q,a\n"1","say ""x"""\n', ['1\tsay "x"'], None),
        (".tsv", Q2 + '1\tb\n"W\t2\n3\tc\n', ["1\tb", '"W\t2', "3\tc"], f"{SIGNS} ("),
        # What a spreadsheet writes besides.
        (".csv", "q,a,\none,1,\n,2,\n", ["one\t1", "\t2"], EMPTY_1),
        (".csv", "q,a,,,\none,1,,,\ntwo,2\n", ["one\t1", "two\t2"], EMPTY_3),
        (".csv", "q,,,a,\none,, ,1,\ntwo,,,2,\n", ["one\t1", "two\t2"], EMPTY_3),
        (".tsv", "\tq\t\ta\n0\tx\t\t1\n", ["0\tx\t1"], EMPTY_1),
        (".csv", "sep=,\r\nq,a\r\none,1\r\n", ["one\t1"], None),
        (".tsv", '"SEP=\t"\nq\ta\none\t1\n', ["one\t1"], None),
        (".csv", ",q\n0,one\n1,two\n", ["0\tone", "1\ttwo"], None),
    ],
)
def test_a_table_is_as_wide_as_its_header(tmp_path, suffix, content, rows, note):
    path = tmp_path / f"set{suffix}"
    path.write_text(content, newline="")
    found = load_benchmark(path)
    rows = [row.split("\t") if isinstance(row, str) else row for row in rows]
    assert [list(row.values()) for row in found.rows] == rows
    assert len(found.left_out) == (note is not None)
    assert note is None or f"{found.left_out[0]}$".startswith(note)
    # A corpus of the same file, read row by row; its text is the last column.
    field = list(found.rows[0])[-1]
    items = list(corpus.read_documents(path, text_field=field))
    texts = [row[-1] for row in rows]
    if note == f"{SIGNS}$":
        texts[1] = "all"  # no table is read to its end to know its quotes
    assert [item.text for item in items] == texts
