"""Planted models that stay in memory, and records that processes make of any task."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from eval.study import Records, say
from jaxcontam.members.passes import TextModel, text_model
from jaxcontam.models.decoder import Decoder
from jaxcontam.processes import (
    Failure,
    cpu_cores,
    in_this_process,
    keep_freed_memory,
    over_processes,
)
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.identity import keep_compiled
from jaxcontam.scoring.in_memory import opened_decoder
from train.population_models import (
    Design,
    PlannedModel,
    Texts,
    last_loss,
    n_parameters,
    plan_model,
    train_scanned,
)

Task = Any
"""Subject of a record, such as a population and a seed: hashable."""

Fields = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A model with its sets, and its seed, sizes, last loss and CPU seconds."""

    planned: PlannedModel
    decoder: Decoder
    facts: Fields


def train_model(design: Design, texts: Texts, *, seed: int) -> TrainedModel:
    """Draw sets, plant them, train."""
    start = time.process_time()
    planned = plan_model(design, texts, seed=seed)
    decoder, losses = train_scanned(design.config, planned.rows, seed=seed)
    facts = {
        "seed": seed,
        "n_parameters": n_parameters(decoder),
        "n_tokens": design.n_tokens,
        "n_planted_tokens": planned.stream.n_canary_ids,
        "loss": last_loss(losses),
        "train_seconds": time.process_time() - start,
    }
    return TrainedModel(planned, decoder, facts)


def reader_of(
    decoder: Decoder, texts: Texts, *, batch_tokens: int | None = None
) -> TextModel:
    """A model with its scorers; `batch_tokens` as of `local_scorer`."""
    opened = opened_decoder(decoder, texts.tokenizer)
    opened = dataclasses.replace(opened, prefix_id=texts.prefix_id)
    return text_model(opened, store=None, batch_tokens=batch_tokens)


class Job(Protocol):
    """Inputs that a process needs to make the record of any task."""

    @property
    def records(self) -> Records:
        """Folder of the records."""
        ...

    def inputs(self, task: Task) -> tuple[Any, ...]:
        """Name of the record, and all that determines it."""
        ...

    def maker(self) -> Callable[[Task], Fields]:
        """Prepare a process; returns what makes a record."""
        ...


def made_records(
    job: Job,
    tasks: Sequence[Task],
    *,
    n_processes: int | None = None,
    of: str = "models",
) -> tuple[dict[Task, Fields], dict[Task, Failure]]:
    """Records of tasks, and why those that are missing could not be made.

    A killed run goes on where it stopped: a record is written before it is told of. By
    default there is a process a core; `of` says what tasks are.
    """
    found = kept_records(job, tasks)
    missing = [task for task in tasks if task not in found]
    if found:
        say(f"keeping {len(found)} finished {of}")
    failures: dict[Task, Failure] = {}
    wanted = n_processes or cpu_cores()
    # Not by what is missing: the last of many is made as the others were, by a process
    # that is pinned to a core.
    outcomes = (
        in_this_process(_open, job, missing)
        if wanted == 1
        else over_processes(_open, job, missing, n_processes=min(wanted, len(missing)))
    )
    with progress_bar(of, unit=f"{of}/s") as progress:
        for number, (task, outcome) in enumerate(outcomes, 1):
            if isinstance(outcome, Failure):
                failures[task] = outcome
                say(f"{job.inputs(task)[0]}: {outcome.reason}")
            else:
                found[task] = outcome
            progress(number, len(missing))
    # Where none of the first could be made.
    lost = [task for task in missing if task not in found and task not in failures]
    failures |= dict.fromkeys(lost, Failure("not tried"))
    return {task: found[task] for task in tasks if task in found}, failures


def kept_records(job: Job, tasks: Sequence[Task]) -> dict[Task, Fields]:
    """Records of the tasks that are finished."""
    read = {task: job.records.read(*job.inputs(task)) for task in tasks}
    return {task: fields for task, fields in read.items() if fields is not None}


def _open(job: Job) -> Callable[[Task], Mapping[str, Any]]:
    """Set up a process; returns the function that makes a record and writes it."""
    keep_freed_memory()
    keep_compiled()
    make = job.maker()

    def made(task: Task) -> Fields:
        cpu = time.process_time()
        fields = make(task)
        fields["cpu_seconds"] = time.process_time() - cpu
        name, *inputs = job.inputs(task)
        job.records.write(name, fields, *inputs)
        return fields

    return made
