"""Records of planted models to a power table, with intervals."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.population import ModelRecord, Outcome
from jaxcontam.stats.shares import wilson_interval

LEVELS = (0.001, 0.05)
"""Levels at which power is stated."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Power of one test at one duplication count and level.

    Attributes:
        design: Name of the population.
        test: Name of the variant.
        copies: Duplication count; 0 gives the size.
        level: Of the test.
        n_models: Models whose set was tested.
        n_rejected: p-values at or below the level.
        low: Wilson interval of the share, 95 %.
        high: Its upper end.
        median_log10_p: Over the models.
        passes: Mean cost in passes over the set.
    """

    design: str
    test: str
    copies: int
    level: float
    n_models: int
    n_rejected: int
    low: float
    high: float
    median_log10_p: float
    passes: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Sets on which an exact test's p is not above another test's.

    Attributes:
        test: The exact test.
        other: What it is compared with.
        copies: Duplication count.
        n_models: Sets compared.
        n_held: Of these, those on which it holds.
        n_both_cut: Of these, those on which both p-values lie at or below the cut.
        cut: p-values below this counted as this.
    """

    test: str
    other: str
    copies: int
    n_models: int
    n_held: int
    n_both_cut: int
    cut: float


def power_table(records: Sequence[ModelRecord]) -> list[PowerRow]:
    """One row a population, test, duplication count and level, in order of arrival."""
    cells: dict[tuple[str, str, int], list[Outcome]] = {}
    for record in records:
        for row in record.rows:
            cells.setdefault((record.design, row.test, row.copies), []).append(row)
    table = []
    for (design, test, copies), rows in cells.items():
        for level in LEVELS:
            # A p-value of the level itself must not be lost to rounding.
            n_rejected = sum(row.log10_p <= math.log10(level) + 1e-12 for row in rows)
            low, high = wilson_interval(n_rejected, len(rows))
            table.append(
                PowerRow(
                    design=design,
                    test=test,
                    copies=copies,
                    level=level,
                    n_models=len(rows),
                    n_rejected=n_rejected,
                    low=low,
                    high=high,
                    median_log10_p=statistics.median(row.log10_p for row in rows),
                    passes=statistics.fmean(row.passes for row in rows),
                )
            )
    return table


def compare(
    records: Sequence[ModelRecord],
    test: str,
    other: str,
    *,
    fewest_copies: int,
    cut: float,
) -> list[Comparison]:
    """On how many sets a test's p is not above another's, both cut from below.

    Args:
        records: Models of one population.
        test: The test that should not be above.
        other: The other test.
        fewest_copies: Sets planted less often are left out.
        cut: p-values below this count as this.
    """
    pairs: dict[int, list[tuple[float, float]]] = {}
    floor = math.log10(cut)
    for record in records:
        found = {(row.test, row.copies): max(row.log10_p, floor) for row in record.rows}
        for (name, copies), log10_p in found.items():
            if name == test and copies >= fewest_copies and (other, copies) in found:
                pairs.setdefault(copies, []).append((log10_p, found[other, copies]))
    return [
        Comparison(
            test=test,
            other=other,
            copies=copies,
            n_models=len(found),
            n_held=sum(mine <= theirs for mine, theirs in found),
            n_both_cut=sum(mine == theirs == floor for mine, theirs in found),
            cut=cut,
        )
        for copies, found in pairs.items()
    ]


def print_power(
    table: list[PowerRow],
    target: list[Comparison],
    populations: Sequence[Mapping[str, Any]],
    console: Console,
) -> None:
    """A table for each population and level: tests by duplication counts."""
    for about in populations:
        rows = [row for row in table if row.design == about["name"]]
        copies = list(dict.fromkeys(row.copies for row in rows))
        cells = {(row.test, row.level, row.copies): row for row in rows}
        for level in LEVELS:
            grid = Table(
                title=f"{about['name']}: {len(about['seeds'])} models of "
                f"{about['n_parameters']:,} parameters, {about['n_tokens']:,} tokens, "
                f"{about['canary_share']:.0%} planted. Share of sets with p at most "
                f"{level:g}, its 95 % interval, and the median p, by copies",
                title_justify="left",
            )
            grid.add_column("test")
            for name in ("passes", *map(str, copies)):
                grid.add_column(name, justify="right")
            for test in dict.fromkeys(row.test for row in rows):
                found = [cells.get((test, level, n)) for n in copies]
                passes = next(row.passes for row in found if row)
                grid.add_row(test, f"{passes:.1f}", *(_cell(row) for row in found))
            console.print(grid)
    for one in target:
        console.print(
            f"{one.copies} copies: p of {one.test} not above that of "
            f"{one.other} on {one.n_held} of {one.n_models} sets "
            f"({one.n_both_cut} with both below {one.cut:g})",
            highlight=False,
        )


def _cell(row: PowerRow | None) -> str:
    if row is None:
        return ""
    p = 10.0**row.median_log10_p
    return "\n".join(
        (
            _share(row.n_rejected / row.n_models),
            f"{_share(row.low)}-{_share(row.high)}",
            f"{p:.3f}" if p >= 1e-3 else f"{p:.0e}",
        )
    )


def _share(value: float) -> str:
    """Two digits without the zero in front, for narrow columns."""
    return f"{value:.2f}".removeprefix("0")
