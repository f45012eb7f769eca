"""What is said of completions: measures, judges, people; of recorded ones, too."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.replicate_completers import budget_of, open_judge
from jaxcontam.commands.replicate_partition import Arm, Partition, rouge_overlap
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.overlap import overlap_scores
from jaxcontam.methods.replication.people import People
from jaxcontam.methods.replication.recorded import Recorded, read_recorded
from jaxcontam.methods.replication.split import instances_fingerprint
from jaxcontam.report.document import make_folder
from jaxcontam.results.replication import ComparisonResult
from jaxcontam.scoring.api.budget import Spending

if TYPE_CHECKING:
    from jaxcontam.commands.replicate import Replicate
    from jaxcontam.methods.replication.bleurt import Bleurt
    from jaxcontam.methods.replication.embedding_overlap import EmbeddingOverlap

Found = tuple[Partition, list[ComparisonResult], list[dict[str, Any]]]
"""A partition, what further methods found, and their rows."""

_TAKEN_FOR_BLEURT_20 = (
    "the file's BLEURT scores are taken for those of BLEURT-20, for it does not say "
    "which model they are of"
)
# Flags that say how a model is asked, and nothing to completions that are there.
_ASKING = (
    "prompts",
    "compare",
    "text_field",
    "template",
    "first_field",
    "second_field",
    "label_field",
)


_ASKING_BY_DEFAULT = (
    "k",
    "task",
    "dataset_name",
    "split_name",
    "label_names",
    "cdd_samples",
    "new_tokens",
    "stop",
    "dtype",
    "dry_run",
)


def check_recorded(command: "Replicate") -> None:
    """Refuse what does not go with completions that are there already.

    Raises:
        InputError: Names the flag.
    """
    if command.model is not None:
        raise InputError(
            "--recorded asks no model", hint="leave MODEL and BENCHMARK out"
        )
    for name in _ASKING:
        if getattr(command, name):
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} does not go with --recorded")
    # Those that have a value when nobody gives one, too.
    defaults = {field.name: field.default for field in dataclasses.fields(command)}
    for name in _ASKING_BY_DEFAULT:
        if getattr(command, name) != defaults[name]:
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} does not go with --recorded")


def recorded_partition(command: "Replicate") -> Found:
    """A partition from completions that were made elsewhere.

    Raises:
        InputError: If a file or a flag is at fault.
    """
    assert command.recorded is not None
    recorded = read_recorded(command.recorded)
    if recorded.general is None and (command.bleurt or command.embedding_model):
        raise InputError(
            f"--bleurt and --embedding-model compare two instructions, and "
            f"{command.recorded} has completions of one"
        )
    arm = Arm(
        instances=recorded.instances,
        guided=recorded.guided,
        general=recorded.general,
    )
    control, other = None, None
    if command.control is not None:
        other = read_recorded(command.control)
        control = Arm(instances=other.instances, guided=other.guided)
    found = measured(command, arm, open_measures(command), control=control)
    # What can be measured again is; a score of a model that is not here is kept.
    is_recorded = command.bleurt is None and "bleurt" in recorded.scores
    control_bleurt = found.control_bleurt
    if is_recorded and other is not None and "bleurt" in other.scores:
        control_bleurt = other.scores["bleurt"][0]
    judge = recorded.model_judge
    partition = Partition(
        name=recorded.name,
        fingerprint=instances_fingerprint(recorded.instances),
        prompt_version=None,
        arm=arm,
        control=control,
        overlaps=found.overlaps
        | {k: v for k, v in recorded.scores.items() if k not in found.overlaps},
        has_bleurt_20=found.has_bleurt_20 or is_recorded,
        control_bleurt=control_bleurt,
        llm=None if judge is None else (judge, "recorded beside the completions"),
        llm_decides=False,
        llm_control=None if judge is None or other is None else other.model_judge,
        humans=human_labels(command, arm) or _annotators(recorded),
        warnings=(
            *found.notes,
            *_repeated_rows(recorded),
            *([_TAKEN_FOR_BLEURT_20] if is_recorded else []),
        ),
        control_warnings=() if other is None else _repeated_rows(other),
    )
    out = command.out or Path("runs") / "replicate" / f"recorded-{partition.name}"
    make_folder(out)
    spending = Spending(budget_of(command))
    return judged(command, partition, out, spending), [], []


def _annotators(recorded: Recorded) -> People | None:
    if not recorded.people:
        return None
    return People(labels=recorded.people, source="people's labels in the file")


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measured:
    """Overlaps of completions, and by which models.

    Attributes:
        overlaps: See `Partition`.
        has_bleurt_20: See `Partition`.
        control_bleurt: See `Partition`.
        notes: Which models measured, one sentence each.
    """

    overlaps: dict[str, tuple[np.ndarray, np.ndarray]]
    has_bleurt_20: bool = False
    control_bleurt: np.ndarray | None = None
    notes: tuple[str, ...] = ()


def measured(
    command: "Replicate",
    arm: Arm,
    measures: "Sequence[Bleurt | EmbeddingOverlap]" = (),
    *,
    control: Arm | None = None,
) -> Measured:
    """Measures of both kinds of completions, ROUGE-L first.

    Args:
        command: Its flags.
        arm: The completions.
        measures: See `open_measures`.
        control: Measured only where the local judge reads the measure.
    """
    rouge = rouge_overlap(arm)
    if rouge is None or arm.general is None:
        return Measured(overlaps={})
    overlaps, notes, has_bleurt_20 = {"rouge_l": rouge}, [], False
    control_bleurt = None
    for measure in measures:
        with progress_bar(f"measuring {measure.name}", unit="texts/s"):
            overlaps[measure.name] = (
                overlap_scores(measure.measure, arm.instances, arm.guided),
                overlap_scores(measure.measure, arm.instances, arm.general),
            )
            if control is not None and getattr(measure, "is_bleurt_20", False):
                # Else the local judge would judge both by other rules.
                control_bleurt = overlap_scores(
                    measure.measure, control.instances, control.guided
                )
        title = {"bleurt": "BLEURT", "embedding": "The embedding cosine"}[measure.name]
        notes.append(f"{title} is measured by {measure.version}")
        has_bleurt_20 |= getattr(measure, "is_bleurt_20", False)
    return Measured(
        overlaps=overlaps,
        has_bleurt_20=has_bleurt_20,
        control_bleurt=control_bleurt,
        notes=tuple(notes),
    )


def open_measures(command: "Replicate") -> "list[Bleurt | EmbeddingOverlap]":
    """Models that measure, as far as the user named them.

    Raises:
        InputError: If a folder holds no model that measures.
    """
    from jaxcontam.methods.replication.bleurt import Bleurt
    from jaxcontam.methods.replication.embedding_overlap import EmbeddingOverlap

    opened: list[Bleurt | EmbeddingOverlap] = []
    if command.bleurt is not None:
        opened.append(Bleurt.load(command.bleurt))
    if command.embedding_model is not None:
        opened.append(EmbeddingOverlap.load(command.embedding_model))
    return opened


def check_sheet(command: "Replicate") -> None:
    """Refuse a sheet that is none, or is empty, as far as it can be known early.

    Raises:
        InputError: If the sheet cannot be used, whatever the completions will be.
    """
    from jaxcontam.methods.replication.annotate import is_filled

    if command.annotated is not None and not is_filled(command.annotated):
        raise InputError(f"{command.annotated}: no label is filled in")


def human_labels(command: "Replicate", arm: Arm) -> People | None:
    """Labels of a sheet that people filled in."""
    if command.annotated is None:
        return None
    from jaxcontam.methods.replication.annotate import read_sheet

    return read_sheet(command.annotated, arm.instances, arm.guided, seed=command.seed)


def judged(
    command: "Replicate", partition: Partition, out: Path, spending: Spending
) -> Partition:
    """The partition with the labels of a judge behind an API, where one is named.

    Args:
        command: Its flags.
        partition: Without them.
        out: Folder of the report, and of the answers.
        spending: What the run has used so far.
    """
    if command.judge == "local":
        return partition
    from jaxcontam.methods.replication.llm_judge import judge_llm, judge_version

    with open_judge(command, out, spending) as judge:
        arms = [partition.arm]
        if partition.control is not None:
            arms.append(partition.control)
        labels = []
        for arm in arms:
            with progress_bar("judging", unit="answers/s") as progress:
                labels.append(
                    judge_llm(
                        judge.completer,
                        arm.instances,
                        arm.guided,
                        seed=command.seed,
                        progress=progress,
                    )
                )
        notes = judge.notes()
    return dataclasses.replace(
        partition,
        llm=(labels[0], f"{judge.completer.name}, {judge_version()}"),
        llm_decides=True,
        llm_control=labels[1] if len(labels) > 1 else None,
        warnings=(*partition.warnings, *notes),
    )
