"""Judge: the completions of a partition, labelled and counted."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxcontam.methods.replication.instance import Completion, Instance
from jaxcontam.methods.replication.judges import Judged, Judgement, People, judge_result
from jaxcontam.methods.replication.local_judge import (
    follows_from_first,
    instance_warnings,
    is_short,
    judge_local,
    judge_version,
)
from jaxcontam.methods.replication.overlap import (
    ROUGE_L,
    overlap_results,
    overlap_scores,
)
from jaxcontam.methods.replication.split import instances_fingerprint
from jaxcontam.report.archive import number_or_none
from jaxcontam.report.replication import measure_and_test
from jaxcontam.results.replication import JudgeResult, OverlapResult

JUDGES = LOCAL, LLM, HUMAN = "judge_local", "judge_llm", "judge_human"
PARTITION, CONTROL = "partition", "control"
"""Arms of a run: instances in question, and some that cannot have been seen."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arm:
    """Instances and what a model wrote.

    Attributes:
        instances: N of them.
        guided: What it wrote after the guided instruction, N.
        general: After the general one, N; None where both instructions are the same.
    """

    instances: tuple[Instance, ...]
    guided: tuple[Completion, ...]
    general: tuple[Completion, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Partition:
    """Everything that a verdict on a partition follows from.

    Attributes:
        name: Name of the file or partition.
        fingerprint: Digest of its instances, in their order.
        prompt_version: Version of the instructions; None if unknown.
        arm: The instances in question.
        control: Instances that cannot have been seen, or None.
        overlaps: Measure -> scores of guided and general completions, (N,) each, NaN
            where refused; the leading measure first.
        has_bleurt_20: Whether the overlap `bleurt` is that of BLEURT-20, which the
            local judge then reads as well, if the control has such scores, too.
        control_bleurt: (N,) the same measure of the control's completions, or None.
        llm: Labels of the judge behind an API, and its version; or None.
        llm_decides: False for labels that were recorded beside the completions.
        llm_control: The same of the control.
        humans: What people say of the guided completions, or None.
        warnings: What the reader should know of the instances and their completions.
        control_warnings: The same of the control's.
    """

    name: str
    fingerprint: str
    prompt_version: str | None
    arm: Arm
    control: Arm | None = None
    overlaps: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict
    )
    has_bleurt_20: bool = False
    control_bleurt: np.ndarray | None = None
    llm: tuple[Judged, str] | None = None
    llm_decides: bool = True
    llm_control: Judged | None = None
    humans: People | None = None
    warnings: tuple[str, ...] = ()
    control_warnings: tuple[str, ...] = ()

    @property
    def judges_by_bleurt(self) -> bool:
        """Whether the local judge reads BLEURT-20: of both arms, or of neither."""
        has_control = self.control is None or self.control_bleurt is not None
        return self.has_bleurt_20 and has_control

    @property
    def judged_locally(self) -> Judged:
        """What the local judge says of the instances in question."""
        bleurt_N = self.overlaps["bleurt"][0] if self.judges_by_bleurt else None
        return judge_local(self.arm.instances, self.arm.guided, bleurt=bleurt_N)

    @property
    def control_judged_locally(self) -> Judged | None:
        """The same of the control; None without one."""
        if self.control is None:
            return None
        bleurt_N = self.control_bleurt if self.judges_by_bleurt else None
        return judge_local(self.control.instances, self.control.guided, bleurt=bleurt_N)

    def results(self, *, seed: int) -> list[OverlapResult | JudgeResult]:
        """Rows of the report: the judge that decides, the others, then overlaps.

        A judge behind an API decides where one was asked, the local one otherwise.
        """
        rows: list[OverlapResult | JudgeResult] = []
        is_local = self.llm is None or not self.llm_decides
        shared: dict[str, Any] = {
            "benchmark": self.name,
            "fingerprint": self.fingerprint,
            "prompt_version": self.prompt_version,
            "humans": None if self.humans is None else self.humans.consensus,
            "is_short": [is_short(instance) for instance in self.arm.instances],
            "follows": _follow(self.arm),
        }
        of_control = None if self.control is None else _follow(self.control)
        of_run = (
            *self.warnings,
            *(f"of the control: {words}" for words in self.control_warnings),
        )
        if self.llm is not None:
            judged, version = self.llm
            rows.append(
                judge_result(
                    judged,
                    method=LLM,
                    judge_version=version,
                    primary=not is_local,
                    control=self.llm_control,
                    control_follows=None if self.llm_control is None else of_control,
                    warnings=() if is_local else of_run,
                    **shared,
                )
            )
        rows.append(
            judge_result(
                self.judged_locally,
                method=LOCAL,
                judge_version=judge_version(with_bleurt=self.judges_by_bleurt),
                primary=is_local,
                control=self.control_judged_locally,
                control_follows=of_control,
                warnings=(
                    *(of_run if is_local else ()),
                    *instance_warnings(self.arm.instances),
                    *self._bleurt_notes(),
                ),
                **shared,
            )
        )
        if self.humans is not None:
            rows.append(
                judge_result(
                    Judged(labels=self.humans.consensus),
                    method=HUMAN,
                    judge_version=self.humans.source,
                    warnings=self.humans.notes,
                    **{**shared, "humans": None},
                )
            )
        rows.sort(key=lambda row: not row.primary)
        for name, (guided_N, general_N) in self.overlaps.items():
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
        """One row an instance for `texts.jsonl`, those of the control at the end."""
        labels: dict[str, Sequence[Judgement | None]] = {
            LOCAL: self.judged_locally.labels
        }
        if self.llm is not None:
            labels[LLM] = self.llm[0].labels
        if self.humans is not None:
            labels[HUMAN] = self.humans.consensus
        rows = _rows(self.arm, PARTITION, self.name, labels)
        for name, (guided_N, general_N) in self.overlaps.items():
            for row, guided, general in zip(rows, guided_N, general_N, strict=True):
                row[f"{name}_guided"] = number_or_none(guided)
                row[f"{name}_general"] = number_or_none(general)
        if self.arm.general is None:
            scores_N = overlap_scores(ROUGE_L, self.arm.instances, self.arm.guided)
            for row, score in zip(rows, scores_N, strict=True):
                row["rouge_l_guided"] = number_or_none(score)
        if self.control is not None:
            control = self.control
            judged = self.control_judged_locally
            assert judged is not None
            of_control: dict[str, Sequence[Judgement | None]] = {LOCAL: judged.labels}
            if self.llm_control is not None:
                of_control[LLM] = self.llm_control.labels
            found = _rows(control, CONTROL, self.name, of_control)
            if self.control_bleurt is not None:
                for row, score in zip(found, self.control_bleurt, strict=True):
                    row["bleurt_guided"] = number_or_none(score)
            rows += found
        return rows

    def _bleurt_notes(self) -> tuple[str, ...]:
        if not self.has_bleurt_20 or self.judges_by_bleurt:
            return ()
        return (
            "the control has no BLEURT scores, so the local judge goes by words alone "
            "in both",
        )


def _follow(arm: Arm) -> list[bool]:
    """Instances whose second piece follows from the first one by rule."""
    return [follows_from_first(instance) for instance in arm.instances]


def rouge_overlap(arm: Arm) -> tuple[np.ndarray, np.ndarray] | None:
    """ROUGE-L of guided and general completions, (N,) each; None for one arm only."""
    if arm.general is None:
        return None
    return (
        overlap_scores(ROUGE_L, arm.instances, arm.guided),
        overlap_scores(ROUGE_L, arm.instances, arm.general),
    )


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
    in_question = [row for row in rows if row["arm"] == PARTITION]
    of_control = [row for row in rows if row["arm"] == CONTROL]
    arm = arm_from_rows(in_question)
    overlaps = {
        name: (
            _floats(in_question, f"{name}_guided"),
            _floats(in_question, f"{name}_general"),
        )
        for name in (measure_and_test(m)[0] for m in by_method if m not in JUDGES)
    }
    rouge = rouge_overlap(arm)
    if rouge is not None and "rouge_l" in overlaps:
        overlaps["rouge_l"] = rouge
    control = control_bleurt = llm_labels = llm_control = humans = None
    if llm is not None:
        llm_labels = (_judged(in_question, llm, "n"), llm["judge_version"])
    if of_control:
        control = arm_from_rows(of_control)
        if "bleurt_guided" in of_control[0]:
            control_bleurt = _floats(of_control, "bleurt_guided")
        if llm is not None and LLM in of_control[0]:
            llm_control = _judged(of_control, llm, "n_control")
    if human is not None:
        labels = (tuple(row[HUMAN] for row in in_question),)
        humans = People(labels=labels, source=human["judge_version"])
    return Partition(
        name=local["benchmark"],
        fingerprint=instances_fingerprint(arm.instances),
        prompt_version=local["prompt_version"],
        arm=arm,
        control=control,
        overlaps=overlaps,
        has_bleurt_20=local["judge_version"] == judge_version(with_bleurt=True),
        control_bleurt=control_bleurt,
        llm=llm_labels,
        llm_control=llm_control,
        llm_decides=llm is not None and llm["primary"],
        humans=humans,
    )


def _rows(
    arm: Arm,
    which: str,
    name: str,
    labels: Mapping[str, Sequence[Judgement | None]],
) -> list[dict[str, Any]]:
    rows = []
    for i, (instance, guided, follows) in enumerate(
        zip(arm.instances, arm.guided, _follow(arm), strict=True)
    ):
        row: dict[str, Any] = {
            "benchmark": name,
            "arm": which,
            "id": instance.index,
            "cut": instance.cut,
            "split_point": len(instance.first_piece),
            "label": instance.label,
            "follows": follows,
            "first_piece": instance.first_piece,
            "second_piece": instance.second_piece,
            "guided": guided.text,
            "guided_refused": guided.refused,
        }
        if arm.general is not None:
            row["general"] = arm.general[i].text
            row["general_refused"] = arm.general[i].refused
        row |= {judge: of_judge[i] for judge, of_judge in labels.items()}
        rows.append(row)
    return rows


def _judged(
    rows: Sequence[Mapping[str, Any]], stated: Mapping[str, Any], n: str
) -> Judged:
    return Judged(
        labels=tuple(row[LLM] for row in rows),
        n_unparsed=stated[f"{n}_unparsed"],
        n_refused=stated[f"{n}_refused"],
    )


def _floats(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows])
