"""Measure and judge: the completions of a partition, labelled and counted."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.progress import Bar
from jaxcontam.replication.control import Facts, JudgeResult, judge_result
from jaxcontam.replication.instances import Instance, text_key
from jaxcontam.replication.judges import (
    Judged,
    Judgement,
    People,
    closeness,
    follows_from_first,
    instance_warnings,
    is_short,
    judge_local,
    judge_version,
)
from jaxcontam.replication.overlap import (
    ROUGE_L,
    Measure,
    OverlapResult,
    overlap_results,
    overlap_scores,
)
from jaxcontam.reports.archive import number_or_none
from jaxcontam.scoring.completer import Completion

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

    def overlaps(self, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
        """Scores of guided and general completions, (N,) each."""
        assert self.general is not None
        return (
            overlap_scores(measure, self.instances, self.guided),
            overlap_scores(measure, self.instances, self.general),
        )


# No slots: what follows is computed once.
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Partition:
    """Everything that a verdict on a partition follows from.

    Attributes:
        arms: Those of `ARMS` that there are, of a reference both or none.
        overlaps: Measure -> scores of guided and general completions, (N,) each, NaN
            where refused; the leading measure first.
        bleurt_20: Arm -> (N,) scores of its guided completions by BLEURT-20.
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

    @functools.cached_property
    def judged_locally(self) -> dict[str, Judged]:
        """Labels of each arm by the local judge."""
        bleurt = self.bleurt_20 if self.judges_by_bleurt else {}
        return {
            name: judge_local(arm.instances, arm.guided, bleurt=bleurt.get(name))
            for name, arm in self.arms.items()
        }

    @functools.cached_property
    def facts(self) -> dict[str, Facts]:
        """Facts of the instances of both sides."""
        both_sides = (PARTITION, CONTROL)
        sides = {
            name: self.arms[name].instances for name in both_sides if name in self.arms
        }
        keys = {
            name: [text_key(one.first_piece, one.second_piece) for one in instances]
            for name, instances in sides.items()
        }
        both = set(keys[PARTITION]) & set(keys.get(CONTROL, ()))
        is_grouped = self.group_field is not None
        return {
            name: Facts(
                is_short=[is_short(one) for one in instances],
                follows=[follows_from_first(one) for one in instances],
                # On this side before, or on the other as well.
                repeats=[
                    key in both or key in keys[name][:i]
                    for i, key in enumerate(keys[name])
                ],
                groups=[str(one.group) for one in instances] if is_grouped else (),
            )
            for name, instances in sides.items()
        }

    def results(self, *, seed: int) -> list[OverlapResult | JudgeResult]:
        """Rows of the report: the judge that decides, the others, then overlaps."""
        facts, local = self.facts, self.judged_locally
        is_local = not self.llm or not self.llm_decides
        people = None if self.humans is None else self.humans.consensus
        names: dict[str, Any] = dict(benchmark=self.name, fingerprint=self.fingerprint)
        names |= dict(prompt_version=self.prompt_version, seed=seed)
        shared = {**names, "facts": facts[PARTITION], "group_field": self.group_field}

        def beside(judged: Mapping[str, Judged]) -> dict[str, Any]:
            """The arms that a judge compares the partition with."""
            own, theirs = OF_REFERENCE.values()
            found = {"judged": judged[PARTITION], "humans": people, **shared}
            if CONTROL in judged:
                found |= {"control": judged[CONTROL], "control_facts": facts[CONTROL]}
            if own in judged and theirs in judged:
                found["reference"] = judged[own], judged[theirs], self._closer()
            return found

        of_run = (
            *self.warnings,
            *(f"of the control: {words}" for words in self.control_warnings),
            *_repeat_words(facts),
        )
        own = (*instance_warnings(self.arm.instances), *self._bleurt_notes())
        of_local = judge_result(
            method=LOCAL,
            judge_version=judge_version(with_bleurt=self.judges_by_bleurt),
            primary=is_local,
            warnings=(*of_run, *own) if is_local else own,
            **beside(local),
        )
        judges = [of_local]
        if self.llm:
            of_llm = judge_result(
                method=LLM,
                judge_version=self.llm_version or "",
                primary=not is_local,
                warnings=() if is_local else of_run,
                **beside(self.llm),
            )
            judges.insert(1 if is_local else 0, of_llm)
        if self.humans is not None:
            of_people = judge_result(
                Judged(labels=self.humans.consensus),
                method=HUMAN,
                judge_version=self.humans.source,
                warnings=self.humans.notes,
                **shared,
            )
            judges.append(of_people)
        rows: list[OverlapResult | JudgeResult] = [*judges]
        for name, scores in self.overlaps.items():
            once = (np.where(facts[PARTITION].repeats, np.nan, one) for one in scores)
            rows += overlap_results(name, *once, **names)
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
            is_own = name in (PARTITION, OF_REFERENCE[PARTITION])
            rows = _rows(arm, name, facts[PARTITION if is_own else CONTROL], labels)
            scores: dict[str, np.ndarray] = {}
            if name != PARTITION and self.judges_by_bleurt:
                scores["bleurt_guided"] = self.bleurt_20[name]
            if name == PARTITION:
                for measure, (guided_N, general_N) in self.overlaps.items():
                    scores[f"{measure}_guided"] = guided_N
                    scores[f"{measure}_general"] = general_N
                if arm.general is None:
                    scores_N = overlap_scores(ROUGE_L, arm.instances, arm.guided)
                    scores["rouge_l_guided"] = scores_N
            for i, row in enumerate(rows):
                row |= {key: number_or_none(one[i]) for key, one in scores.items()}
                found.append({"benchmark": self.name, **row})
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
            f"the {missing} has no BLEURT scores, so the local judge uses words alone "
            "for all completions",
        )


def _repeat_words(facts: Mapping[str, Facts]) -> list[str]:
    return [
        f"{'of the control, ' if name == CONTROL else ''}{n} of {len(side.repeats)} "
        "instances are left out: their text occurred before, or is in both the "
        "benchmark and the control"
        for name, side in facts.items()
        if (n := sum(side.repeats))
    ]


def _rows(
    arm: Arm, which: str, facts: Facts, labels: Mapping[str, Sequence[Judgement | None]]
) -> list[dict[str, Any]]:
    rows = []
    for i, (instance, guided) in enumerate(zip(arm.instances, arm.guided, strict=True)):
        row: dict[str, Any] = {
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
        rows.append(row | {judge: of_judge[i] for judge, of_judge in labels.items()})
    return rows


def measured(
    partition: Partition, measures: Sequence[Measure], *, bar: Bar
) -> Partition:
    """The partition with measures of both kinds of completions, ROUGE-L first.

    Other arms are measured only where the local judge reads the measure. Which models
    measured is added to the warnings.
    """
    arm = partition.arm
    if arm.general is None:
        return partition
    overlaps, bleurt_20 = {"rouge_l": arm.overlaps(ROUGE_L)}, {}
    for measure in measures:
        with bar(f"measuring {measure.name}"):
            overlaps[measure.name] = arm.overlaps(measure)
            if measure.is_bleurt_20:
                # All arms, else the local judge would judge them by different rules.
                bleurt_20 = {
                    name: overlap_scores(measure, one.instances, one.guided)
                    for name, one in partition.arms.items()
                    if name != PARTITION
                }
                bleurt_20[PARTITION] = overlaps[measure.name][0]
    return dataclasses.replace(
        partition,
        overlaps=overlaps,
        bleurt_20=bleurt_20,
        warnings=(*partition.warnings, *(measure.note for measure in measures)),
    )
