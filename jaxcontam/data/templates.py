"""Values of records: texts made from fields, and spans in the published source.

By its span a value can be moved while every other byte of a JSON document or CSV row
stays as published.
"""

import csv
import dataclasses
import io
import json
import math
import pathlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxcontam.arguments import NamedFields, check_fields
from jaxcontam.errors import InputError, nearest

Path = tuple[str | int, ...]
"""Keys and indices that lead to a value, such as `("choices", "text", 2)`."""
_DECODER = json.JSONDecoder()


_PLACES = "write {question}, {data.question} or {choices[0]}; {{ and }} are braces"
_ROWS = "write one array in a .json file; name a file with one value per line .jsonl"
_BRACE = re.compile("[{}]")
_STEPS = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordText:
    """Text of a record."""

    text: str | None = None
    r"""Field that is the text, or a template of fields in braces, such as
    "Question: {question}\nAnswer: {answer}" (default: the raw line)."""

    @property
    def template(self) -> str | None:
        """The text, if it has braces."""
        return self.text if self.text is not None and _BRACE.search(self.text) else None

    @property
    def text_field(self) -> str | None:
        """The text, if it names a field."""
        return None if self.template is not None else self.text


# No slots: the command joins these fields to its own.
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionFields(NamedFields, RecordText):
    r"""Names of a record's fields, which are flags of `jaxcontam inflation`.

    Without a template a record is read as `Question: {question}\nAnswer:`, or as the
    text that is to be continued; without an id it is known by its number in the file.
    """

    roles = ("options", "answer", "id", "document")
    text: str | None = None
    r"""Text before an answer: a field, or a template such as "Q: {question}\nA:";
    {options} lists them and asks for the letter."""
    fields: tuple[str, ...] = ()
    """Names of fields, if not common ones: options=A,B,C,D (or one that lists them),
    answer=NAME, id=NAME, which a rewrite shares with its original, and
    document=NAME: items with equal values of it count as one draw."""

    def __post_init__(self) -> None:
        """Refuse fields of another kind."""
        check_fields(self)
        self.named("id")


def fill_template(template: str, row: Mapping[str, object] | None, where: str) -> str:
    r"""Fill `{field}` places of a template; `\n` may be written as two characters.

    A place names a field, or what lies in one: `{data.question}`, `{choices[0]}`.
    """
    if row is not None and template in row:
        # A field's name may hold braces.
        return text_of_field(template, row, where)
    parts = []
    for literal, field in template_pieces(template):
        parts.append(literal)
        if field is not None:
            parts.append(text_of_field(field, row, where))
    return "".join(parts)


def check_template(template: str | None, text_field: str | None) -> None:
    """Refuse a template that makes the same text of every record."""
    if template is None:
        return
    if text_field is not None:
        raise InputError("--text: a template and a field exclude each other")
    if any(field is not None for _, field in template_pieces(template)):
        return
    doubled = "{{" in template
    raise InputError(
        f"--text {template!r}: names no field, so all examples would be equal",
        hint="{{ and }} are literal braces: write one of each, as in {question}"
        if doubled
        else _PLACES,
    )


def template_pieces(template: str) -> list[tuple[str, str | None]]:
    """Literal texts of a template, each with the field after it; None for none."""
    try:
        pieces = list(string.Formatter().parse(typed_newlines(template)))
    except ValueError as e:
        raise InputError(f"--text {template!r}: {e}", hint=_PLACES) from e
    for _, field, spec, conversion in pieces:
        if spec or conversion:
            raise InputError(
                f"--text {template!r}: {field!r} has a format", hint=_PLACES
            )
    return [(literal, field) for literal, field, _, _ in pieces]


def typed_newlines(text: str) -> str:
    r"""Replace `\n` typed as two characters by a line feed."""
    return text.replace("\\n", "\n")


def field_of(
    row: Mapping[str, object] | None, field: str, where: str, *, hint: str
) -> object:
    """Value of one field of a record."""
    if row is None or field not in row:
        has = "plain text" if row is None else f"it has: {', '.join(row)}"
        raise InputError(
            f"{where}: no field {field!r} ({has})",
            hint=f"{nearest(field, row or ())}{hint}",
        )
    return row[field]


def is_missing(value: object) -> bool:
    """True if a field says nothing: null, or NaN, which tables write for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def null_words(n_null: int, field: str | None) -> tuple[str, ...]:
    """Words on records that are left out since their text is missing."""
    records = f"{n_null} record{'s' if n_null > 1 else ''}"
    return (f"{records} whose {field!r} is null left out",) if n_null else ()


def whole_row_words(rows: Sequence[Mapping[str, object] | None]) -> tuple[str, ...]:
    """Words on records that are read whole, names of fields included; () if none."""
    first = next((row for row in rows if row is not None), None)
    if first is None:
        return ()
    return (
        f"each whole row is a text (it has: {', '.join(first)}); choose with --text",
    )


def text_of_field(field: str, row: Mapping[str, object] | None, where: str) -> str:
    """The text of one field, or of `a.b[0]` in it; numbers and lists as JSON."""
    text = text_if_any(field, row, where)
    if text is None:
        raise InputError(
            f"{where}: field {field!r} is null",
            hint='leave out the record, or write "" for an empty text',
        )
    return text


def text_if_any(field: str, row: Mapping[str, object] | None, where: str) -> str | None:
    """`text_of_field`, but None where the value is missing; errors likewise."""
    if row is None:
        raise InputError(
            f"{where}: no field {field!r} (the example is plain text)",
            hint="leave out --text to use the whole line",
        )
    value = row[field] if field in row else _value_inside(field, row, where)
    if is_missing(value):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value_inside(path: str, row: Mapping[str, object], where: str) -> object:
    """The value at `a.b[0]`, for a path that is not itself the name of a field."""
    value: Any = row
    passed = ""
    for step, index in _STEPS.findall(path) or [(path, "")]:
        if is_missing(value):
            return None
        if isinstance(value, Mapping) and step in value:
            value = value[step]
            passed += f".{step}" if passed else step
        elif isinstance(value, list) and index and int(index) < len(value):
            value = value[int(index)]
            passed += f"[{index}]"
        elif isinstance(value, list) and index:
            n = len(value)
            has_range = f"{n} values, {passed}[0] to [{n - 1}]" if n else "no value"
            raise InputError(
                f"{where}: no {passed}[{index}] ({passed} has {has_range})",
                hint="name an index that every record has",
            )
        else:
            inside = isinstance(value, Mapping) and value is not row
            has = [f"{passed}.{name}" for name in value] if inside else list(row)
            raise InputError(
                f"{where}: no field {path!r} (it has: {', '.join(has)})",
                hint=f"{nearest(path, has)}name a field that every record has",
            )
    return value


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


def rows_place(path: pathlib.Path, text: str) -> tuple[int, tuple[str, ...]]:
    """Where the array of a file's rows starts, and words on what is read of an object.

    The file is one array, or one object of which one value is an array of objects or
    of strings: BIG-Bench Hard's files have `canary` and `examples`.
    """
    start = len(text) - len(text.lstrip())
    try:
        if text[start : start + 1] not in ("[", "{"):
            raise json.JSONDecodeError("expected an array", text, start)
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        line = f":{e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
        raise InputError(
            f"{path}{line}: not a JSON array ({json_fault(e)})",
            hint=_ROWS,
        ) from e
    if not isinstance(value, dict):
        return start, ()
    keys = _keys_of_rows(value)
    if len(keys) != 1:
        found = f"{len(keys)} arrays of rows: {', '.join(keys)}"
        if not keys:
            found = f"no array of rows (it has: {', '.join(value) or 'nothing'})"
        raise InputError(
            f"{path}: a JSON object with {found}",
            hint="write one of them to a .json file of its own" if keys else _ROWS,
        )
    others = ", ".join(key for key in value if key != keys[0])
    words = f"rows are those of {keys[0]!r}" + (f"; left out: {others}" * bool(others))
    return json_span(text, (keys[0],))[0], (words,)


def holds_rows(text: str) -> bool:
    """True if JSON is one array, or one object over several lines: a line is a row."""
    text = text.strip()
    if text.startswith("["):
        return True
    try:
        return "\n" in text and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _keys_of_rows(value: Mapping[str, object]) -> list[str]:
    return [
        key
        for key, rows in value.items()
        if isinstance(rows, list) and set(map(type, rows)) in ({dict}, {str})
    ]


def json_fault(e: Exception) -> str:
    """Message and column; very long numbers and very deep values have no column."""
    return (
        f"{e.msg}, column {e.colno}" if isinstance(e, json.JSONDecodeError) else str(e)
    )


def _skip_space(raw: str, place: int) -> int:
    while place < len(raw) and raw[place] in " \t\r\n":
        place += 1
    return place
