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

Rows and lengths were tried on seeds 90000 to 90002, which are not used.
"""

import dataclasses
import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from eval.lira.found import FULL_ANALYSIS, TINY_ANALYSIS, Found, found_of
from eval.lira.shadows import (
    SCORE_NAMES,
    Job,
    Pool,
    Shadow,
    draw_pool,
    open_job,
    read_texts,
)
from eval.lira.table import figures, grids
from eval.python_docs import read_python_docs
from eval.study import Clock, finish_study
from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import InputError
from jaxcontam.report.document import make_folder
from jaxcontam.scoring.identity import cpu_name
from train.allocator import keep_freed_memory
from train.earlier import code_version
from train.population_plan import Design
from train.population_workers import Failure, over_processes
from train.presets import PRESETS
from train.sources import corpus_digest

RECORDS_DIR = "models"
_WIDTH = 140
# Fields of a design that this study follows.
_TRAINED_ON = (
    "name",
    "preset",
    "n_examples",
    "copies",
    "n_steps",
    "max_example_tokens",
    "separator",
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lira:
    """Train shadow models and compare LiRA with the scores of one model.

    Question: how far are scores of one model from what shadow models find? Hardware: 2
    CPU cores, ten minutes (--tiny: ten seconds).
    """

    models: int = 128
    """Models of 0.16 M parameters; each is a target, the others are its shadows."""
    seed: int = 6000
    """Of the first model, and of the pool of texts."""
    processes: int = 2
    """Models trained at once, each in a process on a core of its own."""
    any_code: bool = False
    """Take finished models that other code trained."""
    out: Path = Path("runs/lira")
    """Folder for a record of each model, the tables and lira.json."""
    tiny: bool = False
    """A pulse run, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "processes")
        if self.models < 3:
            raise InputError(
                f"--models must be at least 3, got {self.models}",
                hint="a target needs shadows that read a text and some that did not",
            )

    def run(self) -> dict[str, Any]:
        """Train what is missing, judge, print the tables; returns lira.json."""
        clock = Clock.start()
        # Columns with intervals are wide; a cut number would be worse than a long line.
        console = Console(width=max(_WIDTH, Console().width))
        docs = read_python_docs()
        job = Job(
            design=TINY if self.tiny else FULL,
            pool_seed=self.seed,
            documents=docs.documents,
            questions=tuple(question.text for question in docs.questions),
        )
        n_models = min(self.models, TINY_MODELS) if self.tiny else self.models
        seeds = list(range(self.seed, self.seed + n_models))
        make_folder(self.out / RECORDS_DIR)
        shadows, taken_over = self._shadows(job, seeds)
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
            out=self.out,
            numbers=_numbers(job, shadows, pool, found),
            grids=grids(found, job.design.copies),
            figures=figures(found),
            console=console,
            earlier_seconds=taken_over,
        )

    def _shadows(self, job: Job, seeds: Sequence[int]) -> tuple[list[Shadow], float]:
        """All models in the order of their seeds; CPU seconds of those found here."""
        digest, code = job_digest(job), code_version()
        known: dict[int, Shadow] = {}
        for seed in seeds:
            record = read_record(
                self._record(seed), digest, None if self.any_code else code or ""
            )
            if record is not None:
                known[seed] = record
        taken_over = sum(one.cpu_seconds for one in known.values())
        missing = [seed for seed in seeds if seed not in known]
        for seed, shadow in self._made(job, missing):
            write_record(self._record(seed), digest, code, shadow)
            known[seed] = shadow
            print(
                f"eval.lira: {len(known)} of {len(seeds)} models, seed {seed}, loss "
                f"{shadow.loss:.2f}, {shadow.cpu_seconds:.1f} CPU s",
                file=sys.stderr,
                flush=True,
            )
        return [known[seed] for seed in seeds], taken_over

    def _made(self, job: Job, seeds: Sequence[int]) -> Iterator[tuple[int, Shadow]]:
        if min(self.processes, len(seeds)) < 2:
            make = open_job(job) if seeds else None
            yield from ((seed, make(seed)) for seed in seeds if make is not None)
            return
        for seed, outcome in over_processes(
            open_job, job, seeds, n_processes=self.processes
        ):
            if isinstance(outcome, Failure):
                raise RuntimeError(f"model {seed}: {outcome.reason}\n{outcome.details}")
            yield seed, outcome

    def _record(self, seed: int) -> Path:
        return self.out / RECORDS_DIR / f"{seed}.npz"


def job_digest(job: Job) -> str:
    """Of all that the models follow from, but for the code."""
    design = dataclasses.asdict(job.design)
    inputs = [
        {name: design[name] for name in _TRAINED_ON},
        job.pool_seed,
        corpus_digest([*job.documents, *job.questions]),
        SCORE_NAMES,
        cpu_name(),
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def write_record(path: Path, digest: str, code: str | None, shadow: Shadow) -> None:
    """Write a record whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            digest=np.array(digest),
            code=np.array(code or ""),
            **dataclasses.asdict(shadow),
        )
    partial.replace(path)


def read_record(path: Path, digest: str, code: str | None) -> Shadow | None:
    """A finished model's record, if it stands there.

    Args:
        path: Of the record.
        digest: Of the job.
        code: That trained it; None takes any, an empty one none, as where git cannot
            tell, an old record may be another code's.
    """
    try:
        # NumPy leaves a file open that is no archive.
        with path.open("rb") as stream, np.load(stream) as file:
            fields = {name: file[name] for name in file.files}
        same_code = code is None or (code != "" and str(fields.pop("code")) == code)
        fields.pop("code", None)
        if str(fields.pop("digest")) != digest or not same_code:
            return None
        return Shadow(
            **{
                name: value.item() if value.ndim == 0 else value
                for name, value in fields.items()
            }
        )
    except (OSError, EOFError, zipfile.BadZipFile, ValueError, KeyError, TypeError):
        return None


def _numbers(
    job: Job, shadows: Sequence[Shadow], pool: Pool, found: Found
) -> dict[str, Any]:
    design = job.design
    return {
        "seeds": [one.seed for one in shadows],
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


def main() -> int:
    """Command line of `python -m eval.lira`."""
    keep_freed_memory()
    return run_command(
        lambda: parse(Lira, sys.argv[1:], prog="python -m eval.lira").run(),
        name="eval.lira",
    )


if __name__ == "__main__":
    sys.exit(main())
