"""Planted models that stay in memory, and records that processes make of any task.

Dimension key
    M  models
    N  steps
    R  rows of a stream
    T  targets a row
"""

import dataclasses
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from eval.study import Records, say
from jaxcontam.models.decoder import Decoder
from jaxcontam.pools import Failure, in_this_process, over_processes
from jaxcontam.processes import cpu_cores, keep_freed_memory
from jaxcontam.progress import progress_bar
from jaxcontam.scoring.identity import keep_compiled
from train.population_device import train_scanned, train_together
from train.population_models import (
    Design,
    DivergedError,
    PlannedModel,
    Texts,
    last_loss,
    n_parameters,
    plan_model,
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
    decoder, losses_N = train_scanned(design.config, planned.rows, seed=seed)
    seconds = time.process_time() - start
    return _trained(design, planned, decoder, losses_N, seconds)


def train_side_by_side(
    design: Design, texts: Texts, *, seeds: Sequence[int]
) -> list[TrainedModel | DivergedError]:
    """`train_model` for each seed, but for rounding, in one call under `vmap`.

    A model that diverged is an error in its place, and costs the others nothing.
    """
    start = time.process_time()
    planned = [plan_model(design, texts, seed=seed) for seed in seeds]
    rows_MRT = np.stack([one.rows for one in planned])
    graphdef, states, losses_MN = train_together(design.config, rows_MRT, seeds=seeds)
    states = jax.device_get(states)
    seconds = (time.process_time() - start) / len(seeds)
    found: list[TrainedModel | DivergedError] = []
    for m, one in enumerate(planned):
        state = jax.tree.map(operator.itemgetter(m), states)
        decoder = nnx.merge(graphdef, state)
        try:
            found.append(_trained(design, one, decoder, losses_MN[m], seconds))
        except DivergedError as e:
            found.append(e)
    return found


def _trained(
    design: Design,
    planned: PlannedModel,
    decoder: Decoder,
    losses_N: np.ndarray,
    seconds: float,
) -> TrainedModel:
    facts = {
        "seed": planned.seed,
        "n_parameters": n_parameters(decoder),
        "n_tokens": design.n_tokens,
        "n_planted_tokens": planned.stream.n_canary_ids,
        "loss": last_loss(losses_N),
        "train_seconds": seconds,
    }
    return TrainedModel(planned, decoder, facts)


def made_records(
    records: Records,
    tasks: Sequence[Task],
    inputs: Callable[[Task], tuple[Any, ...]],
    maker: Callable[[], Callable[[Task], Fields]],
    *,
    n_processes: int | None = None,
    of: str = "models",
) -> tuple[dict[Task, Fields], dict[str, str]]:
    """Records of tasks, and why those that are missing could not be made, by name.

    A killed run goes on where it stopped: a record is written before it is told of. By
    default there is a process a core.

    Args:
        records: Where they are kept.
        tasks: Their subjects.
        inputs: Name of the record of a task, and all that determines it.
        maker: Prepares a process, to which it is sent; returns what makes a record.
        n_processes: At most so many.
        of: What tasks are.
    """
    found = kept_records(records, tasks, inputs)
    missing = [task for task in tasks if task not in found]
    if found:
        say(f"keeping {len(found)} finished {of}")
    failures: dict[Task, str] = {}
    wanted = n_processes or cpu_cores()
    # Not by what is missing: the last of many is made as the others were, by a process
    # that is pinned to a core.
    outcomes = (
        in_this_process(_open, maker, missing)
        if wanted == 1
        else over_processes(
            _open, maker, missing, n_processes=min(wanted, len(missing))
        )
    )
    with progress_bar(of, unit=f"{of}/s") as progress:
        for number, (task, outcome) in enumerate(outcomes, 1):
            name, *given = inputs(task)
            if isinstance(outcome, Failure):
                failures[task] = outcome.reason
                say(f"{name}: {outcome.reason}")
            else:
                records.write(name, outcome, *given)
                found[task] = outcome
            progress(number, len(missing))
    # Where none of the first could be made.
    lost = [task for task in missing if task not in found and task not in failures]
    failures |= dict.fromkeys(lost, "not tried")
    return (
        {task: found[task] for task in tasks if task in found},
        {inputs(task)[0]: reason for task, reason in failures.items()},
    )


def kept_records(
    records: Records, tasks: Sequence[Task], inputs: Callable[[Task], tuple[Any, ...]]
) -> dict[Task, Fields]:
    """Records of the tasks that are finished."""
    read = {task: records.read(*inputs(task)) for task in tasks}
    return {task: fields for task, fields in read.items() if fields is not None}


def _open(maker: Callable[[], Callable[[Task], Fields]]) -> Callable[[Task], Fields]:
    """Set up a process; returns the function that makes a record."""
    keep_freed_memory()
    keep_compiled()
    make = maker()

    def made(task: Task) -> Fields:
        cpu = time.process_time()
        fields = make(task)
        return {**fields, "cpu_seconds": time.process_time() - cpu}

    return made
