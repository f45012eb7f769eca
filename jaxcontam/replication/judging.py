"""Measure and judge: the completions of a partition, labelled and counted."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from jaxcontam.progress import Bar
from jaxcontam.replication.annotate import read_sheet
from jaxcontam.replication.instance import Completion, Instance, text_key
from jaxcontam.replication.judges import Facts, Judged, Judgement, People, judge_result
from jaxcontam.replication.local_judge import (
    closeness,
    follows_from_first,
    instance_warnings,
    is_short,
    judge_local,
    judge_version,
)
from jaxcontam.replication.overlap import ROUGE_L, overlap_results, overlap_scores
from jaxcontam.replication.page import measure_and_test
from jaxcontam.replication.result import JudgeResult, OverlapResult
from jaxcontam.replication.split import instances_fingerprint
from jaxcontam.reports.archive import number_or_none

if TYPE_CHECKING:
    from jaxcontam.replication.bleurt import Bleurt
    from jaxcontam.replication.overlap import EmbeddingOverlap

OverlapModel = Union["Bleurt", "EmbeddingOverlap"]
"""A model that measures how close a completion is to its reference."""

_TITLES = {"bleurt": "BLEURT", "embedding": "The embedding cosine"}

JUDGES = LOCAL, LLM, HUMAN = "judge_local", "judge_llm", "judge_human"
PARTITION, CONTROL = "partition", "control"
"""Arms of a run: instances in question, and some that cannot have been seen."""

OF_REFERENCE = {PARTITION: "reference", CONTROL: "reference control"}
"""The same instances, as a model was asked that has seen neither."""

ARMS = (PARTITION, CONTROL, *OF_REFERENCE.values())


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arm:
    """Instances and completions; `general` of the partition alone, if it differs."""

    instances: tuple[Instance, ...]
    guided: tuple[Completion, ...]
    general: tuple[Completion, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Partition:
    """Everything that a verdict on a partition follows from.

    Attributes:
        arms: Those of `ARMS` that there are; the partition itself is one, and those of
            a reference come together.
        overlaps: Measure -> scores of guided and general completions, (N,) each, NaN
            where refused; the leading measure first.
        bleurt_20: Arm -> (N,) scores of its guided completions by BLEURT-20, which the
            local judge reads as well if all arms have them.
        llm_decides: False for labels that were recorded beside the completions.
    """

    name: str
    fingerprint: str
    prompt_version: str | None
    arms: Mapping[str, Arm]
    group_field: str | None = None
    overlaps: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict
    )
    bleurt_20: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    llm: Mapping[str, Judged] = dataclasses.field(default_factory=dict)
    llm_version: str | None = None
    llm_decides: bool = True
    humans: People | None = None
    warnings: tuple[str, ...] = ()
    control_warnings: tuple[str, ...] = ()

    @property
    def arm(self) -> Arm:
        """The instances in question."""
        return self.arms[PARTITION]

    @property
    def judges_by_bleurt(self) -> bool:
        """True if the local judge reads BLEURT-20: of all arms, or of none."""
        return set(self.bleurt_20) == set(self.arms)

    @property
    def judged_locally(self) -> dict[str, Judged]:
        """Labels of each arm by the local judge."""
        bleurt = self.bleurt_20 if self.judges_by_bleurt else {}
        return {
            name: judge_local(arm.instances, arm.guided, bleurt=bleurt.get(name))
            for name, arm in self.arms.items()
        }

    @property
    def repeats(self) -> dict[str, list[bool]]:
        """Instances whose text stands before on their side, or on the other as well."""
        keys = {
            name: [text_key(one.first_piece, one.second_piece) for one in arm.instances]
            for name, arm in self.arms.items()
            if name in (PARTITION, CONTROL)
        }
        both = set(keys[PARTITION]) & set(keys.get(CONTROL, ()))
        return {
            name: [key in both or key in own[:i] for i, key in enumerate(own)]
            for name, own in keys.items()
        }

    @property
    def facts(self) -> dict[str, Facts]:
        """Facts of the instances of both sides."""
        is_grouped = self.group_field is not None
        return {
            name: Facts(
                is_short=[is_short(one) for one in self.arms[name].instances],
                follows=[follows_from_first(one) for one in self.arms[name].instances],
                repeats=repeats,
                groups=[str(one.group) for one in self.arms[name].instances]
                if is_grouped
                else (),
            )
            for name, repeats in self.repeats.items()
        }

    def results(self, *, seed: int) -> list[OverlapResult | JudgeResult]:
        """Rows of the report: the judge that decides, the others, then overlaps."""
        rows: list[OverlapResult | JudgeResult] = []
        is_local = not self.llm or not self.llm_decides
        facts, repeats = self.facts, self.repeats
        shared: dict[str, Any] = {
            "benchmark": self.name,
            "fingerprint": self.fingerprint,
            "prompt_version": self.prompt_version,
            "facts": facts[PARTITION],
            "group_field": self.group_field,
            "seed": seed,
        }
        humans = None if self.humans is None else self.humans.consensus
        of_run = (
            *self.warnings,
            *(f"of the control: {words}" for words in self.control_warnings),
            *_repeat_words(repeats),
        )

        def beside(judged: Mapping[str, Judged]) -> dict[str, Any]:
            """The arms that a judge compares the partition with."""
            own, theirs = OF_REFERENCE.values()
            found = {"judged": judged[PARTITION], "humans": humans, **shared}
            if CONTROL in judged:
                found |= {"control": judged[CONTROL], "control_facts": facts[CONTROL]}
            if own in judged and theirs in judged:
                found["reference"] = judged[own], judged[theirs], self._closer()
            return found

        if self.llm:
            rows.append(
                judge_result(
                    method=LLM,
                    judge_version=self.llm_version or "",
                    primary=not is_local,
                    warnings=() if is_local else of_run,
                    **beside(self.llm),
                )
            )
        rows.append(
            judge_result(
                method=LOCAL,
                judge_version=judge_version(with_bleurt=self.judges_by_bleurt),
                primary=is_local,
                warnings=(
                    *(of_run if is_local else ()),
                    *instance_warnings(self.arm.instances),
                    *self._bleurt_notes(),
                ),
                **beside(self.judged_locally),
            )
        )
        if self.humans is not None:
            rows.append(
                judge_result(
                    Judged(labels=self.humans.consensus),
                    method=HUMAN,
                    judge_version=self.humans.source,
                    warnings=self.humans.notes,
                    **shared,
                )
            )
        rows.sort(key=lambda row: not row.primary)
        for name, scores in self.overlaps.items():
            guided_N, general_N = (
                np.where(repeats[PARTITION], np.nan, scores_N) for scores_N in scores
            )
            rows += overlap_results(
                name,
                guided_N,
                general_N,
                benchmark=self.name,
                fingerprint=self.fingerprint,
                prompt_version=self.prompt_version,
                seed=seed,
            )
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """One row an instance for `texts.jsonl`, those in question first."""
        local, facts = self.judged_locally, self.facts
        found = []
        for name, arm in self.arms.items():
            labels: dict[str, Sequence[Judgement | None]] = {LOCAL: local[name].labels}
            if name in self.llm:
                labels[LLM] = self.llm[name].labels
            if self.humans is not None and name == PARTITION:
                labels[HUMAN] = self.humans.consensus
            side = (
                PARTITION if name in (PARTITION, OF_REFERENCE[PARTITION]) else CONTROL
            )
            found += _rows(arm, name, self.name, facts[side], labels)
            if name != PARTITION and self.judges_by_bleurt:
                for row, score in zip(
                    found[-len(arm.guided) :], self.bleurt_20[name], strict=True
                ):
                    row["bleurt_guided"] = number_or_none(score)
        own = found[: len(self.arm.guided)]
        for name, (guided_N, general_N) in self.overlaps.items():
            for row, guided, general in zip(own, guided_N, general_N, strict=True):
                row[f"{name}_guided"] = number_or_none(guided)
                row[f"{name}_general"] = number_or_none(general)
        if self.arm.general is None:
            scores_N = overlap_scores(ROUGE_L, self.arm.instances, self.arm.guided)
            for row, score in zip(own, scores_N, strict=True):
                row["rouge_l_guided"] = number_or_none(score)
        return found

    def _closer(self) -> list[float]:
        own, other = self.arms[CONTROL], self.arms[OF_REFERENCE[CONTROL]]
        return [
            closeness(instance, one) - closeness(instance, another)
            for instance, one, another in zip(
                own.instances, own.guided, other.guided, strict=True
            )
        ]

    def _bleurt_notes(self) -> tuple[str, ...]:
        if PARTITION not in self.bleurt_20 or self.judges_by_bleurt:
            return ()
        missing = next(name for name in self.arms if name not in self.bleurt_20)
        return (
            f"the {missing} has no BLEURT scores, so the local judge goes by words "
            "alone in all completions",
        )


def _repeat_words(repeats: Mapping[str, Sequence[bool]]) -> tuple[str, ...]:
    return tuple(
        f"{'of the control, ' * (name == CONTROL)}{sum(own)} of {len(own)} instances "
        "are left out: their text stands before, or in the benchmark and in the control"
        for name, own in repeats.items()
        if any(own)
    )


def measured(
    partition: Partition, measures: Sequence[OverlapModel], *, bar: Bar
) -> Partition:
    """The partition with measures of both kinds of completions, ROUGE-L first.

    Other arms are measured only where the local judge reads the measure. Which models
    measured is added to the warnings.
    """
    arm = partition.arm
    rouge = rouge_overlap(arm)
    if rouge is None or arm.general is None:
        return partition
    overlaps, notes, bleurt_20 = {"rouge_l": rouge}, [], {}
    for measure in measures:
        is_bleurt_20 = getattr(measure, "is_bleurt_20", False)
        with bar(f"measuring {measure.name}"):
            overlaps[measure.name] = (
                overlap_scores(measure.measure, arm.instances, arm.guided),
                overlap_scores(measure.measure, arm.instances, arm.general),
            )
            if is_bleurt_20:
                # Else the local judge would judge arms by different rules.
                bleurt_20 = {
                    name: overlap_scores(measure.measure, one.instances, one.guided)
                    for name, one in partition.arms.items()
                    if name != PARTITION
                }
                bleurt_20[PARTITION] = overlaps[measure.name][0]
        notes.append(f"{_TITLES[measure.name]} is measured by {measure.version}")
    return dataclasses.replace(
        partition,
        overlaps=overlaps,
        bleurt_20=bleurt_20,
        warnings=(*partition.warnings, *notes),
    )


def human_labels(annotated: Path | None, arm: Arm, *, seed: int) -> People | None:
    """Labels of a sheet that people filled in; None without one."""
    if annotated is None:
        return None
    return read_sheet(annotated, arm.instances, arm.guided, seed=seed)


def rouge_overlap(arm: Arm) -> tuple[np.ndarray, np.ndarray] | None:
    """ROUGE-L of guided and general completions, (N,) each; None for one arm only."""
    if arm.general is None:
        return None
    return (
        overlap_scores(ROUGE_L, arm.instances, arm.guided),
        overlap_scores(ROUGE_L, arm.instances, arm.general),
    )


def _rows(
    arm: Arm,
    which: str,
    name: str,
    facts: Facts,
    labels: Mapping[str, Sequence[Judgement | None]],
) -> list[dict[str, Any]]:
    rows = []
    for i, (instance, guided) in enumerate(zip(arm.instances, arm.guided, strict=True)):
        row: dict[str, Any] = {
            "benchmark": name,
            "arm": which,
            "id": instance.index,
            "cut": instance.cut,
            "split_point": len(instance.first_piece),
            "label": instance.label,
            "follows": facts.follows[i],
            "repeats": facts.repeats[i],
            "first_piece": instance.first_piece,
            "second_piece": instance.second_piece,
            "guided": guided.text,
            "guided_refused": guided.refused,
        }
        if facts.groups:
            row["group"] = instance.group
        if arm.general is not None:
            row["general"] = arm.general[i].text
            row["general_refused"] = arm.general[i].refused
        row |= {judge: of_judge[i] for judge, of_judge in labels.items()}
        rows.append(row)
    return rows


def arm_from_rows(rows: Sequence[Mapping[str, Any]]) -> Arm:
    """Undo `Partition.rows` for the rows of one arm; KeyError if a field is missing."""
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

    `stated` are rows of the report without further methods, `rows` all of
    `texts.jsonl`. KeyError if a field, or the row of the local judge, is missing.
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
