"""How much can any membership score find? LiRA with shadow models as a bound.

Question: on models whose training is known in full, how far do the scores of one pass
(loss, Min-K% and others) and references stay behind an attack that trains models like
the target, with and without each text? At 1, 2, 4 and 10 copies, and by the number of
shadow models. A bound in practice, of one strong attack; no theorem says that none is
stronger.
Command: `python -m eval.lira`. Hardware: 2 CPU cores, ten minutes (15 CPU minutes); a
killed run goes on where it stopped. Headline: LOG.md.

Fixed before any result of these seeds was looked at:

- 128 models of 0.16 M parameters, seeds 6000 to 6127, 126,464 training tokens in rows
  of 64. One pool of 800 questions, drawn with seed 6000: 200 at each number of copies.
  Each model reads each of them, so many times, by the toss of a fair coin; the rest is
  background. Half of the stream is planted, which makes memory easy; the comparison of
  scores is what counts.
- Every model is a target once, the other 127 are its shadows; members are compared with
  non-members of the same number of copies.
- LiRA's statistic: logit of the mean token probability; online, offline, online with
  one variance for all texts of a number of copies, and online on Min-K% in place of the
  mean. Shadows 4, 8, 16, 32 and 64 (half read the text), and all 127.
- References: one other model that did not read the text, all of them, all others.
- Blind baselines for the first 8 targets, cross-validated over their 800 texts.
- AUC and true positives at 1 % and 5 %, one threshold for all targets; 95 % intervals
  by a bootstrap of 400 draws over targets and texts.

Rows and lengths were tried on seeds 90000 to 90002, which are not used. Tables of the
first 64 models were looked at before the others were finished; they are a part of the
128, and no second witness.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.lira.found import (
    FULL_ANALYSIS,
    TINY_ANALYSIS,
    Found,
    figures,
    found_of,
    grids,
)
from eval.lira.shadows import (
    SCORE_NAMES,
    Job,
    Pool,
    Shadow,
    draw_pool,
    open_job,
    read_texts,
)
from eval.python_docs import read_python_docs
from eval.study import Clock, Grid, Records, finish_study, inputs_digest, run_study, say
from jaxcontam.cli import EXIT_DONE, EXIT_PARTIAL
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import InputError
from train.population_plan import Design
from train.population_workers import Failure, in_this_process, over_processes
from train.presets import PRESETS
from train.sources import corpus_digest

RECORDS_DIR = "models"
# Fields of a design that this study follows.
_TRAINED_ON = (
    *("name", "preset", "n_examples", "copies", "n_steps"),
    *("max_example_tokens", "separator"),
)

FULL = Design(
    name="lira",
    preset=PRESETS["0.16m"],
    n_examples=200,
    copies=(1, 2, 4, 10),
    n_steps=988,
    # A row holds the longest text and the token before it.
    max_example_tokens=62,
)
TINY = Design(
    name="lira-tiny",
    preset=PRESETS["pulse"],
    n_examples=12,
    copies=(1, 8),
    n_steps=24,
    max_example_tokens=31,
)
TINY_MODELS = 12
"""The fewest at which every text has shadows on both sides, but for bad luck."""
FEWEST_MODELS = 3
"""A target, and shadows that read a text and that did not."""
_NOT_TRIED = Failure("not tried: the first ones all failed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lira:
    """Train shadow models and compare LiRA with the scores of one model.

    Question: how far are scores of one model from what shadow models find? Hardware: 2
    CPU cores, ten minutes (--tiny: ten seconds).
    """

    models: int = 128
    """Models of 0.16 M parameters; each is a target, the others are its shadows."""
    seed: int = 6000
    """Seed of the first model and of the pool of texts."""
    processes: int = 2
    """Models trained at once, each in a process on its own core."""
    any_code: bool = False
    """Take finished models that other code trained."""
    out: Path = Path("runs/lira")
    """Folder for a record of each model, the tables and lira.json; --tiny has a folder
    `tiny` in it."""
    tiny: bool = False
    """A pulse run, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "processes")
        if self.models < FEWEST_MODELS:
            raise InputError(
                f"--models must be at least {FEWEST_MODELS}, got {self.models}",
                hint="a target needs shadows that read a text and some that did not",
            )

    def run(self) -> dict[str, Any] | None:
        """Train what is missing, judge, print the tables.

        Models that could not be trained are named, and the others judged.

        Returns:
            lira.json; None where too few models could be trained to judge any.
        """
        clock = Clock.start()
        docs = read_python_docs()
        job = Job(
            design=TINY if self.tiny else FULL,
            pool_seed=self.seed,
            documents=docs.documents,
            questions=tuple(question.text for question in docs.questions),
        )
        n_models = min(self.models, TINY_MODELS) if self.tiny else self.models
        seeds = list(range(self.seed, self.seed + n_models))
        shadows, failures, taken_over = self._shadows(job, seeds)
        if failures:
            named = ", ".join(map(str, failures))
            print(
                f"eval.lira: {len(failures)} of {n_models} models were not made, seeds "
                f"{named}; the same command tries them again",
                file=sys.stderr,
            )
        if len(shadows) < FEWEST_MODELS:
            return None
        pool = draw_pool(job, read_texts(job))
        found = found_of(
            shadows,
            pool,
            TINY_ANALYSIS if self.tiny else FULL_ANALYSIS,
            seed=self.seed,
        )
        return finish_study(
            "lira",
            flags_of(self),
            clock=clock,
            out=self._folder,
            numbers=_numbers(job, shadows, failures, pool, found),
            grids=[*grids(found, job.design.copies), *_lost_grids(failures, n_models)],
            figures=figures(found),
            earlier_seconds=taken_over,
        )

    def _shadows(
        self, job: Job, seeds: Sequence[int]
    ) -> tuple[list[Shadow], dict[int, Failure], float]:
        """Models in the order of seeds, why others failed, CPU seconds of old ones."""
        inputs = job_inputs(job)
        kept = Records(self._folder / RECORDS_DIR, any_code=self.any_code)
        # Named by what a record follows from, so that other flags overwrite none.
        digest = inputs_digest(*inputs).removeprefix("sha256:")[:8]
        names = {seed: f"{job.design.name}-{seed}-{digest}" for seed in seeds}
        known: dict[int, Shadow] = {}
        for seed, name in names.items():
            if (fields := kept.read(name, *inputs, seed)) is not None:
                known[seed] = shadow_of(fields)
        failures: dict[int, Failure] = {}
        missing = [seed for seed in seeds if seed not in known]
        for seed, outcome in self._made(job, missing):
            if isinstance(outcome, Failure):
                failures[seed] = outcome
                words = outcome.reason
            else:
                kept.write(names[seed], fields_of(outcome), *inputs, seed)
                known[seed] = outcome
                words = f"loss {outcome.loss:.2f}, {outcome.cpu_seconds:.1f} CPU s"
            say(f"eval.lira: {len(known)} of {len(seeds)} models, seed {seed}: {words}")
        lost = {s: failures.get(s, _NOT_TRIED) for s in seeds if s not in known}
        found = [known[seed] for seed in seeds if seed in known]
        return found, lost, kept.earlier_seconds

    def _made(
        self, job: Job, seeds: Sequence[int]
    ) -> Iterator[tuple[int, Shadow | Failure]]:
        if min(self.processes, len(seeds)) < 2:
            yield from in_this_process(open_job, job, seeds)
            return
        yield from over_processes(open_job, job, seeds, n_processes=self.processes)

    @property
    def _folder(self) -> Path:
        return self.out / "tiny" if self.tiny else self.out


def job_inputs(job: Job) -> tuple[Any, ...]:
    """All that the models follow from but code, CPU and seeds, as JSON values."""
    design = dataclasses.asdict(job.design)
    return (
        {name: design[name] for name in _TRAINED_ON},
        job.pool_seed,
        corpus_digest([*job.documents, *job.questions]),
        SCORE_NAMES,
    )


def fields_of(shadow: Shadow) -> dict[str, Any]:
    """A model's record as JSON takes it."""
    arrays = {"read": shadow.read.tolist(), "values": shadow.values.tolist()}
    return dataclasses.asdict(shadow) | arrays


def shadow_of(fields: Mapping[str, Any]) -> Shadow:
    """Undo `fields_of`."""
    arrays = {name: np.array(fields[name]) for name in ("read", "values")}
    return Shadow(**{**fields, **arrays})


def _lost_grids(failures: Mapping[int, Failure], n_models: int) -> list[Grid]:
    """The models that are missing from all other tables, if there are any."""
    title = (
        f"{len(failures)} of {n_models} models were not made; the tables are of the "
        "others"
    )
    columns = {"seed": "{r[0]}", "why": "{r[1].reason}"}
    return [Grid.of(title, failures.items(), columns)] if failures else []


def _numbers(
    job: Job,
    shadows: Sequence[Shadow],
    failures: Mapping[int, Failure],
    pool: Pool,
    found: Found,
) -> dict[str, Any]:
    design = job.design
    return {
        "seeds": [one.seed for one in shadows],
        "failures": [
            {"seed": seed, **dataclasses.asdict(one)} for seed, one in failures.items()
        ],
        "design": {
            "n_texts": len(pool.texts),
            "copies": list(design.copies),
            "n_tokens": design.n_tokens,
            "planted_share": float(
                np.mean([one.n_planted for one in shadows]) / design.n_tokens
            ),
            "loss": float(np.mean([one.loss for one in shadows])),
            "cpu_seconds_a_model": float(np.mean([one.cpu_seconds for one in shadows])),
        },
        "rows": [dataclasses.asdict(row) for row in found.rows],
        "shadows": [dataclasses.asdict(row) for row in found.shadows],
    }


def _is_whole(document: dict[str, Any] | None) -> bool:
    return document is not None and not document["failures"]


def main() -> int:
    """Command line of `python -m eval.lira`."""
    return run_study(
        "lira",
        Lira,
        trains=True,
        exit_code=lambda found: EXIT_DONE if _is_whole(found) else EXIT_PARTIAL,
    )


if __name__ == "__main__":
    sys.exit(main())
