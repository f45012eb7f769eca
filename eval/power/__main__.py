"""Power of order tests on populations of planted models.

Question: how often does each order test find a set that a model saw 0 to 32 times, and
how does that follow the number of examples, shards and orders, the size of the model,
the position in training and the share of the stream?
Command: `python -m eval.power`. Hardware: 2 CPU cores, four to five hours for all
populations (`--only main`: one hour for 1,000 models); a killed run goes on where it
stopped. Headline: LOG.md has the tables.

What is made and tested was fixed before any result of its seeds was looked at:
eval/power/designs.py. An easy setting: half of the training text is planted. It ranks
tests on small models; it is not their power on large ones.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.power.designs import (
    CUT,
    EXACT,
    LONG,
    PAPER,
    POPULATIONS,
    PULSE,
    Population,
)
from eval.power.figures import power_figures
from eval.power.model import ModelRecord
from eval.power.records import RECORDS_DIR, read_record, record_key, record_path
from eval.power.table import compare, dup50_rows, power_table
from eval.power.words import power_grids
from eval.power.workers import Job, made
from eval.python_docs import read_python_docs
from eval.study import Clock, finish_study, run_study
from jaxcontam.cli import EXIT_PARTIAL
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.commands.progress import progress_bar
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.document import make_folder
from train.earlier import code_version
from train.population_workers import Failure, n_cores
from train.sources import corpus_digest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Train populations of planted models and tabulate the power of every order test.

    Hardware: 2 CPU cores, four to five hours for all (--tiny: 20 seconds).
    """

    only: tuple[str, ...] = ()
    """Populations to make (default: all): main direction examples shards position
    size-... share-... ladder long quickstart. Tables show all that are finished."""
    models: int | None = None
    """Models of each (default: 1,000 of main and of direction, 200 of those that ask
    one question)."""
    seed: int = 0
    """Added to the seed of every model."""
    processes: int | None = None
    """Processes that make models (default: one a core)."""
    any_code: bool = False
    """Take finished models that other code made."""
    out: Path = Path("runs/power")
    """Folder for a record of each model, tables and figures; finished models stay."""
    tiny: bool = False
    """A pulse run of seconds, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models", "processes")
        for name in self.only:
            if name not in POPULATIONS:
                raise unknown_name("population", name, POPULATIONS)
        if self.tiny and self.only:
            raise InputError("--tiny has a population of its own", hint="drop --only")

    def run(self) -> int:
        """Train and test what is missing, print tables; returns the exit code."""
        clock = Clock.start()
        console = Console()
        make_folder(self._folder / RECORDS_DIR)
        docs = read_python_docs()
        questions = tuple(question.text for question in docs.questions)
        job = Job(
            out=self._folder,
            documents=docs.documents,
            questions=questions,
            corpus=corpus_digest([*docs.documents, *questions]),
            code=code_version(),
        )
        found = {
            task: self._finished(job, population, seed)
            for population in self._populations()
            for seed in self._seeds(population)
            for task in [(population.study, seed)]
        }
        missing = [task for task, record in found.items() if record is None]
        taken = [record for record in found.values() if record is not None]
        if taken:
            print(f"keeping {len(taken)} finished models", file=sys.stderr)
        failures: list[dict[str, Any]] = []
        with progress_bar("models", unit="models/s") as progress:
            n_processes = self.processes or n_cores()
            for number, (task, outcome) in enumerate(
                made(job, missing, n_processes=n_processes), 1
            ):
                if isinstance(outcome, Failure):
                    failures.append(
                        {"population": task[0].name, "seed": task[1], **_why(outcome)}
                    )
                    print(
                        f"{task[0].name} {task[1]}: {outcome.reason}", file=sys.stderr
                    )
                else:
                    found[task] = outcome
                progress(number, len(missing))
        records = [record for record in found.values() if record is not None]
        n_lost = len(found) - len(records)
        others = self._other_records(job)
        if records or others:
            taken += others
            self._finish([*records, *others], taken, failures, job, clock, console)
        if n_lost:
            print(
                f"{n_lost} models were not made; the same command tries these again",
                file=sys.stderr,
            )
        return EXIT_PARTIAL if n_lost else 0

    def _finish(
        self,
        records: list[ModelRecord],
        taken: list[ModelRecord],
        failures: list[dict[str, Any]],
        job: Job,
        clock: Clock,
        console: Console,
    ) -> None:
        """Tables, figures and numbers of the models that are there."""
        table = power_table(records)
        dup50 = dup50_rows(records)
        long = [record for record in records if record.design == LONG.name]
        target = [
            row
            for test in EXACT
            for row in compare(long, test, PAPER, fewest_copies=4, cut=CUT)
        ]
        about = _populations(records)
        finish_study(
            "power",
            flags_of(self),
            clock=clock,
            out=self._folder,
            numbers={
                "corpus_digest": job.corpus,
                "model_cpu_seconds": sum(r.cpu_seconds for r in records),
                "populations": about,
                "power": [dataclasses.asdict(row) for row in table],
                "dup50": [dataclasses.asdict(row) for row in dup50],
                "target": [dataclasses.asdict(row) for row in target],
                "failures": failures,
            },
            grids=power_grids(table, dup50, target, about),
            figures=power_figures(table),
            console=console,
            earlier_seconds=sum(record.cpu_seconds for record in taken),
        )

    @property
    def _folder(self) -> Path:
        """A pulse run leaves the tables of the study alone."""
        return self.out / "tiny" if self.tiny else self.out

    def _other_records(self, job: Job) -> list[ModelRecord]:
        """Finished models of populations that were not asked for: one table of all."""
        if self.tiny or not self.only:
            return []
        return [
            record
            for name, population in POPULATIONS.items()
            if name not in self.only
            for seed in self._seeds(population)
            if (record := self._finished(job, population, seed)) is not None
        ]

    def _populations(self) -> list[Population]:
        if self.tiny:
            return [Population(study=PULSE, n_models=2, first_seed=1000)]
        return [POPULATIONS[name] for name in self.only or POPULATIONS]

    def _seeds(self, population: Population) -> range:
        first = population.first_seed + self.seed
        return range(first, first + (self.models or population.n_models))

    def _finished(
        self, job: Job, population: Population, seed: int
    ) -> ModelRecord | None:
        """The record of a model that the same inputs and, if asked, code made."""
        study = population.study
        # Where git cannot tell the code, an old record may be another code's.
        if job.code is None and not self.any_code:
            return None
        code = None if self.any_code else job.code
        key = record_key(study, seed, corpus=job.corpus, code=code)
        return read_record(record_path(job.out, study, seed), key)


def _why(failure: Failure) -> dict[str, str]:
    return dataclasses.asdict(failure)


def _populations(records: list[ModelRecord]) -> list[dict[str, Any]]:
    """What was trained, by population."""
    by_name: dict[str, list[ModelRecord]] = {}
    for record in records:
        by_name.setdefault(record.design, []).append(record)
    return [
        {
            "name": name,
            "seeds": [record.seed for record in found],
            "n_parameters": found[0].n_parameters,
            "n_examples": found[0].n_examples,
            "n_tokens": found[0].n_tokens,
            "canary_share": _mean([r.n_canary_tokens / r.n_tokens for r in found]),
            "loss": _mean([r.loss for r in found]),
            "train_seconds": _mean([r.train_seconds for r in found]),
            "test_seconds": _mean([r.test_seconds for r in found]),
            "cpu_seconds": _mean([r.cpu_seconds for r in found]),
        }
        for name, found in by_name.items()
    ]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    """Command line of `python -m eval.power`."""
    return run_study("power", Power, trains=True)


if __name__ == "__main__":
    sys.exit(main())
