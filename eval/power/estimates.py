"""Records of planted models to power, the copies that half power needs, and tables.

A model has one set in every cell, so that Wilson's interval over models is one over
independent runs; what compares cells of the same models is bootstrapped over models.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.intervals import ROUNDING, Share, n_rejected, short
from eval.power.model import ModelRecord
from eval.study import Grid, grouped

LEVELS = (0.001, 0.01, 0.05)
"""Levels at which power is stated."""
_N_BOOTSTRAP = 2000
# Fewer duplication counts are no curve; a bootstrap of fewer models is too narrow.
_FEWEST_COUNTS, _FEWEST_MODELS = 4, 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Power of one test in one cell.

    Attributes:
        design: Name of the population.
        test: Name of the reading.
        copies: Duplication count; 0 gives the size.
        level: Level of the test.
        n_models: Models whose set was tested.
        n_rejected: p-values at or below the level.
        low: Wilson interval of the share, 95 %, over models.
        high: Its upper end.
        median_log10_p: Over the models.
        quartiles_log10_p: Likewise: first and third.
        median_effect: Likewise, nats per boundary.
        passes: Mean cost in passes over the examples.
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
    quartiles_log10_p: tuple[float, float]
    median_effect: float | None
    passes: float

    @property
    def power(self) -> float:
        """Share of sets found."""
        return self.n_rejected / self.n_models


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dup50:
    """Copies at which a test finds half of the sets.

    Attributes:
        design: Name of the population.
        test: Name of the reading.
        level: Level of the test.
        n_models: Models.
        copies: Interpolated; None if more than the most copies planted.
        low: Bootstrap interval over models, 95 %; None likewise.
        high: Its upper end; None likewise.
        has_interval: Whether there are models enough for one.
        most: The most copies planted.
    """

    design: str
    test: str
    level: float
    n_models: int
    copies: float | None
    low: float | None
    high: float | None
    has_interval: bool
    most: int


def power_table(records: Sequence[ModelRecord]) -> list[PowerRow]:
    """One row a cell and level, in order of arrival."""
    cells = grouped(
        ((record.design, row) for record in records for row in record.rows),
        lambda one: (one[0], one[1].test, one[1].copies),
    )
    table = []
    for (design, test, copies), found in cells.items():
        rows = [row for _, row in found]
        effects = [row.effect for row in rows if row.effect is not None]
        log10_ps = [row.log10_p for row in rows]
        low, high = np.quantile(log10_ps, (0.25, 0.75)).tolist()
        for level in LEVELS:
            n_found = n_rejected(log10_ps, level)
            share = Share.counted(n_found, len(rows))
            table.append(
                PowerRow(
                    design=design,
                    test=test,
                    copies=copies,
                    level=level,
                    n_models=len(rows),
                    n_rejected=n_found,
                    low=share.low,
                    high=share.high,
                    median_log10_p=statistics.median(log10_ps),
                    quartiles_log10_p=(low, high),
                    median_effect=statistics.median(effects) if effects else None,
                    passes=statistics.fmean(row.passes for row in rows),
                )
            )
    return table


def dup50_rows(records: Sequence[ModelRecord]) -> list[Dup50]:
    """For every population with enough duplication counts, each test and level."""
    found = []
    for design, models in grouped(records, lambda record: record.design).items():
        for test, log10_p_MC in _complete(models).items():
            copies = sorted(log10_p_MC)
            if len(copies) < _FEWEST_COUNTS:
                continue
            values_MC = np.stack([log10_p_MC[n] for n in copies], axis=1)
            for level in LEVELS:
                found_MC = values_MC <= math.log10(level) + ROUNDING
                found.append(_dup50(design, test, level, copies, found_MC))
    return found


def half_power_copies(copies: Sequence[int], power_BC: np.ndarray) -> np.ndarray:
    """Copies at which each curve crosses one half; infinite where it never does.

    A curve is made monotone by pooling adjacent violators and drawn straight over the
    logarithm of copies; between 0 and 1 copies it is drawn straight over copies.

    Args:
        copies: (C,) ascending.
        power_BC: (B, C) shares.

    Returns:
        (B,) float64.
    """
    rising_BC = monotone(power_BC)
    above_BC = rising_BC >= 0.5
    at_B = above_BC.argmax(axis=1)
    rows_B = np.arange(len(rising_BC))
    before_B = np.maximum(at_B - 1, 0)
    x_C = np.asarray(copies, np.float64)
    x0_B, x1_B = x_C[before_B], x_C[at_B]
    y0_B, y1_B = rising_BC[rows_B, before_B], rising_BC[rows_B, at_B]
    share_B = (0.5 - y0_B) / np.where(y1_B > y0_B, y1_B - y0_B, 1.0)
    straight_B = x0_B + share_B * (x1_B - x0_B)
    floor_B = np.maximum(x0_B, 1.0)
    curved_B = floor_B * (x1_B / floor_B) ** share_B
    found_B = np.where(x0_B < 1, straight_B, curved_B)
    found_B = np.where(at_B == 0, x_C[0], found_B)
    return np.where(above_BC.any(axis=1), found_B, np.inf)


def monotone(values_BC: np.ndarray) -> np.ndarray:
    """Least-squares rising fit of each row, weights equal: isotonic regression.

    By its max-min form: the largest over starts of the least mean from there to an end.
    """
    _, C = values_BC.shape
    sums_BC = np.cumsum(np.pad(values_BC, ((0, 0), (1, 0))), axis=1)
    fit_BC = np.full(values_BC.shape, -np.inf)
    for start in range(C):
        lengths = np.arange(1, C - start + 1)
        means = (sums_BC[:, start + 1 :] - sums_BC[:, [start]]) / lengths
        least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        fit_BC[:, start:] = np.maximum(fit_BC[:, start:], least)
    return fit_BC


def _complete(models: Sequence[ModelRecord]) -> Mapping[str, dict[int, np.ndarray]]:
    """Test -> copies -> (M,) log10 p, of tests with one set of each count a model."""
    by_test = grouped((r for model in models for r in model.rows), lambda row: row.test)
    found = {
        test: {
            copies: np.array([row.log10_p for row in own])
            for copies, own in grouped(rows, lambda row: row.copies).items()
        }
        for test, rows in by_test.items()
    }
    return {
        test: counts
        for test, counts in found.items()
        if {len(values) for values in counts.values()} == {len(models)}
    }


def _dup50(
    design: str, test: str, level: float, copies: Sequence[int], found_MC: np.ndarray
) -> Dup50:
    """With an interval: models are drawn again, each with all of its sets."""
    n_models = len(found_MC)
    rng = np.random.default_rng([n_models, len(copies)])
    drawn = rng.integers(n_models, size=(_N_BOOTSTRAP, n_models))
    power_BC = np.stack([found_MC[rows].mean(axis=0) for rows in drawn])
    values = np.sort(half_power_copies(copies, power_BC))
    # Ends are drawn values: an infinite one must not be mixed with a finite one.
    low, high = (values[round(q * (_N_BOOTSTRAP - 1))] for q in (0.025, 0.975))
    return Dup50(
        design=design,
        test=test,
        level=level,
        n_models=n_models,
        copies=_finite(half_power_copies(copies, found_MC.mean(axis=0)[None])[0]),
        low=_finite(low),
        high=_finite(high),
        has_interval=n_models >= _FEWEST_MODELS,
        most=max(copies),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def power_grids(
    table: Sequence[PowerRow],
    dup50: Sequence[Dup50],
    populations: Sequence[Mapping[str, Any]],
) -> list[Grid]:
    """A table a population and level, and the copies of half power."""
    cells = grouped(table, lambda row: (row.design, row.level))
    return [
        *(
            _power_grid(cells.get((about["name"], level), []), level, about)
            for about in populations
            for level in LEVELS
        ),
        *([_dup50_grid(dup50)] if dup50 else []),
    ]


def _power_grid(
    rows: Sequence[PowerRow], level: float, about: Mapping[str, Any]
) -> Grid:
    """Tests by duplication counts."""
    copies = list(dict.fromkeys(row.copies for row in rows))
    cells = {
        test: {row.copies: row for row in own}
        for test, own in grouped(rows, lambda row: row.test).items()
    }
    return Grid.of(
        f"{about['name']}: {len(about['seeds']):,} models of {about['n_parameters']:,} "
        f"parameters, {about['n_tokens']:,} tokens, {about['canary_share']:.0%} "
        f"planted, sets of {about['n_examples']}. Share of sets with p at most "
        f"{level:g} (95 % interval), by copies",
        cells.items(),
        {
            "test": "{r[0]}",
            "passes": lambda line: f"{next(iter(line[1].values())).passes:.1f}",
        }
        | {f"{n}": lambda line, n=n: _cell(line[1].get(n)) for n in copies},
    )


def _dup50_grid(dup50: Sequence[Dup50]) -> Grid:
    """Copies of half power, a column a level."""
    cells = grouped(dup50, lambda row: f"{row.design}: {row.test}")
    return Grid(
        "Copies at which half of the sets are found (95 % interval over models, where "
        "there are 40 or more)",
        ("population, test", *(f"p at most {level:g}" for level in LEVELS)),
        tuple((name, *map(_copies, found)) for name, found in cells.items()),
    )


def _copies(row: Dup50) -> str:
    def words(value: float | None) -> str:
        return f"> {row.most}" if value is None else f"{value:.1f}"

    if not row.has_interval:
        return words(row.copies)
    return f"{words(row.copies)} ({words(row.low)} to {words(row.high)})"


def _cell(row: PowerRow | None) -> str:
    """Share, interval; two digits without the zero in front, three where it is rare."""
    if row is None:
        return ""
    digits = 3 if row.power < 0.1 and row.n_models >= 200 else 2
    share, low, high = (short(x, digits) for x in (row.power, row.low, row.high))
    return f"{share} ({low}-{high})"
