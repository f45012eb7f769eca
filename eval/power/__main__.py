"""Power of order tests on populations of planted models.

Question: how often does each order test find a set that a model saw 0 to 32 times?
Command: `python -m eval.power`. Hardware: 2 CPU cores, two hours for each of both
populations of 1,000 models; a killed run goes on where it stopped. Headline: docs/log
has the tables.

What is made and tested was fixed before any result of its seeds was looked at:
eval/power/designs.py. An easy setting: half of the training text is planted. It ranks
tests on small models; it is not their power on large ones.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.power.designs import POPULATIONS, PULSE, Population
from eval.power.estimates import dup50_rows, power_grids, power_table
from eval.power.figures import power_figures
from eval.power.model import Job, ModelRecord, Task, made
from eval.python_docs import read_python_docs
from eval.study import Clock, Records, StudyFlags, finish_study, grouped, run_study, say
from jaxcontam.cli.main import EXIT_PARTIAL
from jaxcontam.errors import InputError, check_names
from jaxcontam.processes import Failure, cpu_cores
from jaxcontam.progress import progress_bar
from train.data import corpus_digest

RECORDS_DIR = "models"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Power(StudyFlags):
    """Train populations of planted models and tabulate the power of every order test.

    Hardware: 2 CPU cores, two hours a population (--tiny: 20 seconds).
    """

    only: tuple[str, ...] = ()
    """Populations to make, main or direction (default: both). Tables show all that are
    finished."""
    models: int | None = None
    """Models of each (default: 1,000)."""
    processes: int | None = None
    """Processes that make models (default: one a core)."""
    any_code: bool = False
    """Take finished models that other code made."""
    out: Path = Path("runs/power")
    """Folder for a record of each model, tables and figures; finished models stay."""

    positive = ("models", "processes")

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        check_names("population", self.only, POPULATIONS)
        if self.tiny and self.only:
            raise InputError("--tiny has a population of its own", hint="drop --only")

    def run(self) -> int:
        """Train and test what is missing, print tables; returns the exit code."""
        clock = Clock.start()
        # A pulse run leaves the tables of the study alone.
        folder = self.out / "tiny" if self.tiny else self.out
        docs = read_python_docs()
        questions = tuple(question.text for question in docs.questions)
        job = Job(
            records=Records(folder / RECORDS_DIR, any_code=self.any_code),
            documents=docs.documents,
            questions=questions,
            corpus=corpus_digest([*docs.documents, *questions]),
        )
        found = self._finished(job, self._populations())
        missing = [task for task, record in found.items() if record is None]
        if len(missing) < len(found):
            say(f"keeping {len(found) - len(missing)} finished models")
        failures: list[dict[str, Any]] = []
        with progress_bar("models", unit="models/s") as progress:
            n_processes = self.processes or cpu_cores()
            for number, ((study, seed), outcome) in enumerate(
                made(job, missing, n_processes=n_processes), 1
            ):
                if isinstance(outcome, Failure):
                    why = dataclasses.asdict(outcome)
                    failures.append({"population": study.name, "seed": seed, **why})
                    say(f"{study.name} {seed}: {outcome.reason}")
                else:
                    found[study, seed] = outcome
                progress(number, len(missing))
        n_lost = sum(record is None for record in found.values())
        if self.only and not self.tiny:
            # One table of all that is finished.
            found |= self._finished(
                job, [one for name, one in POPULATIONS.items() if name not in self.only]
            )
        records = [record for record in found.values() if record is not None]
        if records:
            self._finish(
                records,
                {"corpus_digest": job.corpus, "failures": failures},
                clock=clock,
                out=folder,
                earlier_seconds=job.records.earlier_seconds,
            )
        if n_lost:
            say(f"{n_lost} models were not made; the same command tries these again")
        return EXIT_PARTIAL if n_lost else 0

    def _populations(self) -> list[Population]:
        if self.tiny:
            return [PULSE]
        return [POPULATIONS[name] for name in self.only or POPULATIONS]

    def _finished(
        self, job: Job, populations: Sequence[Population]
    ) -> dict[Task, ModelRecord | None]:
        """Every model of some populations, those with a record and those without."""
        return {
            (one.study, seed): job.finished(one.study, seed)
            for one in populations
            for first in (one.first_seed + self.seed,)
            for seed in range(first, first + (self.models or one.n_models))
        }

    def _finish(
        self, records: Sequence[ModelRecord], more: Mapping[str, Any], **finish: Any
    ) -> None:
        """Tables, figures and numbers of the models that are there."""
        table, dup50 = power_table(records), dup50_rows(records)
        about = [
            _about(name, own)
            for name, own in grouped(records, lambda r: r.design).items()
        ]
        finish_study(
            "power",
            self,
            numbers={
                "model_cpu_seconds": sum(r.cpu_seconds for r in records),
                "populations": about,
                "power": [dataclasses.asdict(row) for row in table],
                "dup50": [dataclasses.asdict(row) for row in dup50],
                **more,
            },
            grids=power_grids(table, dup50, about),
            figures=power_figures(table),
            **finish,
        )


def _about(name: str, found: Sequence[ModelRecord]) -> dict[str, Any]:
    """What was trained in a population."""
    means = ("loss", "train_seconds", "test_seconds", "cpu_seconds")
    shares = [record.n_canary_tokens / record.n_tokens for record in found]
    return {
        "name": name,
        "seeds": [record.seed for record in found],
        "n_parameters": found[0].n_parameters,
        "n_examples": found[0].n_examples,
        "n_tokens": found[0].n_tokens,
        "canary_share": sum(shares) / len(found),
        **{
            field: sum(getattr(record, field) for record in found) / len(found)
            for field in means
        },
    }


if __name__ == "__main__":
    sys.exit(run_study("power", Power, trains=True))
