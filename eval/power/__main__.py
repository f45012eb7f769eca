"""Power of order tests on populations of planted models.

Question: how often does each order test find a set that a model saw 0 to 32 times? What
do shards, and 1,000 examples, change (`--only shards`)? How much of each pair must be
read and scored (`--only seam_20 seam_60 seam_150`)?
Command: `python -m eval.power`. Hardware: 2 CPU cores, two hours for each of the first
two populations of 1,000 models; a killed run goes on where it stopped. Headline:
docs/log has the tables.

What is made and tested was fixed before any result of its seeds was looked at:
eval/power/models.py. An easy setting: half of the training text is planted. It ranks
tests on small models; it is not their power on large ones.
"""

import dataclasses
import functools
import operator
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from eval.population import Fields, Task, kept_records, made_records
from eval.power.estimates import (
    dup50_rows,
    power_figures,
    power_grids,
    power_table,
    seam_grids,
)
from eval.power.models import POPULATIONS, PULSE, Population, inputs_of, maker
from eval.python_docs import read_python_docs
from eval.study import Clock, Records, ResumedFlags, finish_study, grouped, run_study
from jaxcontam.errors import InputError, check_names
from train.data import corpus_digest

_MODELS, _TINY_MODELS = 1000, 2
# Models side by side on one accelerator: some 2 GB at 0.16 M parameters.
_TOGETHER = 256
# Of populations that take minutes a model.
_FEWER = {"shards": 20, "seam_20": 20, "seam_60": 20, "seam_150": 20}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Power(ResumedFlags):
    """Train populations of planted models and tabulate the power of every order test.

    Hardware: 2 CPU cores, two hours a population (--tiny: 20 seconds).
    """

    only: tuple[str, ...] = ()
    """Populations to make: main, direction, shards, seam_20, seam_60, seam_150
    (default: all). Tables show all that are finished."""
    models: int | None = None
    """Models of each (default: 1,000; shards and seams 20)."""
    processes: int | None = None
    """Processes that make models (default: one a core)."""
    together: int | None = None
    """Models that one process trains side by side, under vmap (default: 256 on an
    accelerator; 1 on a CPU, where processes are faster)."""
    out: Path = Path("runs/power")
    """Folder for a record of each model, tables and figures; finished models stay."""

    positive = ("models", "processes", "together")

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        check_names("population", self.only, POPULATIONS)
        if self.tiny and self.only:
            raise InputError("--tiny has a population of its own", hint="drop --only")
        if self.together is not None and self.processes is not None:
            raise InputError("--together and --processes exclude each other")

    def run(self) -> dict[str, Any]:
        """Train and test what is missing, print tables; returns the numbers."""
        clock = Clock.start()
        # A pulse run leaves the tables of the study alone.
        folder = self.out / "tiny" if self.tiny else self.out
        docs = read_python_docs()
        questions = tuple(question.text for question in docs.questions)
        corpus = corpus_digest([*docs.documents, *questions])
        kept = Records(folder / "models", any_code=self.any_code)
        inputs = functools.partial(inputs_of, corpus)
        populations = {"pulse": PULSE} if self.tiny else POPULATIONS
        wanted = [populations[name] for name in self.only or populations]
        tasks = self._tasks(wanted)
        finished = kept_records(kept, tasks, inputs)
        chunks = self._chunks([task for task in tasks if task not in finished])
        found, failures = made_records(
            kept,
            tasks,
            inputs,
            functools.partial(maker, docs.documents, questions, chunks=chunks),
            n_processes=1 if chunks else self.processes,
        )
        # One table of all that is finished.
        others = [one for one in populations.values() if one not in wanted]
        found |= kept_records(kept, self._tasks(others), inputs)
        by_kind = grouped(found.values(), lambda one: one["design"].startswith("seam"))
        records, seams = by_kind.get(False, []), by_kind.get(True, [])
        table, dup50 = power_table(records), dup50_rows(records)
        by_design = grouped(records, lambda record: record["design"])
        about = [_about(name, own) for name, own in by_design.items()]
        return finish_study(
            "power",
            self,
            clock=clock,
            out=folder,
            numbers={
                "model_cpu_seconds": sum(one["cpu_seconds"] for one in found.values()),
                "seams": seams,
                "populations": about,
                "power": [dataclasses.asdict(row) for row in table],
                "dup50": [dataclasses.asdict(row) for row in dup50],
                "corpus_digest": corpus,
                "failed": failures,
            },
            grids=[*power_grids(table, dup50, about), *seam_grids(seams)],
            figures=power_figures(table),
            earlier_seconds=kept.earlier_seconds,
        )

    def _chunks(self, tasks: Sequence[Task]) -> list[list[Task]]:
        """Models that are trained side by side; none where each is trained alone."""
        size = self.together
        if size is None:
            is_alone = self.processes is not None or jax.default_backend() == "cpu"
            size = 1 if is_alone else _TOGETHER
        of_population = grouped(tasks, lambda task: task[0].name).values()
        return [
            own[i : i + size]
            for own in of_population
            for i in range(0, len(own), size)
            if size > 1
        ]

    def _tasks(self, populations: Sequence[Population]) -> list[Task]:
        usual = _TINY_MODELS if self.tiny else _MODELS
        return [
            (one, one.first_seed + self.seed + i)
            for one in populations
            for i in range(self.models or _FEWER.get(one.name, usual))
        ]


def _about(name: str, found: Sequence[Fields]) -> dict[str, Any]:
    """Models trained in a population, with CPU seconds."""

    def mean(value: Callable[[Fields], float]) -> float:
        return statistics.fmean(map(value, found))

    means = ("loss", "train_seconds", "test_seconds", "cpu_seconds")
    return {
        "name": name,
        "seeds": [record["seed"] for record in found],
        **{f: found[0][f] for f in ("n_parameters", "n_examples", "n_tokens")},
        "canary_share": mean(lambda one: one["n_planted_tokens"] / one["n_tokens"]),
        **{field: mean(operator.itemgetter(field)) for field in means},
    }


if __name__ == "__main__":
    sys.exit(run_study("power", Power, trains=True))
