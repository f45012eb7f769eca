"""Texts of examples made from the fields of their records."""

import json
import math
import re
import string
from collections.abc import Mapping
from typing import Any

from jaxcontam.errors import InputError, nearest

_PLACES = "write {question}, {data.question} or {choices[0]}; {{ and }} are braces"
_STEPS = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def fill_template(template: str, row: Mapping[str, object] | None, where: str) -> str:
    r"""Fill `{field}` places of a template; `\n` may be written as two characters.

    A place names a field, or what lies in one: `{data.question}`, `{choices[0]}`.
    """
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
        raise InputError("--template and --text-field exclude each other")
    if any(field is not None for _, field in template_pieces(template)):
        return
    doubled = "{{" in template
    raise InputError(
        f"--template {template!r}: names no field, so all examples would be equal",
        hint="{{ and }} are literal braces: write one of each, as in {question}"
        if doubled
        else _PLACES,
    )


def template_pieces(template: str) -> list[tuple[str, str | None]]:
    """Literal texts of a template, each with the field after it; None for none."""
    try:
        pieces = list(string.Formatter().parse(typed_newlines(template)))
    except ValueError as e:
        raise InputError(f"--template {template!r}: {e}", hint=_PLACES) from e
    for _, field, spec, conversion in pieces:
        if spec or conversion:
            raise InputError(
                f"--template {template!r}: {field!r} has a format",
                hint=_PLACES,
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
    records = f"{n_null} record{'s' * (n_null > 1)}"
    return (f"{records} whose {field!r} is null left out",) if n_null else ()


def text_of_field(field: str, row: Mapping[str, object] | None, where: str) -> str:
    """The text of one field, or of `a.b[0]` in it; numbers and lists as JSON."""
    text = text_if_any(field, row, where)
    if text is None:
        raise InputError(
            f"{where}: field {field!r} is null",
            hint='leave the record out, or write "" for an empty text',
        )
    return text


def text_if_any(field: str, row: Mapping[str, object] | None, where: str) -> str | None:
    """`text_of_field`, but None where the value is missing; errors likewise."""
    if row is None:
        raise InputError(
            f"{where}: no field {field!r} (the example is plain text)",
            hint="leave out --template and --text-field to use the whole line",
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
                hint="name a place that every record has",
            )
        else:
            inside = isinstance(value, Mapping) and value is not row
            has = [f"{passed}.{name}" for name in value] if inside else list(row)
            raise InputError(
                f"{where}: no field {path!r} (it has: {', '.join(has)})",
                hint=f"{nearest(path, has)}name a field that every record has",
            )
    return value
