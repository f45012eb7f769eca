"""Completions made elsewhere, judged like those of a run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.analyses.replicate import (
    OverlapModel,
    ReplicationAnalysis,
    human_labels,
    measured,
)
from jaxcontam.analyses.replicate_judging import Arm, Partition
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.methods.replication.judges import People
from jaxcontam.methods.replication.recorded import Recorded, read_recorded
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
    measures: Sequence[OverlapModel] = (),
    annotated: Path | None = None,
    seed: int = 0,
    watch: Stopwatch | None = None,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """Read completions, measure them, and judge them by the local judge.

    Raises:
        InputError: If a file is at fault.
    """
    watch = watch or Stopwatch()
    recorded = read_recorded(path)
    arm = Arm(
        instances=recorded.instances, guided=recorded.guided, general=recorded.general
    )
    other = None if control is None else read_recorded(control)
    of_control = None
    if other is not None:
        of_control = Arm(instances=other.instances, guided=other.guided)
    judge = recorded.model_judge
    humans = human_labels(annotated, arm, seed=seed)
    if humans is None and recorded.people:
        humans = People(labels=recorded.people, source="people's labels in the file")
    partition = Partition(
        name=recorded.name,
        fingerprint=instances_fingerprint(recorded.instances),
        prompt_version=None,
        arm=arm,
        control=of_control,
        llm=None if judge is None else (judge, "recorded beside the completions"),
        llm_decides=False,
        llm_control=None if judge is None or other is None else other.model_judge,
        humans=humans,
        control_warnings=() if other is None else _repeated_rows(other),
    )
    partition = measured(partition, measures, bar=bar)
    # What can be measured again is; a score of a model that is not here is kept.
    overlaps = {**partition.overlaps}
    for name, scores in recorded.scores.items():
        overlaps.setdefault(name, scores)
    changes: dict[str, Any] = {"overlaps": overlaps}
    warnings = partition.warnings + _repeated_rows(recorded)
    if "bleurt" in recorded.scores and "bleurt" not in partition.overlaps:
        warnings += (_TAKEN_FOR_BLEURT_20,)
        changes["has_bleurt_20"] = True
        if other is not None and "bleurt" in other.scores:
            changes["control_bleurt"] = other.scores["bleurt"][0]
    partition = dataclasses.replace(partition, warnings=warnings, **changes)
    return ReplicationAnalysis(partition=partition, seed=seed, watch=watch)


def _repeated_rows(recorded: Recorded) -> tuple[str, ...]:
    """What to say of rows that are no further evidence."""
    n = len(recorded.instances)
    pieces = {(one.first_piece, one.second_piece) for one in recorded.instances}
    n_repeated = n - len(pieces)
    if not n_repeated:
        return ()
    return (
        f"{n_repeated} of {n} rows repeat the instance of another one, and are counted "
        "as if they were further evidence",
    )
