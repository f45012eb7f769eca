"""A replication report against its `texts.jsonl`: judged again, without a model."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.commands.replicate_partition import (
    CONTROL,
    HUMAN,
    LLM,
    LOCAL,
    PARTITION,
    Partition,
    arm_from_rows,
    rouge_overlap,
)
from jaxcontam.commands.verify_texts import checked_rows
from jaxcontam.methods.replication.judges import Judged
from jaxcontam.methods.replication.local_judge import judge_version
from jaxcontam.methods.replication.people import People
from jaxcontam.methods.replication.split import instances_fingerprint
from jaxcontam.report.document import REPORT_NAME
from jaxcontam.report.replication import measure_and_test
from jaxcontam.report.texts import ASKED, TEXTS_NAME
from jaxcontam.results.replication import COMPARISONS

# Sums in another version of NumPy may differ in the last digits.
_TOLERANCE = 1e-9
# Words about the run, which follow from no number.
_NOT_CHECKED = ("warnings",)
_UNREADABLE = (TypeError, ValueError, KeyError, IndexError, ArithmeticError)

Row = Mapping[str, Any]


def verify_replication(directory: Path, document: Row) -> tuple[list[str], int]:
    """Check digests, then measure, judge and test every completion again.

    Returns:
        What differs, one line each, and the number of results that were recomputed.

    Raises:
        InputError: If the folder has no readable texts.jsonl.
    """
    texts, faults = checked_rows(directory, document, ASKED)
    try:
        rows = document["results"]
        own = [row for row in rows if row["method"] not in COMPARISONS]
        again, wrong = _again(texts, own, document["seed"])
        faults += wrong
        if [row["method"] for row in own] != [one.method for one in again]:
            faults.append(f"{REPORT_NAME}: other judges or tests than its texts give")
        else:
            for r, (row, one) in enumerate(zip(own, again, strict=True)):
                faults += [
                    f"results[{r}].{key}: {row.get(key)!r}, {value!r} when judged again"
                    for key, value in dataclasses.asdict(one).items()
                    if key not in _NOT_CHECKED and not _same(row.get(key), value)
                ]
        return faults, len(own)
    except _UNREADABLE as e:
        return [*faults, f"{REPORT_NAME}: not a replication report ({e!r})"], 0


def _again(texts: Sequence[Row], rows: Sequence[Row], seed: int):
    """Results from the texts, and what in the texts does not follow from others."""
    faults = []
    in_question = [text for text in texts if text["arm"] == PARTITION]
    of_control = [text for text in texts if text["arm"] == CONTROL]
    arm = arm_from_rows(in_question)
    control = arm_from_rows(of_control) if of_control else None
    first = rows[0]
    if instances_fingerprint(arm.instances) != first["fingerprint"]:
        faults.append(f"{REPORT_NAME}: its fingerprint is not that of {TEXTS_NAME}")
    overlaps = {}
    for row in rows:
        if row["method"] in (LOCAL, LLM, HUMAN):
            continue
        name, _ = measure_and_test(row["method"])
        overlaps[name] = tuple(
            np.array([_float(text[f"{name}_{which}"]) for text in in_question])
            for which in ("guided", "general")
        )
    rouge = rouge_overlap(arm)
    if rouge is not None and "rouge_l" in overlaps:
        for which, stored, measured in zip(
            ("guided", "general"), overlaps["rouge_l"], rouge, strict=True
        ):
            bad = ~np.isclose(stored, measured, rtol=0, atol=1e-9, equal_nan=True)
            faults += [
                f"{TEXTS_NAME}: instance {arm.instances[i].index}: rouge_l_{which} is "
                "not that of its completion"
                for i in np.flatnonzero(bad)
            ]
    by_method = {row["method"]: row for row in rows}
    llm = by_method.get(LLM)
    humans = None
    if HUMAN in by_method:
        humans = People(
            labels=(tuple(text[HUMAN] for text in in_question),),
            source=by_method[HUMAN]["judge_version"],
        )
    control_bleurt = None
    if of_control and "bleurt_guided" in of_control[0]:
        control_bleurt = np.array(
            [_float(text["bleurt_guided"]) for text in of_control]
        )
    partition = Partition(
        name=first["benchmark"],
        fingerprint=first["fingerprint"],
        prompt_version=first["prompt_version"],
        arm=arm,
        control=control,
        overlaps=overlaps,
        has_bleurt_20=by_method[LOCAL]["judge_version"]
        == judge_version(with_bleurt=True),
        control_bleurt=control_bleurt,
        llm=None
        if llm is None
        else (_judged(in_question, llm, "n"), llm["judge_version"]),
        llm_control=_judged(of_control, llm, "n_control")
        if llm is not None and of_control and LLM in of_control[0]
        else None,
        llm_decides=llm is not None and llm["primary"],
        humans=humans,
    )
    for text, again in zip([*in_question, *of_control], partition.rows(), strict=True):
        if text[LOCAL] != again[LOCAL]:
            faults.append(
                f"{TEXTS_NAME}: {text['arm']} {text['id']}: {LOCAL} is not that of its "
                "completion"
            )
    return partition.results(seed=seed), faults


def _judged(texts: Sequence[Row], row: Row, n: str) -> Judged:
    return Judged(
        labels=tuple(text[LLM] for text in texts),
        n_unparsed=row[f"{n}_unparsed"],
        n_refused=row[f"{n}_refused"],
    )


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _same(stored: Any, again: Any) -> bool:
    if isinstance(again, float) and isinstance(stored, int | float):
        return math.isclose(stored, again, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(stored) is type(again) and stored == again
