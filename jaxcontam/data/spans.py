"""Spans of values in the source text of JSON documents and CSV rows.

A value can then be moved while every other byte of the record stays as published.
"""

import csv
import io
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from jaxcontam.errors import InputError

Path = tuple[str | int, ...]
"""Keys and indices that lead to a value, such as `("choices", "text", 2)`."""

_DECODER = json.JSONDecoder()


def value_at(value: Any, path: Path) -> Any:
    """The value that a path leads to, or None."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def json_span(raw: str, path: Path) -> tuple[int, int]:
    """Start and end of a value's source text in valid JSON, or a KeyError."""
    start = _skip_space(raw, 0)
    end = len(raw.rstrip())
    for step in path:
        found = None
        if isinstance(step, str):
            # The last of equal keys is the one that parsers keep.
            for key, _, (a, b) in json_members(raw, start):
                if key == step:
                    found = (a, b)
        else:
            for number, (_, a, b) in enumerate(element_spans(raw, start)):
                if number == step:
                    found = (a, b)
        if found is None:
            raise KeyError(path)
        start, end = found
    return start, end


def json_members(raw: str, start: int) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Members of an object: key, where the key starts, span of the value."""
    if raw[start] != "{":
        return
    place = _skip_space(raw, start + 1)
    while raw[place] != "}":
        key_start = place
        key, place = _DECODER.raw_decode(raw, place)
        place = _skip_space(raw, _skip_space(raw, place) + 1)  # past ':'
        _, end = _DECODER.raw_decode(raw, place)
        yield key, key_start, (place, end)
        place = _skip_space(raw, end)
        if raw[place] == ",":
            place = _skip_space(raw, place + 1)


def csv_spans(raw: str, row: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Span of each cell of a row of a .csv or .tsv file, quotes included.

    The cells of `row`, in order, tell how it was read.
    """
    cells, n = list(row.values()), len(row)
    bare = next((d for d in "\t," if raw.split(d)[:n] == cells), None)
    delimiter = bare or next((d for d in "\t," if _cells(raw, d)[:n] == cells), ",")
    spans, start = {}, 0
    for name in row:
        end, quoted = start, bare is None and raw[start : start + 1] == '"'
        if quoted:
            end = start + 1
            while raw[end] != '"' or raw[end + 1 : end + 2] == '"':
                end += 2 if raw[end] == '"' else 1
        while end < len(raw) and raw[end] != delimiter:
            end += 1
        spans[name] = (start, end)
        start = end + 1
    return spans


def _cells(raw: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(raw, newline=""), delimiter=delimiter), [])


def element_spans(raw: str, start: int) -> Iterator[tuple[Any, int, int]]:
    """Elements of an array that starts at `start`: value, start and end."""
    if raw[start] != "[":
        return
    place = _skip_space(raw, start + 1)
    while raw[place] != "]":
        value, end = _DECODER.raw_decode(raw, place)
        yield value, place, end
        place = _skip_space(raw, end)
        if raw[place] == ",":
            place = _skip_space(raw, place + 1)


def array_elements(path: pathlib.Path, text: str) -> Iterator[tuple[object, int, int]]:
    """Elements of a file's array: value, start and end of its source text."""
    start = len(text) - len(text.lstrip())
    try:
        if text[start : start + 1] != "[":
            raise json.JSONDecodeError("expected an array", text, start)
        json.loads(text)
    except (ValueError, RecursionError) as e:
        line = f":{e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
        raise InputError(
            f"{path}{line}: not a JSON array ({json_fault(e)})",
            hint="a .json file holds one array; one value a line is .jsonl",
        ) from e
    return element_spans(text, start)


def json_fault(e: Exception) -> str:
    """Message and column; very long numbers and very deep values have no column."""
    return (
        f"{e.msg}, column {e.colno}" if isinstance(e, json.JSONDecodeError) else str(e)
    )


def _skip_space(raw: str, place: int) -> int:
    while place < len(raw) and raw[place] in " \t\r\n":
        place += 1
    return place
