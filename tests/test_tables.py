"""Benchmarks in .parquet files and on the hub: the same examples as from JSON lines."""

import datetime
import decimal
import json

import pyarrow
import pyarrow.parquet
import pytest

from jaxcontam.data import hub_splits
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.tables import read_table
from jaxcontam.errors import InputError

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
    row = {
        "when": datetime.datetime(2024, 2, 29, 1),
        "price": decimal.Decimal("1.50"),
        "image": {"bytes": b"\xff", "path": "x.png"},
        "thumbs": [b"\x00"],
        "nested": [{"day": datetime.date(2024, 2, 29)}],
    }
    path = write_table(tmp_path / "set.parquet", [row])
    assert read_table(path) == [
        {
            "when": "2024-02-29T01:00:00",
            "price": "1.50",
            "nested": [{"day": "2024-02-29"}],
        }
    ]
    with pytest.raises(InputError, match=r"no field 'image' \(it has: when, price"):
        load_benchmark(path, text_field="image")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"PAR1 not", "not a readable .parquet file")],
)
def test_unreadable_table_is_one_line(tmp_path, content, message):
    path = tmp_path / "set.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_benchmark(path)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "json"])
def test_split_of_the_hub_is_its_files_in_order(hub, tmp_path, suffix):
    hub[f"main/test-00001-of-00002.{suffix}"] = ROWS[4:]
    hub[f"main/test-00000-of-00002.{suffix}"] = ROWS[:4]
    hub[f"main/train-00000-of-00001.{suffix}"] = ROWS[:1]
    lines = write_lines(tmp_path / "set.jsonl", ROWS)
    for limit in (None, 3, 5):
        found = load_benchmark("hf:org/name:main:test", limit=limit)
        assert found.name == "name-main-test"
        assert facts(found) == facts(load_benchmark(lines, limit=limit))


def test_split_of_the_hub_takes_a_template(hub):
    hub["test.parquet"] = ROWS
    found = load_benchmark("hf:name:test", template="Q: {q}", limit=2)
    assert found.texts == ("Q: what is 0?", "Q: what is 1?")
    with pytest.raises(InputError, match="row 1: no field 'question'"):
        load_benchmark("hf:name:test", text_field="question")


def test_split_that_the_hub_has_not_is_refused(hub):
    hub["test.parquet"] = ROWS
    with pytest.raises(InputError, match="no file of that split"):
        load_benchmark("hf:name:validation")
    with pytest.raises(InputError, match="not a split on the hub"):
        load_benchmark("hf:name")
