"""Commands that are asked, and what a process must know to count what they say."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.clean_files import answers, matrices, members, orders
from eval.clean_files.findings import Finding, Tally, tallied
from eval.study import Records

Ask = Callable[[int, Path], Iterator[Finding]]
"""(number of a file, folder for it) -> what is said of it."""

COMMANDS: Mapping[str, tuple[Ask, float]] = {
    "released": (orders.released, 1.0),
    "shuffled": (orders.shuffled, 1.0),
    "natural": (orders.natural, 0.4),
    "options": (orders.options, 1.0),
    "labelled": (members.labelled, 0.15),
    "asked": (members.asked, 0.2),
    "reference": (members.beside_reference, 0.06),
    "replicate": (answers.replicate, 1.0),
    "inflation": (answers.inflation, 1.0),
    "prove": (matrices.prove, 1.0),
    "canary": (matrices.canary, 1.0),
    "chat": (matrices.canary_chat, 1.0),
    "variants": (matrices.variants, 1.0),
}
"""Commands, and the share of `--n-files` that each is asked about: less of what costs
more, such as the baselines of `membership`."""

# Files of a task.
_CHUNK = 25

Task = tuple[str, int, int]
"""A command, its first file, and the one after its last."""


def tasks_of(name: str, n_files: int, seed: int) -> list[Task]:
    """A command's share of files, from file `seed` on."""
    end = seed + max(1, round(COMMANDS[name][1] * n_files))
    starts = range(seed, end, _CHUNK)
    return [(name, start, min(start + _CHUNK, end)) for start in starts]


def counted(task: Task) -> dict[str, Tally]:
    """Findings of a command on some files, by cell."""
    name, start, end = task
    findings: list[Finding] = []
    for number in range(start, end):
        with tempfile.TemporaryDirectory() as folder:
            findings += COMMANDS[name][0](number, Path(folder))
    return tallied(findings)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Inputs that a process needs to ask any command."""

    records: Records

    def inputs(self, task: Task) -> tuple[Any, ...]:
        """Name of a record, and the files that determine it."""
        return "{}-{}-{}".format(*task), *task

    def maker(self) -> Callable[[Task], dict[str, Any]]:
        """Returns what counts."""
        return lambda task: {"cells": counted(task)}
