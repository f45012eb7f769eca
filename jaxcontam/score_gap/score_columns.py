"""Scores that somebody else computed: CSV files with an item a line."""

import math
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.tables import is_number
from jaxcontam.data.templates import field_of
from jaxcontam.errors import InputError, unknown_name

PUBLISHED, OTHER = "published", "other"
"""Sides, and columns of a file that holds one model's scores on both."""

ITEM_COLUMNS = ("item", "id", "item_id", "question_id")
"""Names of the column of items, the first one that stands there."""

Scores = dict[str, float]
"""Item -> score in [0, 1]."""


def read_columns(path: Path, models: Sequence[str]) -> list[Scores]:
    """Scores of models on the items of one .csv file, a column a model."""
    rows, named = _rows(path)
    for model in models:
        if model not in rows[0]:
            known = [name for name in rows[0] if name != named]
            raise unknown_name(f"column of {path}:", model, known)
    return [_scores(path, rows, named, model) for model in models]


def read_model(path: Path) -> tuple[Scores, Scores]:
    """Scores of one model on both sides: columns `item`, `published`, `other`.

    An item that stands on one side alone has an empty cell on the other.
    """
    published, other = read_columns(path, (PUBLISHED, OTHER))
    return published, other


def read_groups(path: Path, field: str) -> dict[str, str]:
    """Value of a column for each item."""
    rows, named = _rows(path)
    hint = "--group-field must name a column"
    return {
        str(row[named]): str(field_of(row, field, str(path), hint=hint)) for row in rows
    }


def _rows(path: Path) -> tuple[list[dict[str, object]], str]:
    """Rows of a file, and its column of items."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise InputError(
            f"{path}: not a .csv or .tsv file of scores", hint="see --scores"
        )
    rows = [row for row in load_benchmark(path).rows if row is not None]
    name = next((name for name in ITEM_COLUMNS if name in rows[0]), None)
    if name is None:
        has = ", ".join(rows[0])
        if any(map(is_number, rows[0])):
            raise InputError(
                f"{path}:1: the first row has no names of columns, but data ({has})",
                hint="put a line above it: item, and a name for each model",
            )
        raise InputError(
            f"{path}: no column of items (it has: {has})", hint="call it item"
        )
    seen: set[object] = set()
    for row in rows:
        if row[name] in seen:
            raise InputError(f"{path}: item {row[name]!r} stands twice")
        seen.add(row[name])
    return rows, name


def _scores(
    path: Path, rows: Sequence[dict[str, object]], named: str, model: str
) -> Scores:
    found = {}
    for row in rows:
        word = str(row[model]).strip()
        if not word:
            continue
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            raise InputError(
                f"{path}: item {row[named]!r}: {model}: no score in [0, 1] ({word!r})",
                hint="1 is right, 0 is wrong; divide percentages by 100",
            )
        found[str(row[named])] = value
    return found
