"""Completions made elsewhere, judged like those of a run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.analyses.replicate import ReplicationAnalysis
from jaxcontam.analyses.replicate_judging import (
    CONTROL,
    OF_REFERENCE,
    PARTITION,
    Arm,
    OverlapModel,
    Partition,
    human_labels,
    measured,
)
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.methods.replication.control import independence_words
from jaxcontam.methods.replication.judges import People
from jaxcontam.methods.replication.recorded import read_recorded
from jaxcontam.methods.replication.split import instances_fingerprint
from jaxcontam.progress import Bar, silent

_TAKEN_FOR_BLEURT_20 = (
    "the file's BLEURT scores are taken for those of BLEURT-20, for it does not say "
    "which model they are of"
)


def recorded_analysis(
    path: Path,
    *,
    control: Path | None = None,
    group_field: str | None = None,
    measures: Sequence[OverlapModel] = (),
    annotated: Path | None = None,
    seed: int = 0,
    watch: Stopwatch | None = None,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """Read completions, measure them, and judge them by the local judge.

    Where both files have completions of a reference model, they are its.
    """
    watch = watch or Stopwatch()
    recorded = read_recorded(path, group_field=group_field)
    arm = Arm(
        instances=recorded.instances, guided=recorded.guided, general=recorded.general
    )
    other = None
    arms, warnings, bleurt_20 = {PARTITION: arm}, [], {}
    if "bleurt" in recorded.scores:
        bleurt_20[PARTITION] = recorded.scores["bleurt"][0]
    if control is not None:
        other = read_recorded(control, group_field=group_field)
        arms[CONTROL] = Arm(instances=other.instances, guided=other.guided)
        if "bleurt" in other.scores:
            bleurt_20[CONTROL] = other.scores["bleurt"][0]
        warnings += independence_words(
            (*recorded.others, *other.others), read=(), group_field=group_field
        )
        for name, file in ((PARTITION, recorded), (CONTROL, other)):
            if recorded.reference is not None and other.reference is not None:
                assert file.reference is not None
                arms[OF_REFERENCE[name]] = Arm(
                    instances=file.instances, guided=file.reference
                )
    judge = recorded.model_judge
    humans = human_labels(annotated, arm, seed=seed)
    if humans is None and recorded.people:
        humans = People(labels=recorded.people, source="people's labels in the file")
    partition = Partition(
        name=recorded.name,
        fingerprint=instances_fingerprint(recorded.instances),
        prompt_version=None,
        arms=arms,
        group_field=group_field,
        llm={
            name: file.model_judge
            for name, file in ((PARTITION, recorded), (CONTROL, other))
            if judge is not None and file is not None and file.model_judge is not None
        },
        llm_version=None if judge is None else "recorded beside the completions",
        llm_decides=False,
        humans=humans,
        warnings=tuple(warnings),
    )
    partition = measured(partition, measures, bar=bar)
    # What can be measured again is; a score of a model that is not here is kept.
    overlaps = {**partition.overlaps}
    for name, scores in recorded.scores.items():
        overlaps.setdefault(name, scores)
    changes: dict[str, Any] = {"overlaps": overlaps}
    if bleurt_20 and "bleurt" not in partition.overlaps:
        changes["warnings"] = (*partition.warnings, _TAKEN_FOR_BLEURT_20)
        changes["bleurt_20"] = bleurt_20
    partition = dataclasses.replace(partition, **changes)
    return ReplicationAnalysis(partition=partition, seed=seed, watch=watch)
