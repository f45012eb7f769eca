"""Fields of a file, and numbers in its texts, that may tell its order."""

import dataclasses
import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from jaxcontam.stats.pretests.null import value_codes

# Longer heads in common are a shared passage, not a way of asking.
_HEAD_CHARACTERS = 64

_DIGITS = re.compile(r"([0-9]{1,18})")
_NUMBER = re.compile(r"\s*[-+]?[0-9]{1,18}(\.[0-9]{1,18})?\s*")


def columns(rows: Sequence[Mapping[str, object] | None]) -> dict[str, list[object]]:
    """Every field with its value in each example, None where it lacks."""
    names = dict.fromkeys(name for row in rows if row is not None for name in row)
    return {
        name: [None if row is None else row.get(name) for row in rows] for name in names
    }


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of the file, and what it can say about the order.

    A label has 2 to n/4 distinct values, which could group the file; the values of an
    id are short, most of them with a digit.
    """

    name: str
    values: Sequence[object]
    n_distinct: int
    is_label: bool
    is_id: bool
    is_read: bool
    is_text: bool


def look_at(
    fields: Mapping[str, Sequence[object]], texts: Sequence[str]
) -> list[Field]:
    """Fields with more than one value."""
    counts = {name: len(set(map(repr, values))) for name, values in fields.items()}
    return [
        Field(
            name=name,
            values=values,
            n_distinct=counts[name],
            is_label=counts[name] <= len(values) / 4,
            is_id=_are_ids(values),
            is_read=_is_read(values, texts),
            is_text=list(values) == list(texts),
        )
        for name, values in fields.items()
        if counts[name] >= 2
    ]


def numbers(values: Sequence[object]) -> np.ndarray | None:
    """`values_N` as float64, nan where missing; None if a value is no number."""
    found: list[float] = []
    for value in values:
        if value is None:
            found.append(math.nan)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found.append(float(value))
            except OverflowError:
                # A JSON integer may exceed every float.
                found.append(math.inf if value > 0 else -math.inf)
        elif isinstance(value, str) and _NUMBER.fullmatch(value):
            found.append(float(value))
        else:
            return None
    return np.array(found)


def natural_order(values: Sequence[object]) -> np.ndarray:
    """`ranks_N`: places in sorted order, where item 9 comes before item 10."""
    if (found := numbers(values)) is not None:
        return found
    keys = [None if value is None else _natural_key(str(value)) for value in values]
    rank = {key: i for i, key in enumerate(sorted({k for k in keys if k is not None}))}
    return np.array([math.nan if key is None else rank[key] for key in keys])


def first_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """The first integer of each text, nan without one; None if few have one."""
    found = [_DIGITS.search(text) for text in texts]
    if sum(match is not None for match in found) <= len(texts) / 2:
        return None
    return np.array([float(match[0]) if match else math.nan for match in found])


def without(texts: Sequence[str], ids: Sequence[Sequence[object]]) -> list[str]:
    """The texts less the values of fields that stand in them."""
    stripped = list(texts)
    for values in ids:
        for i, value in enumerate(values):
            for word in _written(value) if value not in (None, "") else ():
                stripped[i] = stripped[i].replace(word, "")
    return stripped


def template_without_ids(fields: Sequence[Field]) -> str:
    """Flags that make texts of the fields in them but ids, or "" if none is left."""
    texts = [f for f in fields if f.is_read and not f.is_id and not f.is_text]
    # These mean something else in a template.
    names = [f.name for f in texts if not any(c in "{}!:[]." for c in f.name)]
    if len(names) == 1:
        return shlex.join(["--text", names[0]])
    template = r"\n".join(f"{{{name}}}" for name in names)
    return shlex.join(["--text", template]) if names else ""


def shared_heads(texts: Sequence[str]) -> np.ndarray:
    """`codes_N`: equal for texts that begin with the same 64 characters.

    They are counted after what all texts begin with; shorter texts share nothing.
    """
    # What the first and the last text in sorted order begin with, all begin with.
    ends = zip(min(texts), max(texts), strict=False)
    common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], ends)))
    heads = [text[common : common + _HEAD_CHARACTERS] for text in texts]
    return value_codes(
        [head if len(head) == _HEAD_CHARACTERS else i for i, head in enumerate(heads)]
    )


def _is_read(values: Sequence[object], texts: Sequence[str]) -> bool:
    # 5,000 examples of a long file.
    step = math.ceil(len(texts) / 5_000) or 1
    pairs = zip(values[::step], texts[::step], strict=True)
    there = [pair for pair in pairs if pair[0] not in (None, "")]
    n_in = 0
    for value, text in there:
        words = _written(value)
        if any(word.isdecimal() for word in words):
            # Not 7 in 1997.
            n_in += not words.isdisjoint(_DIGITS.findall(text))
        else:
            n_in += any(word in text for word in words)
    return bool(there) and n_in >= 0.9 * len(there)


def _are_ids(values: Sequence[object]) -> bool:
    words = [str(value) for value in values if value is not None]
    n_numbered = sum(bool(_DIGITS.search(word)) for word in words)
    # A long value with a digit somewhere is a text.
    return n_numbered > len(values) / 2 and max(map(len, words)) <= 40


def _written(value: object) -> set[str]:
    """A value as a template writes it and as a line of JSON does."""
    import json

    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    words = {plain}
    if isinstance(value, str):
        words.add(json.dumps(value, ensure_ascii=False)[1:-1])
        words.add(json.dumps(value)[1:-1])
    return words


def _natural_key(text: str) -> tuple[str | int, ...]:
    parts = _DIGITS.split(text.casefold())
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts))
