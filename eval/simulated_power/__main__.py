"""Does the planner's formula say what power order tests have?

Question: over 100,000 simulated files a cell, how often is p at most 0.05, 0.01 and
0.001, for every test that `jaxcontam plan` plans and eleven laws of chance and effect,
and how far is that from `jaxcontam.stats.power`? And are the examples that the planner
asks for enough?
Command: `python -m eval.simulated_power`. Hardware: one CPU core, a quarter of an hour;
a killed run goes on where it stopped. No model. Headline: LOG.md.

Fixed before any result of this seed was looked at (settings were tried on seed 90000):

- Seed 1, 100,000 data sets a cell, levels 0.05, 0.01, 0.001. Laws: `laws.LAWS`.
- Files of 120 examples of 32 tokens, context 512, designs as `jaxcontam plan` makes
  them; `permutation`: 40 examples, 999 orders.
- Effects: none, and the one for which the formula says 0.8 at 0.001 with independent
  normal entries; there also 0.4, 0.7 and 1.3 times that, and the `mde` of reports.
- The formula is asked at the spread that a report of clean files of the law shows
  (root mean square over the cell's data sets), as a pilot would give it.
- The planner is asked for N at effects of 1, 0.5 and 0.25 sd (`permutation`: 1, 0.5).
- p-values: exact counts (`permutation`), Student's t (`sharded_t`), saddlepoint tails
  of the exact law elsewhere; adjacency sees the law of all orders through 256 of them
  and its exact variance. Beside the library's own p-values on 40 further data sets a
  law and test (adjacency: 4), at the effect that is found as wanted.

A model of tests, not of models: scores of orders are sums over pairs, so memory that
needs more than one example of context is not in it.
"""

import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.simulated_power.cells import (
    FOUND,
    LAWS_PART,
    Cell,
    CellResult,
    Share,
    law_cells,
    planner_cells,
    simulate,
)
from eval.simulated_power.laws import LAWS
from eval.simulated_power.table import (
    Check,
    check_batch,
    difference_svg,
    grids,
    numbers,
)
from eval.study import Clock, Records, finish_study, inputs_digest, run_study, say
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import InputError

CELLS_DIR = "cells"
N_CHECKED, N_PAIRS_CHECKED = 40, 4
"""Data sets a law that the library tests too; all orders of pairs take it longer."""
_TINY_SETS, _TINY_CHECKED = 500, 3
_TINY_TESTS = ("adjacency", "stratified", "permutation")


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A finished cell.

    Attributes:
        result: What was counted.
        check: Beside the library; none of planned files.
        cpu_seconds: CPU seconds of all of it, compilation and check too.
    """

    result: CellResult
    check: Check | None
    cpu_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """Simulate the power of every planned test and compare it with the formulas.

    Hardware: one CPU core, a quarter of an hour (--tiny: 15 seconds). No model.
    """

    seed: int = 1
    """Seeds the data sets."""
    sets: int = 100_000
    """Data sets a cell."""
    out: Path = Path("runs/simulated_power")
    """Folder for tables, figure and a record of each finished cell, which is kept;
    --tiny has a folder `tiny` in it."""
    any_code: bool = False
    """Take finished cells that another version of the code made."""
    tables: bool = False
    """Only make tables and figure again, of the cells that are finished."""
    tiny: bool = False
    """A pulse run: three tests, one law, 500 data sets a cell."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "sets")

    def run(self) -> dict:
        """Simulate what is missing, print the tables; returns simulated_power.json."""
        clock = Clock.start()
        cells, kept = (
            self._cells(),
            Records(self._folder / CELLS_DIR, any_code=self.any_code),
        )
        records: list[Record] = []
        for number, cell in enumerate(cells, 1):
            inputs = (dataclasses.asdict(cell), self._n_sets, self.seed)
            # Named by what a record follows from, so that other flags overwrite none.
            digest = inputs_digest(*inputs).removeprefix("sha256:")[:8]
            name = f"{cell.label}-{digest}"
            fields = kept.read(name, *inputs)
            if fields is None and self.tables:
                continue
            if fields is not None:
                records.append(record_of(fields, cell))
                continue
            record = self._measure(cell)
            records.append(record)
            kept.write(name, dataclasses.asdict(record), *inputs)
            say(
                f"{number} of {len(cells)}: {cell.label}, "
                f"{record.cpu_seconds:.1f} CPU s"
            )
        if not records:
            raise InputError(
                f"{self._folder}: no finished cell of these flags and this code",
                hint="leave out --tables, or add --any-code",
            )
        results = [record.result for record in records]
        checks = [record.check for record in records if record.check is not None]
        return finish_study(
            "simulated_power",
            flags_of(self),
            clock=clock,
            out=self._folder,
            numbers={"seed": self.seed, **numbers(results, checks)},
            grids=grids(results, checks),
            figures={"difference": difference_svg(results)},
            earlier_seconds=kept.earlier_seconds,
        )

    @property
    def _folder(self) -> Path:
        return self.out / "tiny" if self.tiny else self.out

    @property
    def _n_sets(self) -> int:
        return _TINY_SETS if self.tiny else self.sets

    def _cells(self) -> list[Cell]:
        if self.tiny:
            return [cell for cell in law_cells(["normal"]) if cell.test in _TINY_TESTS]
        # What is asked first is answered first, should the run be stopped.
        normal, *others = LAWS
        return [*law_cells([normal]), *planner_cells(), *law_cells(others)]

    def _measure(self, cell: Cell) -> Record:
        started = time.process_time()
        result, spare = simulate(cell, self._n_sets, seed=self.seed)
        check = None
        if cell.part == LAWS_PART:
            n_checked = N_PAIRS_CHECKED if result.n_orders is None else N_CHECKED
            if self.tiny:
                n_checked = _TINY_CHECKED
            check = check_batch(cell, spare, FOUND, n_checked)
        return Record(result, check, time.process_time() - started)


def record_of(fields: Mapping[str, Any], cell: Cell) -> Record:
    """A record from the fields of its file."""
    result, check = fields["result"], fields["check"]
    shares = tuple(Share(**share) for share in result["shares"])
    if check is not None:
        check = Check(**{**check, "log_ratios": tuple(check["log_ratios"])})
    result = CellResult(**{**result, "cell": cell, "shares": shares})
    return Record(result, check, fields["cpu_seconds"])


def main() -> int:
    """Command line of `python -m eval.simulated_power`."""
    return run_study("simulated_power", SimulatedPower)


if __name__ == "__main__":
    sys.exit(main())
