"""Annotations of result dataclasses: from JSON back to them, and as a JSON Schema."""

import contextlib
import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser

from jaxcontam.errors import InputError

T = TypeVar("T")


def read_result(
    kind: type[T], row: object, where: str = "row", *, more: bool = False
) -> T:
    """Build a dataclass from a JSON object by its annotations.

    Fields that the object lacks take their defaults. A dataclass without a default
    whose name the object lacks is read from the same object: rows of order tests hold
    the fields of `numbers` beside their own. A field that may be one of several
    dataclasses becomes the one whose fields are those of the object.

    Args:
        kind: A dataclass of numbers, words, tuples, dicts with words as keys, and
            dataclasses of these.
        row: As `json.loads` gives it.
        where: Place of the object, for messages: `results[0]`.
        more: Pass over names that are no fields; else they are refused.

    Raises:
        InputError: If a field is missing, unknown or of another type, or a number is
            not finite; names its place.
    """
    if not isinstance(row, Mapping):
        raise _no(where, "an object", row)
    unknown = {str(name) for name in row} - _names(kind, row)
    if unknown and not more:
        raise InputError(f"{where}: unknown field {min(unknown)!r}")
    values = {}
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint = _hints(kind)[field.name]
        if field.name in row:
            values[field.name] = _value(hint, row[field.name], f"{where}.{field.name}")
        elif _is_flat(field, hint):
            values[field.name] = read_result(hint, row, where, more=True)
        elif not _has_default(field):
            raise InputError(f"{where}: no {field.name}")
    return kind(**values)


def _value(hint: Any, value: object, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return value
    if dataclasses.is_dataclass(hint):
        return read_result(hint, value, where)  # pyright: ignore[reportArgumentType]
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where)
    if origin is Literal:
        if any(type(value) is type(one) and value == one for one in args):
            return value
        raise _no(where, " or ".join(map(repr, args)), value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _no(where, "a list", value)
        kinds = args
        if args[1:] == (...,):
            kinds = args[:1] * len(value)
        elif len(args) != len(value):
            raise _no(where, f"{len(args)} values", value)
        pairs = zip(kinds, value, strict=True)
        return tuple(
            _value(one, v, f"{where}[{i}]") for i, (one, v) in enumerate(pairs)
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _no(where, "an object", value)
        return {key: _value(args[1], v, f"{where}.{key}") for key, v in value.items()}
    if hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                if math.isfinite(number := float(value)):
                    return number
        raise _no(where, "a finite number", value)
    if type(value) is hint:
        return value
    words = {int: "a whole number", str: "a word", bool: "true or false"}
    raise _no(where, words.get(hint, "null"), value)


def _one_of(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """A value of the first type that takes it; an object's fields choose its type."""
    if value is None and types.NoneType in kinds:
        return None
    classes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    if classes and isinstance(value, Mapping):
        nearest = min(classes, key=lambda kind: len(_names(kind, value) ^ {*value}))
        return read_result(nearest, value, where)  # pyright: ignore[reportArgumentType]
    *others, last = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others:
        try:
            return _value(kind, value, where)
        except InputError:
            continue
    return _value(last, value, where)


def _names(kind: Any, row: Mapping[Any, object]) -> set[str]:
    """Names that an object of a kind may hold, those of a flat field included."""
    names = set()
    for field in dataclasses.fields(kind):
        hint = _hints(kind)[field.name]
        flat = field.name not in row and _is_flat(field, hint)
        names |= _names(hint, row) if flat else {field.name}
    return names


def _is_flat(field: dataclasses.Field, hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) and not _has_default(field)


def _has_default(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def json_schema(kind: type) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `read_result` takes for a dataclass.

    Descriptions are the `Attributes` of its docstring. Each dataclass within stands
    once, in `$defs`.
    """
    classes: dict[str, Any] = {}
    own = _object_schema(kind, classes)
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": kind.__name__, **own, "$defs": classes}


def _object_schema(kind: Any, classes: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    # A class says of its own fields alone.
    abouts = [docstring_parser.parse(one.__doc__ or "") for one in kind.__mro__[-2::-1]]
    said = {one.arg_name: one.description for about in abouts for one in about.params}
    for field in dataclasses.fields(kind):
        hint = _hints(kind)[field.name]
        if _is_flat(field, hint):
            flat = _object_schema(hint, classes)
            properties |= flat["properties"]
            required += flat["required"]
            continue
        properties[field.name] = _schema(hint, classes)
        if words := said.get(field.name):
            properties[field.name]["description"] = " ".join(words.split())
        if not _has_default(field):
            required.append(field.name)
    return {
        "type": "object",
        "description": abouts[-1].short_description or "",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_TYPES = {
    float: "number",
    int: "integer",
    str: "string",
    bool: "boolean",
    types.NoneType: "null",
}


def _schema(hint: Any, classes: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return {}
    if dataclasses.is_dataclass(hint):
        name = hint.__name__  # pyright: ignore[reportAttributeAccessIssue]
        if name not in classes:
            # Known before it is filled, where it holds its own kind.
            classes[name] = {}
            classes[name] |= _object_schema(hint, classes)
        return {"$ref": f"#/$defs/{name}"}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, classes) for one in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple and args[1:] == (...,):
        return {"type": "array", "items": _schema(args[0], classes)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], classes)}
    return {"type": _TYPES[hint]}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _no(where: str, expected: str, value: object) -> InputError:
    return InputError(f"{where}: expected {expected}, got {value!r:.80}")
