"""Tables 1 and 2 of the paper, from completions that were recorded."""

import dataclasses
from pathlib import Path

import numpy as np

from eval.replication.tables import Partition
from jaxcontam.errors import InputError
from jaxcontam.replication.control import JudgeResult, judge_result
from jaxcontam.replication.instances import instances_fingerprint
from jaxcontam.replication.judges import Judged, consensus, judge_local, judge_version
from jaxcontam.replication.overlap import (
    ROUGE_L,
    OverlapResult,
    overlap_results,
    overlap_scores,
)
from jaxcontam.replication.recorded import Recorded, read_recorded

# The test that puts the asterisks of table 2 there.
_TEST = "paired_bootstrap"


def recorded_partitions(folder: Path, *, seed: int) -> list[Partition]:
    """What every partition below a folder gives, by the paper's test and all judges.

    ROUGE-L is measured again; BLEURT is taken as it was recorded.

    Args:
        folder: With files SET/SPLIT/FILE.csv.
        seed: Seeds the bootstrap.

    Raises:
        InputError: If there is no such file, or one is not what it should be.
    """
    return [_partition(one, seed) for one in read_recorded_folder(folder)]


def read_recorded_folder(folder: Path) -> list[Recorded]:
    """Every partition below a folder, named by its place: SET/SPLIT/FILE.csv.

    Raises:
        InputError: If there is no .csv file, or one is not what it should be.
    """
    paths = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not paths:
        raise InputError(
            f"{folder}: no .csv file below it",
            hint="expected SET/SPLIT/FILE.csv, one file a partition",
        )
    return [
        dataclasses.replace(
            read_recorded(path), name=_name_of(path.relative_to(folder))
        )
        for path in paths
    ]


def _name_of(place: Path) -> str:
    return "/".join(place.parts[:-1]) if len(place.parts) > 2 else place.stem


def _partition(recorded: Recorded, seed: int) -> Partition:
    dataset, _, split = recorded.name.partition("/")
    split = split.partition("/")[0]
    scores = dict(recorded.scores)
    if recorded.general is not None:
        scores[ROUGE_L.name] = (
            overlap_scores(ROUGE_L, recorded.instances, recorded.guided),
            overlap_scores(ROUGE_L, recorded.instances, recorded.general),
        )
    return Partition(
        dataset=dataset,
        split=split or "all",
        overlaps={
            name: _overlap(recorded, name, pair, seed) for name, pair in scores.items()
        },
        judges=_judges(recorded),
    )


def _overlap(
    recorded: Recorded, measure: str, pair: tuple[np.ndarray, np.ndarray], seed: int
) -> OverlapResult:
    rows = overlap_results(
        measure,
        *pair,
        benchmark=recorded.name,
        fingerprint=instances_fingerprint(recorded.instances),
        prompt_version=None,
        seed=seed,
    )
    (row,) = (row for row in rows if row.method == f"{measure}_{_TEST}")
    return row


def _judges(recorded: Recorded) -> dict[str, JudgeResult]:
    bleurt_N, _ = recorded.scores.get("bleurt", (None, None))
    local = judge_local(recorded.instances, recorded.guided, bleurt=bleurt_N)
    version = judge_version(with_bleurt=bleurt_N is not None)
    found = {"judge_local": (local, version)}
    if recorded.model_judge is not None:
        found["judge_llm"] = recorded.model_judge, "as recorded"
    if recorded.people:
        humans = Judged(labels=consensus(recorded.people))
        found["judge_human"] = humans, "as recorded"
    return {
        method: judge_result(
            judged,
            method=method,
            benchmark=recorded.name,
            fingerprint=instances_fingerprint(recorded.instances),
            judge_version=version,
            prompt_version=None,
        )
        for method, (judged, version) in found.items()
    }
