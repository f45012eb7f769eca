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
import hashlib
import json
import sys
import time
from pathlib import Path

from rich.console import Console

from eval.simulated_power.cells import Cell, CellResult, Share, simulate
from eval.simulated_power.check import Check, check_batch
from eval.simulated_power.laws import LAWS
from eval.simulated_power.planned_cells import (
    FOUND,
    LAWS_PART,
    law_cells,
    planner_cells,
)
from eval.simulated_power.table import difference_svg, grids, numbers
from eval.study import Clock, finish_study
from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.errors import InputError
from jaxcontam.report.document import make_folder, replace_bytes
from jaxcontam.scoring.identity import cpu_name
from train.earlier import code_version

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
        cpu_seconds: Of all of it, compilation and check too.
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
        cells = self._cells()
        code, earlier = code_version(), 0.0
        records: list[Record] = []
        for number, cell in enumerate(cells, 1):
            path = self._path(cell)
            key = self._key(cell, None if self.any_code else code)
            # Where git cannot tell the code, an old record may be another code's.
            known = code is not None or self.any_code
            record = _read_record(path, key, cell) if known else None
            if record is None and self.tables:
                continue
            if record is None:
                record = self._measure(cell)
                make_folder(path.parent)
                _write_record(path, self._keys(cell, code), record)
                print(
                    f"{number} of {len(cells)}: {cell.label}, "
                    f"{record.cpu_seconds:.1f} CPU s",
                    file=sys.stderr,
                    flush=True,
                )
            else:
                earlier += record.cpu_seconds
            records.append(record)
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
            console=Console(),
            earlier_seconds=earlier,
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

    def _path(self, cell: Cell) -> Path:
        """Named by what a record follows from, so that other flags overwrite none."""
        digest = self._key(cell, None).removeprefix("sha256:")[:8]
        return self._folder / CELLS_DIR / f"{cell.label}-{digest}.json"

    def _keys(self, cell: Cell, code: str | None) -> tuple[str, str]:
        """Of this code, and of any."""
        return self._key(cell, code), self._key(cell, None)

    def _key(self, cell: Cell, code: str | None) -> str:
        """Digest of all that a record follows from; no code stands for any."""
        text = json.dumps(
            [dataclasses.asdict(cell), self._n_sets, self.seed, code, cpu_name()]
        )
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _read_record(path: Path, key: str, cell: Cell) -> Record | None:
    """A finished cell, if it stands there under this key."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if key not in fields["keys"]:
            return None
        result = fields["result"]
        result["cell"] = cell
        result["shares"] = tuple(Share(**share) for share in result["shares"])
        check = fields["check"]
        if check is not None:
            check["log_ratios"] = tuple(check["log_ratios"])
            check = Check(**check)
        return Record(CellResult(**result), check, fields["cpu_seconds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write_record(path: Path, keys: tuple[str, str], record: Record) -> None:
    fields = {"keys": keys, **dataclasses.asdict(record)}
    replace_bytes(path, (json.dumps(fields) + "\n").encode())


def main() -> int:
    """Command line of `python -m eval.simulated_power`."""
    return run_command(
        lambda: _run(
            parse(SimulatedPower, sys.argv[1:], prog="python -m eval.simulated_power")
        ),
        name="eval.simulated_power",
    )


def _run(study: SimulatedPower) -> int:
    study.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
