"""Benchmarks in tables and on the hub: the same examples as from JSON lines."""

import datetime
import decimal
import json
import uuid

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.data import hub_splits
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.tables import read_table
from jaxcontam.errors import InputError
from tests.support.refused import refusal

ROWS = [{"q": f"what is {i}?", "a": [i, None], "è": {"b": i / 2}} for i in range(7)]


def write_table(path, rows, **flags):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **flags)
    return path


def write_lines(path, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text)
    return path


def facts(benchmark):
    return benchmark.texts, benchmark.rows, benchmark.order_provenance


@pytest.mark.parametrize("flags", [{}, {"text_field": "q"}, {"template": "{q} {a}"}])
def test_table_is_the_benchmark_of_its_json_lines(tmp_path, flags):
    # Row groups of two rows: a limit ends inside the third.
    table = write_table(tmp_path / "set.parquet", ROWS, row_group_size=2)
    lines = write_lines(tmp_path / "set.jsonl", ROWS)
    for limit in (None, 5, 100):
        one, other = (load_benchmark(p, limit=limit, **flags) for p in (table, lines))
        assert facts(one) == facts(other)
        assert (one.name, one.fingerprint) == (other.name, other.fingerprint)


def test_values_without_json_become_text_and_bytes_are_left_out(tmp_path):
    row = {"when": datetime.datetime(2024, 2, 29, 1), "price": decimal.Decimal("1.50")}
    row |= {"image": {"bytes": b"\xff", "path": "x.png"}, "thumbs": [b"\x00"]}
    row["nested"] = [{"day": datetime.date(2024, 2, 29)}]
    path = write_table(tmp_path / "set.parquet", [row])
    kept = {"when": "2024-02-29T01:00:00", "price": "1.50"}
    assert read_table(path) == [kept | {"nested": [{"day": "2024-02-29"}]}]
    with pytest.raises(InputError, match=r"no field 'image' \(it has: when, price"):
        load_benchmark(path, text_field="image")


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_row_without_its_text_is_left_out_and_counted(tmp_path, suffix):
    write = write_table if suffix == "parquet" else write_lines
    values = ("a", 1), ("b", 2), (None, 3), ("null", None)
    rows = [{"q": text, "s": {"n": n}} for text, n in values]
    path = write(tmp_path / f"set.{suffix}", rows)
    found = load_benchmark(path, text_field="q")
    assert found.texts == ("a", "b", "null")
    assert found.rows == (rows[0], rows[1], rows[3])
    assert found.left_out == ("1 record whose 'q' is null left out",)
    # Each row by itself: of the first three, two have a text.
    assert load_benchmark(path, text_field="q", limit=3).texts == ("a", "b")
    assert load_benchmark(path, text_field="s.n").texts == ("1", "2", "3")
    with pytest.raises(InputError, match=r"3: field 'q' is null(\n|$)"):
        load_benchmark(path, template="Q: {q}")
    path = write(tmp_path / f"set.{suffix}", [{"q": float("nan")}])
    with pytest.raises(InputError, match=r"no examples \(1 record whose 'q' is null"):
        load_benchmark(path, text_field="q")


def write_columns(path, *columns):
    """A file of (name, values, type)."""
    names = [name for name, _, _ in columns]
    arrays = [pyarrow.array(values, kind) for _, values, kind in columns]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names), path)
    return path


TEXT = ("q", ["x", "y"], pyarrow.string())
BINARY = pyarrow.binary()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *((kind, [b"1", b"2"]) for kind in (pyarrow.binary_view(), pyarrow.binary(1))),
        (pyarrow.large_binary(), [b"1", b"2"]),
        (pyarrow.dictionary(pyarrow.int32(), BINARY), [b"1", b"2"]),
        (pyarrow.opaque(BINARY, "picture", "here"), [b"1", b"2"]),
        (pyarrow.list_(BINARY), [[b"1"], [b"2"]]),
        (pyarrow.map_(pyarrow.string(), BINARY), [[("a", b"1")], [("a", b"2")]]),
    ],
    ids=str,
)
def test_bytes_of_any_kind_are_left_out(tmp_path, kind, values):
    column = pyarrow.array(values, getattr(kind, "storage_type", kind))
    if isinstance(kind, pyarrow.BaseExtensionType):
        column = pyarrow.ExtensionArray.from_storage(kind, column)
    path = tmp_path / "set.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x", "y"], "b": column}), path)
    assert read_table(path) == [{"q": "x"}, {"q": "y"}]


def test_numbers_with_a_spelling_of_their_own_become_text(tmp_path):
    # Parquet keeps 16 bytes; their spelling is what the publisher meant.
    number = uuid.UUID(int=5)
    column = ("id", [number.bytes] * 2, pyarrow.uuid())
    path = write_columns(tmp_path / "set.parquet", column, TEXT)
    (first, _) = load_benchmark(path).texts
    assert json.loads(first) == {"id": str(number), "q": "x"}


def test_column_whose_name_begins_another_stays_itself(tmp_path):
    # Asked for `a`, parquet gives `a.b` too, which holds bytes here.
    inner, outer = ("a.b", [b"1", b"2"], BINARY), ("a", ["x", "y"], pyarrow.string())
    path = write_columns(tmp_path / "set.parquet", inner, TEXT, outer)
    assert read_table(path) == [{"q": "x", "a": "x"}, {"q": "y", "a": "y"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "not a readable .parquet file"),
        ([TEXT, TEXT], "two columns named 'q'"),
        ([("image", [b"1"], BINARY)], "all columns are binary (image)"),
        ([("t", [2**60], pyarrow.timestamp("ms"))], "not a readable .parquet file"),
        ([("t", [2**30], pyarrow.date32())], "not a readable .parquet file"),
        ([("t", [1], pyarrow.timestamp("us", "No/Zone"))], "not a readable .parquet"),
    ],
)
def test_table_without_records_to_make_of_it_is_one_line(tmp_path, columns, message):
    path = tmp_path / "set.parquet"
    if columns:
        write_columns(path, *columns)
    else:
        path.write_bytes(b"PAR1 not")
    assert message in refusal(load_benchmark, path)[0]


def peak_bytes(ask):
    """The most that pyarrow held at a time."""
    usual = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(pool)
    try:
        ask()
    finally:
        pyarrow.set_memory_pool(usual)
    return pool.max_memory()


def test_images_and_rows_behind_the_limit_are_not_read(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.bytes(1 << 16) for _ in range(32)]
    columns = ("image", images, BINARY), ("n", range(32), pyarrow.int32())
    path = write_columns(tmp_path / "set.parquet", *columns)
    assert peak_bytes(lambda: read_table(path)) < len(images[0])
    texts = [rng.bytes(1 << 13).hex() for _ in range(128)]
    write_table(path, [{"q": text} for text in texts], row_group_size=16)
    size = sum(map(len, texts[:16]))
    # A group is read compressed, to about a half, and its texts are then taken out.
    assert peak_bytes(lambda: read_table(path, limit=2)) < 2 * size
    assert peak_bytes(lambda: read_table(path)) > 8 * size


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of one dataset: file names to rows; `.json` holds JSON lines."""
    files = {}

    def download(dataset, path, revision):
        target = tmp_path / path.replace("/", "-")
        write = write_table if path.endswith(".parquet") else write_lines
        return str(write(target, files[path]))

    monkeypatch.setattr(hub_splits, "_list_files", lambda *_: list(files))
    monkeypatch.setattr(hub_splits, "_download", download)
    return files


def test_split_of_the_hub_takes_a_template_or_says_what_there_is(hub):
    hub["test.parquet"] = ROWS
    found = load_benchmark("hf:name:test", template="Q: {q}", limit=2)
    assert found.texts == ("Q: what is 0?", "Q: what is 1?")
    for name, flags, message in (
        ("hf:name:test", {"text_field": "question"}, "row 1: no field 'question'"),
        ("hf:name:validation", {}, "no file of that split"),
        ("hf:name", {}, "not a split on the hub"),
    ):
        assert message in refusal(load_benchmark, name, **flags)[0]


def test_files_of_a_split_behind_the_limit_are_not_read(hub, monkeypatch):
    hub["test-00000-of-00002.parquet"] = ROWS[:4]
    hub["test-00001-of-00002.parquet"] = ROWS[4:]
    asked = []
    real = pyarrow.parquet.ParquetFile

    def opened(path):
        asked.append(path.name)
        return real(path)

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", opened)
    assert len(load_benchmark("hf:name:test", text_field="q", limit=4)) == 4
    assert asked == ["test-00000-of-00002.parquet"]
    assert len(load_benchmark("hf:name:test", text_field="q", limit=5)) == 5
    assert len(asked) == 3


def test_a_json_file_of_the_hub_may_be_an_object_with_its_rows(
    hub, tmp_path, monkeypatch
):
    # Lines, the array under a key of several lines, and one line, which is a row.
    hub["test.json"] = ROWS
    lines = load_benchmark("hf:name:test")
    path = tmp_path / "test.json"
    monkeypatch.setattr(hub_splits, "_download", lambda *_: str(path))
    path.write_text(json.dumps({"version": "1.1", "data": ROWS}, indent=1))
    found = load_benchmark("hf:name:test")
    assert found.rows == lines.rows
    assert found.left_out == ("rows are those of 'data'; left out: version",)
    row = {"question": "2 + 2?", "choices": ["3", "4"]}
    write_lines(path, [row])
    assert load_benchmark("hf:name:test").rows == (row,)


def test_fault_of_the_hub_names_the_file(hub, tmp_path, monkeypatch):
    path = write_lines(tmp_path / "test.json", ROWS)
    path.write_text(path.read_text() + "{\n")
    hub["test.json"] = ROWS
    monkeypatch.setattr(hub_splits, "_download", lambda *_: str(path))
    with pytest.raises(InputError, match=r"test\.json:8: not JSON"):
        load_benchmark("hf:name:test")
