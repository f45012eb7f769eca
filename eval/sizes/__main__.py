"""How often does each test accuse a model that never saw the file?

Question: the share of null data sets with p at most 0.05, 0.01 and 0.001, for every
test and six kinds of scores of files whose order was drawn; and the same of direction
for files whose order was not, but is reversible: topics, labels and styles that drift.
Exact tests may exceed the level by 3.3 standard errors of the simulation and no more
(3 under drift); the t-test over ten left-skewed shards is expected to.
Command: `python -m eval.sizes`. Hardware: one CPU core, tens of minutes, no model.
Headline: LOG.md.
"""

import dataclasses
import itertools
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from eval.sizes import drift
from eval.sizes.designs import KINDS, LEVELS, TESTS
from eval.study import Grid, StudyFlags, print_grid, run_study, say, write_json
from jaxcontam.errors import check_names

STANDARD_ERRORS = 3.3
"""Standard errors above a level that chance exceeds once in 2,000 times."""
DRIFT = "drift"
"""Word of `--only` for the second table."""
_DRIFT_ERRORS = 3.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SizeResult:
    """How often a test rejected at each level.

    Attributes:
        test: Its name in `TESTS`.
        kind: Kind of the scores; name in `KINDS`.
        n_sets: Null data sets.
        sizes: Share of p-values at or below each of `LEVELS`.
        exact: Whether it may not exceed the levels.
        allowed: Standard errors above a level that chance explains.
    """

    test: str
    kind: str
    n_sets: int
    sizes: tuple[float, ...]
    exact: bool
    allowed: float = STANDARD_ERRORS

    @property
    def excess(self) -> float:
        """Standard errors above the level, the worst of the levels."""
        return max(
            (size - level) / math.sqrt(level * (1 - level) / self.n_sets)
            for size, level in zip(self.sizes, LEVELS, strict=True)
        )

    @property
    def holds(self) -> bool:
        """Whether no size is above its level beyond the simulation's error."""
        return self.excess <= self.allowed


def measure_size(test: str, kind: str, n_sets: int, *, seed: int = 0) -> SizeResult:
    """Sizes of one test over fresh null data sets of one kind.

    Args:
        test: Name in `TESTS`.
        kind: Name in `KINDS`.
        n_sets: Data sets.
        seed: With the two names, seeds them.
    """
    entropy = [seed, zlib.crc32(test.encode()), zlib.crc32(kind.encode())]
    rng = np.random.default_rng(entropy)
    row = TESTS[test]
    p = [row.p_value(rng, KINDS[kind]) for _ in range(n_sets)]
    return SizeResult(
        test=test, kind=kind, n_sets=n_sets, sizes=_shares(p), exact=row.exact
    )


def measure_drift(
    kind: str, length: str, scorer: str, n_files: int, *, seed: int = 0
) -> list[SizeResult]:
    """Sizes over fresh files in reversible drift, by test.

    Args:
        kind: Name in `drift.KINDS`.
        length: Name in `drift.LENGTHS`.
        scorer: Name in `drift.SCORERS`.
        n_files: Files.
        seed: With the three names, seeds them.
    """
    words = (kind, length, scorer)
    rng = np.random.default_rng([seed, *(zlib.crc32(word.encode()) for word in words)])
    found = [drift.drift_p_values(rng, *words) for _ in range(n_files)]
    return [
        SizeResult(
            test=test,
            kind=f"{kind}, {length}, {scorer}",
            n_sets=n_files,
            sizes=_shares([p[test] for p in found]),
            # Drift is no null of adjacency.
            exact=test.startswith("direction"),
            allowed=_DRIFT_ERRORS,
        )
        for test in found[0]
    ]


def _shares(p: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(np.mean(np.array(p) <= level)) for level in LEVELS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(StudyFlags):
    """Measure the size of every test on null data."""

    n_sets: int = 10_000
    """Null data sets a test and kind."""
    n_files: int = 2_000
    """Files in reversible drift a kind, length of runs and scorer."""
    only: tuple[str, ...] = ()
    """Tests to measure, and `drift` for the second table (default: all)."""
    out: Path = Path("runs/sizes")
    """Folder for sizes.json."""

    positive = ("n_sets", "n_files")

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        check_names("test", self.only, (*TESTS, DRIFT))

    def run(self) -> list[SizeResult]:
        """Measure, print, write; returns one row a test and kind, then the drift's."""
        names = self.only or (*TESTS, DRIFT)
        results: list[SizeResult] = []
        drifting: list[SizeResult] = []
        for name in names:
            say(f"eval.sizes: {name}")
            if name == DRIFT:
                drifting = self._drifting()
                continue
            n_sets = 20 if self.tiny else self.n_sets
            results += [
                measure_size(name, kind, n_sets, seed=self.seed) for kind in KINDS
            ]
        both = {"exchangeability": results, "reversible drift": drifting}
        write_json(self.out / "sizes.json", _as_json(both))
        if results:
            print_grid(_grid("null data sets", results), Console())
        if drifting:
            print_grid(_grid("files in reversible drift", drifting), Console())
        return results + drifting

    def _drifting(self) -> list[SizeResult]:
        n_files = 20 if self.tiny else self.n_files
        cells = itertools.product(drift.KINDS, drift.LENGTHS, drift.SCORERS)
        found = [
            row
            for cell in cells
            for row in measure_drift(*cell, n_files, seed=self.seed)
        ]
        # One test after the other, as in the first table.
        tests = list(dict.fromkeys(row.test for row in found))
        return sorted(found, key=lambda row: tests.index(row.test))


def _as_json(tables: Mapping[str, Sequence[SizeResult]]) -> list[dict]:
    return [
        {
            **dataclasses.asdict(row),
            "null": null,
            "levels": LEVELS,
            "excess": row.excess,
            "holds": row.holds,
        }
        for null, results in tables.items()
        for row in results
    ]


def _grid(data: str, results: Sequence[SizeResult]) -> Grid:
    n_above = sum(row.exact and not row.holds for row in results)
    shares = {
        f"p <= {level:g}": f"{{r.sizes[{i}]:.4f}}" for i, level in enumerate(LEVELS)
    }
    return Grid.of(
        f"size over {results[0].n_sets:,} {data} each; exact tests above a level by "
        f"more than {results[0].allowed:g} standard errors: {n_above} of "
        f"{sum(row.exact for row in results)}",
        results,
        {"test": "{r.test}", "kind": "{r.kind}"}
        | shares
        | {"": lambda r: "holds" if r.holds else f"above by {r.excess:.0f} se"},
    )


def main() -> int:
    """Command line of `python -m eval.sizes`; 1 if an exact test is above its level."""

    def code(found: Sequence[SizeResult]) -> int:
        return int(any(row.exact and not row.holds for row in found))

    return run_study("sizes", Sizes, code_of=code)


if __name__ == "__main__":
    sys.exit(main())
