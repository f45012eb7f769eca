"""Public models by public benchmarks: was any of them seen in its published order?

Question: of every pair of a model and a benchmark, what p-value and which smallest
detectable effect, and which verdicts stand once the whole table is corrected for?
Oren et al., arXiv:2310.17623, table 2: five open models, eight benchmarks.
Command: `python -m eval.public --models A,B --benchmarks X,Y`. Hardware: what
`jaxcontam audit A X` needs, once a pair; a model is loaded once. Headline: LOG.md.

Fixed before looking: the deciding test of each benchmark (`--tests` or `--effort`, the
same for all models), the seed, and Holm over all cells that were tested. A benchmark
whose own order is not random keeps its cell, which says so.

No public model was at hand here. What stands in LOG.md is the table of two models made
here, each the other's control: that of `eval.canaries` (published copies) and that of
`eval.quickstart` (seed 0), both on the first 100 lines of each of the former's 20 files
(ten planted, ten held out), examples cut to 48 tokens as in training, standard effort,
seed 0.

Each cell is `jaxcontam audit MODEL BENCHMARK` with its own folder, under
OUT/cells, that `jaxcontam verify` checks. A killed run goes on where it stopped;
finished cells are kept as long as command, model, file and code are the same, and what
is audited again scores nothing twice. A cell that fails is named, costs no other cell,
and makes the exit code 3.
"""

import dataclasses
import gc
import sys
import time
from pathlib import Path
from typing import Any, Literal

from eval.public.cells import Cell, Outcome, finished, open_once, plan_cell, run_cell
from eval.public.entries import Entry, Flags, read_entries
from eval.public.table import (
    decided_cells,
    failed_cells,
    grids,
    heat_map,
    refused_cells,
    wide_words,
)
from eval.study import Clock, finish_study, run_study, say
from jaxcontam.cli import EXIT_DONE, EXIT_PARTIAL
from jaxcontam.commands.flags import check_positive, check_shared_flags, flags_of
from jaxcontam.errors import InputError
from jaxcontam.report.document import make_folder
from jaxcontam.verdict import MIN_EFFECT
from train.earlier import code_version

_TINY_LIMIT = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """Audit every model on every benchmark, and correct for the whole table.

    Hardware: what `jaxcontam audit` needs for one cell at a time (--tiny: seconds a
    cell).
    """

    models: tuple[str, ...]
    """Model folders, hub names; with commas or spaces; api:URL#NAME, with spaces alone;
    or .toml files with a table for each: [name], model = "...", flags of `jaxcontam
    audit`."""
    benchmarks: tuple[str, ...]
    """Files in published order, hf:ORG/NAME:SPLIT, lm_eval:TASK; likewise; or .toml
    files: [name], benchmark = "...", template = "...", group_field, limit, tests ..."""
    tests: str | None = None
    """Order tests, comma-separated; the first one decides."""
    effort: Literal["quick", "standard", "thorough"] = "standard"
    """Which tests, unless --tests says it; see `jaxcontam audit --help`."""
    limit: int | None = None
    """Take the first N examples of each benchmark (the paper: 5000)."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""
    min_effect: float = MIN_EFFECT
    """Nats a boundary that `no evidence` must have been able to find."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the operands of matrix products."""
    batch_tokens: int | None = None
    """Tokens a batch (default: by device)."""
    mesh: str | None = None
    """How devices share the work, such as data=4,model=2."""
    seed: int = 0
    """Seeds every random choice."""
    out: Path = Path("runs/public")
    """Folder for the cells, public.json, public.md and heatmap.svg."""
    tiny: bool = False
    """A pulse run: 20 examples and two passes, too few to detect anything."""

    def __post_init__(self) -> None:
        check_shared_flags(self.seed, self.min_effect)
        check_positive(self, "limit", "max_example_tokens", "batch_tokens")

    def run(self) -> dict[str, Any]:
        """Audit what is missing, write and print the table; returns public.json.

        Raises:
            InputError: If a flag, a name or a .toml file is at fault, or no cell at
                all could be tested.
        """
        clock = Clock.start()
        models = read_entries(self.models, "model")
        benchmarks = read_entries(self.benchmarks, "benchmark")
        if self.tiny:
            benchmarks = [_without_size(one) for one in benchmarks]
        planned = [
            [plan_cell(model, one, self._shared(), self.out) for one in benchmarks]
            for model in models
        ]
        make_folder(self.out)
        outcomes = _outcomes(planned, code_version())
        failed, refused = failed_cells(outcomes), refused_cells(outcomes)
        rows, decided = decided_cells(outcomes, min_effect=self.min_effect)
        names = [one.name for one in models], [one.name for one in benchmarks]
        # With no result at all too: an older table would pass for this one.
        document = finish_study(
            "public",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={
                "models": {one.name: one.word for one in models},
                "benchmarks": {one.name: one.word for one in benchmarks},
                "seed": self.seed,
                "min_effect": self.min_effect,
                "cells": rows,
                "refused": refused,
                "failed": failed,
            },
            grids=grids(rows, decided, refused, failed, *names),
            figures={
                "heatmap": heat_map(
                    [*rows, *refused], wide_words(rows, decided, refused), *names
                )
            },
            earlier_seconds=sum(one.cpu_seconds for one in outcomes if one.kept),
        )
        if not rows and not refused:
            raise InputError(
                f"none of {len(failed)} cells could be tested; of the first: "
                f"{failed[0]['error']}",
                hint=failed[0]["hint"],
            )
        return document

    def _shared(self) -> Flags:
        """Flags of every cell that are not at their defaults."""
        tests, limit, effort = self.tests, self.limit, self.effort
        if self.tiny:
            limit, effort = min(limit or _TINY_LIMIT, _TINY_LIMIT), "quick"
            tests = None
        flags: Flags = {
            "tests": tests,
            "effort": None if effort == "standard" else effort,
            "limit": limit,
            "max_example_tokens": self.max_example_tokens,
            "min_effect": None if self.min_effect == MIN_EFFECT else self.min_effect,
            "dtype": None if self.dtype == "float32" else self.dtype,
            "batch_tokens": self.batch_tokens,
            "mesh": self.mesh,
            "seed": self.seed or None,
        }
        return {name: value for name, value in flags.items() if value is not None}


def _without_size(entry: Entry) -> Entry:
    """Less what says how much is scored, which a pulse run decides by itself."""
    kept = entry.flags.keys() - {"limit", "effort", "tests", "n_orders"}
    return dataclasses.replace(entry, flags={key: entry.flags[key] for key in kept})


def _outcomes(planned: list[list[Cell]], code: str | None) -> list[Outcome]:
    """One a cell, model by model, so that one model at a time is in memory."""
    outcomes: list[Outcome] = []
    n_cells = sum(map(len, planned))
    for of_model in planned:
        opened = open_once(of_model[0].audit)
        for cell in of_model:
            began = time.monotonic()
            outcome = finished(cell, code) or run_cell(cell, opened, code)
            outcomes.append(outcome)
            say(
                f"{len(outcomes)} of {n_cells}: {cell.name}: "
                f"{_said(outcome, time.monotonic() - began)}"
            )
        del opened
        gc.collect()  # weights may stand in cycles, and the next model needs the room
    return outcomes


def _said(outcome: Outcome, seconds: float) -> str:
    if outcome.refused is not None:
        return f"{outcome.refused['verdict']}, not scored"
    if outcome.report is None:
        hint = f" (hint: {outcome.hint})" if outcome.hint else ""
        return f"failed: {outcome.error}{hint}"
    if outcome.kept:
        return "kept"
    return f"p = {outcome.deciding['p_value']:.2g}, {seconds:.0f} s"


def main() -> int:
    """Command line of `python -m eval.public`."""
    return run_study(
        "public",
        Public,
        exit_code=lambda found: EXIT_PARTIAL if found["failed"] else EXIT_DONE,
    )


if __name__ == "__main__":
    sys.exit(main())
