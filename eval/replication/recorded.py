"""Tables 1 and 2 of the paper, from completions that came with it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.study import Grid
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
_MEASURES = {"rouge_l": "ROUGE-L", "bleurt": "BLEURT"}
_HUMAN = "judge_human"
_JUDGES = {"judge_local": "local judge", "judge_llm": "model judge", _HUMAN: "people"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Results for one partition, such as `test` of `xsum`.

    `overlaps` are by measure: `rouge_l`, `bleurt`; judges by method: `judge_local` ...
    """

    dataset: str
    split: str
    overlaps: Mapping[str, OverlapResult]
    judges: Mapping[str, JudgeResult]

    @property
    def human(self) -> bool | None:
        """True if people find copies, by the paper's rule; None without labels."""
        row = self.judges.get(_HUMAN)
        return None if row is None else row.meets_rule


def recorded_partitions(folder: Path, *, seed: int) -> list[Partition]:
    """Results for every partition in a folder, by the paper's test and all judges.

    ROUGE-L is measured again; BLEURT is taken as it was recorded. The seed is the
    bootstrap's.
    """
    return [_partition(one, seed) for one in read_recorded_folder(folder)]


def read_recorded_folder(folder: Path) -> list[Recorded]:
    """Every partition below a folder, named by its place."""
    paths = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not paths:
        raise InputError(
            f"{folder}: no .csv file below it",
            hint="expected SET/SPLIT/FILE.csv, one file a partition",
        )
    places = {path: path.relative_to(folder).parts for path in paths}
    return [
        dataclasses.replace(
            read_recorded(path),
            name="/".join(parts[:-1]) if len(parts) > 2 else path.stem,
        )
        for path, parts in places.items()
    ]


def _partition(recorded: Recorded, seed: int) -> Partition:
    dataset, split, *_ = (*recorded.name.split("/"), "all")
    fingerprint = instances_fingerprint(recorded.instances)
    about: dict[str, Any] = {"benchmark": recorded.name, "fingerprint": fingerprint}
    about["prompt_version"] = None
    scores = dict(recorded.scores)
    if recorded.general is not None:
        guided_N, general_N = (
            overlap_scores(ROUGE_L, recorded.instances, one)
            for one in (recorded.guided, recorded.general)
        )
        scores[ROUGE_L.name] = guided_N, general_N
    overlaps = {
        name: row
        for name, pair in scores.items()
        for row in overlap_results(name, *pair, seed=seed, **about)
        if row.method == f"{name}_{_TEST}"
    }
    bleurt_N, _ = recorded.scores.get("bleurt", (None, None))
    local = judge_local(recorded.instances, recorded.guided, bleurt=bleurt_N)
    judged = {"judge_local": (local, judge_version(with_bleurt=bleurt_N is not None))}
    if recorded.model_judge is not None:
        judged["judge_llm"] = recorded.model_judge, "as recorded"
    if recorded.people:
        judged[_HUMAN] = Judged(labels=consensus(recorded.people)), "as recorded"
    judges = {
        method: judge_result(labels, method=method, judge_version=version, **about)
        for method, (labels, version) in judged.items()
    }
    return Partition(dataset=dataset, split=split, overlaps=overlaps, judges=judges)


def successes(partitions: Sequence[Partition]) -> dict[str, tuple[int, int]]:
    """Table 1: method -> partitions decided as people do, of those with both decisions.

    People decide by algorithm 2 as well. A method that always says no is the last row,
    to compare with.
    """
    decided: dict[str, list[tuple[bool, bool | None]]] = {}
    for number, names, maps in (
        (1, _MEASURES, [one.overlaps for one in partitions]),
        (2, _JUDGES, [one.judges for one in partitions]),
    ):
        for name in _named(names, maps):
            if name != _HUMAN:
                decided[f"algorithm {number}: {names.get(name, name)}"] = [
                    (_says_yes(rows[name]), one.human)
                    for one, rows in zip(partitions, maps, strict=True)
                    if name in rows
                ]
    decided["always no"] = [(False, one.human) for one in partitions]
    known = {m: [p for p in pairs if p[1] is not None] for m, pairs in decided.items()}
    return {m: (sum(a == b for a, b in p), len(p)) for m, p in known.items()}


def grids(partitions: Sequence[Partition]) -> list[Grid]:
    """Tables 1 and 2 of the paper.

    In the second the same split may be called test in one dataset and validation in
    another: all that is no training split is one line, as in the paper.
    """
    others = (one.split for one in partitions if not one.split.startswith("train"))
    rest = "/".join(dict.fromkeys(others))
    overlaps: dict[tuple[str, str], str] = {}
    judges: dict[tuple[str, str], str] = {}
    for one in sorted(partitions, key=lambda one: not one.split.startswith("train")):
        where = "train" if one.split.startswith("train") else rest
        for name, row in one.overlaps.items():
            line = f"{_MEASURES.get(name, name)} on {where}"
            mark = "*" if _says_yes(row) else ""
            overlaps[f"{line}, general", one.dataset] = _mean(row.general)
            overlaps[f"{line}, guided", one.dataset] = mark + _mean(row.guided)
        for name, row in one.judges.items():
            line = f"{_JUDGES.get(name, name)} on {where}"
            judges[line, one.dataset] = _mark(row)
    return [
        Grid.of(
            "Table 1: partitions that a method decides as people do",
            successes(partitions).items(),
            {
                "method": "{r[0]}",
                "success": "{r[1][0]}/{r[1][1]}",
                "accuracy": lambda r: f"{r[1][0] / r[1][1]:.2%}" if r[1][1] else "-",
            },
        ),
        Grid.crossed(
            "Table 2: mean overlap by instruction, * where the guided one is higher "
            "with p <= 0.05; judges: x no evidence, + an exact copy, ++ two near-exact "
            "ones, - nothing known",
            "metric",
            overlaps | judges,
        ),
    ]


def _named(names: Mapping[str, str], maps: Iterable[Mapping[str, object]]) -> list[str]:
    """Keys that occur, known ones first in their order."""
    found = dict.fromkeys(key for one in maps for key in one)
    return [n for n in names if n in found] + [n for n in found if n not in names]


def _says_yes(row: OverlapResult | JudgeResult) -> bool:
    # By the paper's rules, which know no control and one level, 0.05.
    return (
        row.meets_rule if isinstance(row, JudgeResult) else row.verdict == "suspected"
    )


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mark(row: JudgeResult) -> str:
    if row.verdict is None:
        return "-"
    if not row.meets_rule:
        return "x"
    return "+" if row.n_exact else "++"
