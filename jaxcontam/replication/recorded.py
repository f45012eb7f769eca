"""Completions made elsewhere: the layout of the files that came with the paper.

A row holds both pieces, or the two sentences of a pair, and what the model wrote with
either instruction; scores and judgements may stand beside.

Dimension key
    N  instances
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import check_characters, parse_records, read_text
from jaxcontam.data.tables import Record
from jaxcontam.data.templates import field_of, is_missing
from jaxcontam.errors import InputError
from jaxcontam.replication.instance import Completion, Instance
from jaxcontam.replication.judges import ByPerson, Judged, Judgement, judgement_of
from jaxcontam.replication.llm_judge import parse_judgement
from jaxcontam.replication.split import sentence_starts
from jaxcontam.terminal import printable

_PIECES = (("first_piece", "second_piece"), ("sentence1", "sentence2"))
_COMPLETION = "generated_{}_completion"
_SCORES = {"rouge_l": "rouge_score_for_{}_completion"}
_SCORES["bleurt"] = "bleurt_score_for_{}_completion"
_ARMS, _REFERENCE = ("guided", "general"), "reference"
_MODEL_JUDGE = "gpt4_icl_evaluation"
_PEOPLE = ("annotator1_evaluation", "annotator2_evaluation")
_KNOWN = {
    *(name for pair in _PIECES for name in pair),
    *(_COMPLETION.format(arm) for arm in (*_ARMS, _REFERENCE)),
    *(column.format(arm) for column in _SCORES.values() for arm in _ARMS),
    *("text", "label", _MODEL_JUDGE, *_PEOPLE),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A partition with completions, scores and labels; None where the file has none.

    Scores, guided and general by measure, and labels may have empty cells: nan, None.
    """

    name: str
    instances: tuple[Instance, ...]
    guided: tuple[Completion, ...]
    general: tuple[Completion, ...] | None
    reference: tuple[Completion, ...] | None
    scores: Mapping[str, tuple[np.ndarray, np.ndarray]]
    model_judge: Judged | None
    people: ByPerson
    others: tuple[Mapping[str, object], ...]


def read_recorded(path: Path, *, group_field: str | None = None) -> Recorded:
    """Read one partition; `group_field` is the column of instances' sources.

    Source:
        The results that came with Golchin and Surdeanu, arXiv:2308.08493.
    """
    records = parse_records(path, read_text(path))
    if not records:
        raise InputError(f"{path}: no rows")
    check_characters(records)
    columns = _columns(records[0])
    pieces = next((pair for pair in _PIECES if set(pair) <= columns), None)
    if pieces is None or _COMPLETION.format("guided") not in columns:
        raise InputError(
            f"{path}: no file of completions (columns: {', '.join(sorted(columns))})",
            hint="needs first_piece and second_piece (or sentence1 and sentence2) and "
            "generated_guided_completion; generated_general_completion to compare",
        )
    completions = {
        arm: tuple(
            Completion(text=_cell(record, _COMPLETION.format(arm)))
            for record in records
        )
        for arm in (*_ARMS, _REFERENCE)
        if _COMPLETION.format(arm) in columns
    }
    scores = {
        measure: (
            _numbers(records, column.format("guided")),
            _numbers(records, column.format("general")),
        )
        for measure, column in _SCORES.items()
        if {column.format(arm) for arm in _ARMS} <= columns
    }
    judged = None
    if _MODEL_JUDGE in columns:
        labels: tuple[Judgement | None, ...] = tuple(
            parse_judgement(_cell(record, _MODEL_JUDGE)) for record in records
        )
        judged = Judged(labels=labels, n_unparsed=labels.count(None))
    return Recorded(
        name=printable(path.stem),
        instances=tuple(
            _instance(
                record,
                i,
                *pieces,
                has_label="label" in columns,
                group=None if group_field is None else _group(record, group_field),
            )
            for i, record in enumerate(records)
        ),
        guided=completions["guided"],
        general=completions.get("general"),
        reference=completions.get(_REFERENCE),
        scores=scores,
        model_judge=judged,
        people=tuple(
            tuple(_label(record, column) for record in records)
            for column in _PEOPLE
            if column in columns
        ),
        others=tuple(
            {name: value for name, value in (row or {}).items() if name not in _KNOWN}
            for _, _, row in records
        ),
    )


def _columns(record: Record) -> set[str]:
    where, _, row = record
    if row is None:
        raise InputError(f"{where}: no columns", hint="expected a table of completions")
    return set(row)


def _cell(record: Record, column: str) -> str:
    where, _, row = record
    value = row.get(column) if row is not None else None
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r}: no text")
    return value


def _instance(
    record: Record,
    index: int,
    first: str,
    second: str,
    *,
    has_label: bool,
    group: str | None,
) -> Instance:
    pieces = [_cell(record, column).strip() for column in (first, second)]
    for piece, column in zip(pieces, (first, second), strict=True):
        if not piece:
            raise InputError(f"{record[0]}: column {column!r}: empty")
    before, after = pieces
    is_whole = len(before) + 1 in sentence_starts(f"{before} {after}")
    return Instance(
        index=index,
        first_piece=before,
        second_piece=after,
        label=_label_text(record) if has_label else None,
        cut="pair" if first == "sentence1" else "sentence" if is_whole else "inside",
        group=group,
    )


def _group(record: Record, field: str) -> str:
    where, _, row = record
    value = field_of(row, field, where, hint="--group-field must name a column")
    if is_missing(value):
        raise InputError(
            f"{where}: {field} is null",
            hint="give each row a value: what belongs to no other its own",
        )
    return str(value)


def _label_text(record: Record) -> str | None:
    """A label as text, whatever JSON made it; None for an empty cell."""
    value = record[2].get("label") if record[2] is not None else None
    return None if is_missing(value) or value == "" else str(value)


def _numbers(records: list[Record], column: str) -> np.ndarray:
    """(N,) float64; nan for an empty cell."""
    numbers = []
    for record in records:
        _, _, row = record
        cell = row[column] if row is not None and column in row else None
        try:
            number = math.nan if cell in (None, "") else float(str(cell))
        except ValueError:
            number = math.inf
        if math.isinf(number) or (math.isnan(number) and cell not in (None, "")):
            raise InputError(f"{record[0]}: column {column!r}: no number ({cell!r})")
        numbers.append(number)
    return np.array(numbers)


def _label(record: Record, column: str) -> Judgement | None:
    cell = _cell(record, column)
    if not cell.strip():
        return None
    label = judgement_of(cell)
    if label is None:
        raise InputError(
            f"{record[0]}: column {column!r}: unknown judgement {cell!r}",
            hint="one of: Yes (exact match), Yes (near-exact match), No",
        )
    return label
