"""A sheet on which people judge completions without knowing what others say of them.

Guided completions stand on it in a random order, with neither scores nor the labels of
other judges.
"""

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.replication.instance import Completion, Instance
from jaxcontam.replication.judges import Judgement, People, judgement_of
from jaxcontam.terminal import cell_text

ANNOTATORS = ("label_1", "label_2")
"""Columns to fill in, one per person; the second may stay empty."""

_TEXTS = ("reference", "candidate")
_COLUMNS = ("id", *_TEXTS, *ANNOTATORS)
# Spreadsheets take a file without it for one of an older encoding than UTF-8.
_MARK = "\ufeff"
_HINT = "fill in exact, near or no; leave a cell empty to skip it"


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A completion under its name on the sheet."""

    name: str
    place: int
    reference: str
    candidate: str


def sheet_text(
    instances: Sequence[Instance],
    guided: Sequence[Completion],
    *,
    seed: int,
) -> str:
    """The empty sheet as CSV, with the mark of UTF-8 before it."""
    rows = _rows(instances, guided, seed)
    order = np.random.default_rng([seed, len(rows)]).permutation(len(rows))
    buffer = io.StringIO(newline="")
    buffer.write(_MARK)
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    for i in order:
        texts = (rows[i].reference, rows[i].candidate)
        empty = [""] * len(ANNOTATORS)
        writer.writerow([rows[i].name, *map(cell_text, texts), *empty])
    return buffer.getvalue()


def is_filled(path: Path) -> bool:
    """True if somebody wrote a label into a sheet; InputError if it is no sheet."""
    return any(
        cells.get(column, "").strip() for cells in _read(path) for column in ANNOTATORS
    )


def read_sheet(
    path: Path,
    instances: Sequence[Instance],
    guided: Sequence[Completion],
    *,
    seed: int,
) -> People:
    """Read a sheet back, in any order of rows, wholly or partly filled.

    Columns may be split by commas, semicolons or tabs. Gives labels of each person who
    gave one; None where a cell is empty. InputError names a row that is of another run,
    stands twice or beside other texts, or has an unknown label.
    """
    rows = {row.name: row for row in _rows(instances, guided, seed)}
    labels: list[list[Judgement | None]] = [[None] * len(instances) for _ in ANNOTATORS]
    seen: set[str] = set()
    for number, cells in enumerate(_read(path), 2):
        where = f"{path}: row {number}"
        row = rows.get(cells["id"].strip())
        if row is None:
            raise InputError(
                f"{where}: unknown id {cells['id']!r}",
                hint="is the sheet that of another run, model or seed?",
            )
        if row.name in seen:
            raise InputError(f"{where}: id {row.name!r} stands twice")
        seen.add(row.name)
        if any(
            _plain(cells[column]) != _plain(text)
            for column, text in zip(_TEXTS, (row.reference, row.candidate), strict=True)
        ):
            raise InputError(
                f"{where}: other texts than id {row.name!r} had",
                hint="was one column sorted without the others?",
            )
        for person, column in enumerate(ANNOTATORS):
            word = cells.get(column, "").strip()
            if word:
                labels[person][row.place] = _label(where, column, word)
    given = tuple(tuple(of_person) for of_person in labels if any(of_person))
    if not given:
        raise InputError(f"{path}: no label is filled in", hint=_HINT)
    return People(labels=given, source="a sheet that people filled in")


def _rows(
    instances: Sequence[Instance],
    guided: Sequence[Completion],
    seed: int,
) -> list[_Row]:
    found = []
    for place, one in enumerate(guided):
        if one.refused:
            continue
        instance = instances[place]
        reference, candidate = instance.second_piece, one.text.strip()
        key = [seed, place, instance.first_piece, reference, candidate]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        # Digits alone, or 1e5, would be a number to a spreadsheet.
        found.append(_Row("row-" + digest[:12], place, reference, candidate))
    return found


def _read(path: Path) -> list[dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(
            f"{path}: byte {e.start}: not UTF-8", hint="save it as CSV UTF-8"
        ) from e
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=delimiter, restval=""
    )
    missing = [
        name
        for name in ("id", *_TEXTS, ANNOTATORS[0])
        if name not in (reader.fieldnames or ())
    ]
    if missing:
        raise InputError(
            f"{path}: no column {missing[0]!r}",
            hint=f"a sheet has {', '.join(_COLUMNS)}",
        )
    try:
        return [row for row in reader if any(row.values())]
    except csv.Error as e:
        raise InputError(f"{path}: row {reader.line_num}: no CSV ({e})") from e


def _label(where: str, column: str, word: str) -> Judgement:
    label = judgement_of(word)
    if label is None:
        raise InputError(f"{where}: {column}: unknown label {word!r}", hint=_HINT)
    return label


def _plain(text: str) -> str:
    """A text as it is whatever a spreadsheet does to marks and spaces."""
    return " ".join(text.replace("'", "").split())
