"""Power by duplication count, counted over the models of a population."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from jaxcontam.stats.shares import wilson_interval
from train.population_job import ModelResult, SetResult

LEVELS = (0.001, 0.05)
"""Levels at which power is stated."""
# A p-value of the level itself must not be lost to rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Share of sets that a test finds at one duplication count.

    Attributes:
        method: The test.
        copies: Duplication count; at 0 the share is the test's size.
        level: Significance level.
        n_sets: Sets tested, one or more a model.
        n_rejected: p-values at or below the level.
        low: Lower end of the 95 % Wilson interval of the share, which treats sets of
            one model as independent.
        high: Its upper end.
        median_log10_p: Over the sets.
        mean_effect: Nats per boundary, over the sets.
    """

    method: str
    copies: int
    level: float
    n_sets: int
    n_rejected: int
    low: float
    high: float
    median_log10_p: float
    mean_effect: float | None


def power_rows(models: Sequence[ModelResult]) -> list[PowerRow]:
    """One row per test, duplication count and level; counts ascend."""
    cells: dict[tuple[str, int], list[SetResult]] = {}
    for model in models:
        for row in model.rows:
            cells.setdefault((row.method, row.copies), []).append(row)
    table = []
    for (method, copies), rows in sorted(cells.items()):
        effects = [row.effect for row in rows if row.effect is not None]
        for level in LEVELS:
            threshold = math.log10(level) + _ROUNDING
            n_rejected = sum(row.log10_p <= threshold for row in rows)
            low, high = wilson_interval(n_rejected, len(rows))
            table.append(
                PowerRow(
                    method=method,
                    copies=copies,
                    level=level,
                    n_sets=len(rows),
                    n_rejected=n_rejected,
                    low=low,
                    high=high,
                    median_log10_p=statistics.median(row.log10_p for row in rows),
                    mean_effect=statistics.fmean(effects) if effects else None,
                )
            )
    return table


def print_power(
    models: Sequence[ModelResult], table: Sequence[PowerRow], console: Console
) -> None:
    """What was made, and a line a test and duplication count."""
    first = models[0]
    planted = statistics.fmean(model.n_canary_tokens for model in models)
    console.print(
        f"{len(models)} models of {first.n_parameters:,} parameters, "
        f"{first.n_tokens:,} tokens each, {planted / first.n_tokens:.0%} planted, "
        f"last loss {statistics.fmean(model.loss for model in models):.2f}"
    )
    if not table:
        return
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("test", "copies", "sets"):
        justify = "left" if name == "test" else "right"
        grid.add_column(name, justify=justify, no_wrap=True)
    for level in LEVELS:
        grid.add_column(f"p <= {level:g} (95 %)", justify="right", no_wrap=True)
    grid.add_column("median p", justify="right", no_wrap=True)
    grid.add_column("effect", justify="right", no_wrap=True)
    cells = {(row.method, row.copies, row.level): row for row in table}
    for method, copies in dict.fromkeys((row.method, row.copies) for row in table):
        found = [cells[method, copies, level] for level in LEVELS]
        effect = found[0].mean_effect
        grid.add_row(
            method,
            str(copies),
            str(found[0].n_sets),
            *(
                f"{row.n_rejected / row.n_sets:.2f} ({row.low:.2f}-{row.high:.2f})"
                for row in found
            ),
            _p_value(found[0].median_log10_p),
            "" if effect is None else f"{effect:+.3f}",
        )
    console.print(grid)


def _p_value(log10_p: float) -> str:
    p = 10.0**log10_p
    return f"{p:.3f}" if p >= 1e-3 else f"{p:.0e}"
