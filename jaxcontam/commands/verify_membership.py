"""A membership report against its `texts.jsonl`: judged again, without a model."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.commands.membership_judged import Judged, Table, judged
from jaxcontam.commands.membership_texts import RunTexts
from jaxcontam.commands.verify_texts import checked_rows
from jaxcontam.errors import InputError
from jaxcontam.report.document import REPORT_NAME
from jaxcontam.report.texts import TEXTS_NAME, reference_column, score_columns

# Sums in another version of NumPy, and trees and regressions in another one of
# scikit-learn, may differ in the last digits; a difference of AUCs may be near 0.
_RTOL, _ATOL = 1e-6, 1e-9

UNREADABLE = (TypeError, ValueError, KeyError, IndexError, ArithmeticError)
"""What fields of another type, or rows of another shape, make judging raise."""


def verify_membership(
    directory: Path, document: Mapping[str, Any]
) -> tuple[list[str], int]:
    """Check digests, then judge the scores again and compare every number and verdict.

    Returns:
        What differs, one line each, and the number of results that were judged again.

    Raises:
        InputError: If the folder has no readable texts.jsonl.
    """
    rows, faults = checked_rows(directory, document)
    try:
        run, again = judged_again(document, rows)
        if run.fingerprint != document["study"]["fingerprint"]:
            faults.append(f"{TEXTS_NAME}: not the texts and sides of the report")
        faults += differences("results", document["results"], again.results)
        faults += differences("blind", document.get("blind", []), again.blind)
        faults += differences(
            "thresholds", document.get("thresholds", []), again.thresholds
        )
        sweep = None if again.sweep is None else dataclasses.asdict(again.sweep)
        if not _same(document["study"].get("sweep"), sweep):
            faults.append(f"{REPORT_NAME}: sweep is not {sweep}")
        for key, values in (
            ("p_value", again.p_values),
            ("p_adjusted", again.p_adjusted),
        ):
            faults += _text_differences(key, rows, values)
    except InputError as e:
        faults.append(f"{TEXTS_NAME}: cannot be judged ({e})")
        return faults, 0
    except UNREADABLE as e:
        faults.append(f"{REPORT_NAME}: not a membership report ({e!r})")
        return faults, 0
    return faults, len(again.results)


def judged_again(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[RunTexts, Judged]:
    """What the rows of `texts.jsonl` say under the settings of a report."""
    study = document["study"]
    run = RunTexts(
        name=study["name"],
        texts=tuple(row["text"] for row in rows),
        roles=tuple(row["role"] for row in rows),
        clusters=tuple(row["cluster"] for row in rows)
        if "cluster" in rows[0]
        else None,
        sources=tuple(row["source"] for row in rows),
    )
    columns = score_columns(rows)
    again = judged(
        run,
        Table(
            tuple(columns),
            np.stack(list(columns.values()), axis=1),
            reference_column(rows),
        ),
        np.array([row["left_out"] for row in rows], bool),
        primary=study["primary"],
        fprs=tuple(study["fprs"]),
        convention=study["convention"],
        seed=document["seed"],
    )
    return run, again


def differences(
    name: str, stored: Sequence[Mapping[str, Any]], again: Sequence[Any]
) -> list[str]:
    """Fields of stored rows that differ from those of results, one line each.

    Args:
        name: Of the list in the report.
        stored: Its rows.
        again: Result dataclasses.
    """
    if len(stored) != len(again):
        return [f"{name}: {len(stored)} rows, {len(again)} when judged again"]
    return [
        f"{name}[{i}].{key}: {row.get(key)!r}, {value!r} when judged again"
        for i, (row, one) in enumerate(zip(stored, again, strict=True))
        # The setting is a word about the method, and follows from no score.
        for key, value in dataclasses.asdict(one).items()
        if key != "setting" and not _same(row.get(key), value)
    ]


def _text_differences(
    key: str, rows: Sequence[Mapping[str, Any]], values_N: np.ndarray | None
) -> list[str]:
    if values_N is None:
        return [
            f"{TEXTS_NAME}: text {row['id']}: {key} without a pool"
            for row in rows
            if row.get(key) is not None
        ]
    return [
        f"{TEXTS_NAME}: text {row['id']}: {key} {row.get(key)!r}, {value!r} again"
        for row, value in zip(rows, values_N.tolist(), strict=True)
        if not _same(row.get(key), None if math.isnan(value) else value)
    ]


def _same(stored: Any, again: Any) -> bool:
    if isinstance(again, Mapping):
        return isinstance(stored, Mapping) and all(
            _same(stored.get(key), value) for key, value in again.items()
        )
    if isinstance(again, tuple | list):
        return (
            isinstance(stored, list | tuple)
            and len(stored) == len(again)
            and all(map(_same, stored, again))
        )
    if isinstance(again, float) and isinstance(stored, int | float):
        return math.isclose(stored, again, rel_tol=_RTOL, abs_tol=_ATOL)
    return type(stored) is type(again) and stored == again
