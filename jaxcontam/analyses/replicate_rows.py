"""The completions of a partition again, from the rows of `texts.jsonl`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.analyses.replicate_judging import (
    ARMS,
    CONTROL,
    HUMAN,
    JUDGES,
    LLM,
    LOCAL,
    OF_REFERENCE,
    PARTITION,
    Arm,
    Partition,
    rouge_overlap,
)
from jaxcontam.methods.replication.instance import Completion, Instance
from jaxcontam.methods.replication.judges import Judged, People
from jaxcontam.methods.replication.local_judge import judge_version
from jaxcontam.methods.replication.split import instances_fingerprint
from jaxcontam.report.replication import measure_and_test


def arm_from_rows(rows: Sequence[Mapping[str, Any]]) -> Arm:
    """Undo `Partition.rows` for the rows of one arm.

    Raises:
        KeyError: If a field is missing.
    """
    return Arm(
        instances=tuple(
            Instance(
                index=row["id"],
                first_piece=row["first_piece"],
                second_piece=row["second_piece"],
                label=row["label"],
                cut=row["cut"],
                group=row.get("group"),
            )
            for row in rows
        ),
        guided=tuple(
            Completion(text=row["guided"], refused=row["guided_refused"])
            for row in rows
        ),
        general=None
        if not rows or "general" not in rows[0]
        else tuple(
            Completion(text=row["general"], refused=row["general_refused"])
            for row in rows
        ),
    )


def partition_from_rows(
    stated: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Partition:
    """Undo `Partition.rows`; what can be measured without a model is measured again.

    Args:
        stated: Rows of the report, those of further methods left out.
        rows: Rows of `texts.jsonl`, those of further methods among them.

    Raises:
        KeyError: If a field, or the row of the local judge, is missing.
    """
    by_method = {row["method"]: row for row in stated}
    local, llm, human = by_method[LOCAL], by_method.get(LLM), by_method.get(HUMAN)
    of_arm = {
        name: own
        for name in ARMS
        if (own := [row for row in rows if row["arm"] == name])
    }
    in_question = of_arm[PARTITION]
    arms = {name: arm_from_rows(own) for name, own in of_arm.items()}
    overlaps = {
        name: (
            _floats(in_question, f"{name}_guided"),
            _floats(in_question, f"{name}_general"),
        )
        for name in (measure_and_test(m)[0] for m in by_method if m not in JUDGES)
    }
    rouge = rouge_overlap(arms[PARTITION])
    if rouge is not None and "rouge_l" in overlaps:
        overlaps["rouge_l"] = rouge
    bleurt_20 = {}
    if local["judge_version"] == judge_version(with_bleurt=True):
        bleurt_20 = {
            name: _floats(own, "bleurt_guided") for name, own in of_arm.items()
        }
    judged = {}
    if llm is not None:
        judged = {
            name: _judged(name, own, llm)
            for name, own in of_arm.items()
            if LLM in own[0]
        }
    humans = None
    if human is not None:
        labels = (tuple(row[HUMAN] for row in in_question),)
        humans = People(labels=labels, source=human["judge_version"])
    return Partition(
        name=local["benchmark"],
        fingerprint=instances_fingerprint(arms[PARTITION].instances),
        prompt_version=local["prompt_version"],
        arms=arms,
        group_field=local.get("group_field"),
        overlaps=overlaps,
        bleurt_20=bleurt_20,
        llm=judged,
        llm_version=None if llm is None else llm["judge_version"],
        llm_decides=llm is not None and llm["primary"],
        humans=humans,
    )


def _judged(
    name: str, rows: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]
) -> Judged:
    """Labels of an arm that stand in its rows, and the report's counts of it."""
    labels = tuple(row[LLM] for row in rows)
    if name in (PARTITION, CONTROL):
        n = "n" if name == PARTITION else "n_control"
        return Judged(
            labels=labels,
            n_unparsed=stated[f"{n}_unparsed"],
            n_refused=stated[f"{n}_refused"],
        )
    # Both arms of a reference share one count.
    is_first = name == OF_REFERENCE[PARTITION]
    both = stated.get("reference") or {}
    return Judged(labels=labels, n_refused=both.get("n_refused", 0) * is_first)


def _floats(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows])
