"""Tables and the figure, and the library's own p-values on the same data sets.

Dimension key
    D  data sets
    K  strata
    M  columns
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from eval.curves import Curve, curves_svg
from eval.simulated_power.cells import (
    FOUND,
    LAWS_PART,
    LEVEL,
    LEVELS,
    MDE,
    NONE,
    PLANNER_PART,
    Batch,
    Cell,
    CellResult,
    Share,
)
from eval.simulated_power.laws import Pairs
from eval.study import Grid
from jaxcontam.methods import sharded_t
from jaxcontam.stats.adjacency import double_centred, path_sums
from jaxcontam.stats.all_orders import stratum_orders
from jaxcontam.stats.lattice import lattice_tail
from jaxcontam.stats.power import PowerDesign
from jaxcontam.stats.randomisation import MATRIX_TOLERANCE, row_scores

# Beyond these the ratio of two p-values decides nothing.
_LOWEST, _HIGHEST = 1e-6, 0.1
# A rank's p-value may equal a level, and is rounded differently here and there.
_ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How far the simulation's p-values are from the library's.

    Attributes:
        test: Its name.
        law: Law of the entries.
        n_checked: Data sets.
        log_ratios: ln(p here / p there), there the middle of the library's bracket,
            where that is between 1e-6 and 0.1.
        n_decisions: Pairs of data set and level.
        n_differing: Those where one p-value is at most the level and the other is not.
    """

    test: str
    law: str
    n_checked: int
    log_ratios: tuple[float, ...]
    n_decisions: int
    n_differing: int


def check_batch(cell: Cell, batch: Batch, name: str, n_checked: int) -> Check:
    """Test data sets with the library that were tested here.

    Args:
        cell: That the batch is of.
        batch: Data sets; the first ones are taken.
        name: Name of the effect.
        n_checked: How many.
    """
    design = cell.design
    e = cell.names.index(name)
    effect, here_D = cell.effects[e], np.asarray(batch.p_values[e])
    scores_DKM = np.asarray(batch.parts.chance, np.float64)
    scores_DKM = scores_DKM + effect * np.asarray(batch.parts.gain, np.float64)
    log_ratios, n_differing = [], 0
    levels_L = np.array(LEVELS) * (1 + _ROUNDING)
    n_checked = min(n_checked, len(here_D))
    for d, here in enumerate(here_D[:n_checked].tolist()):
        if design.n_orders is None:
            low, high = _pair_bracket(batch.pairs, effect, d)
        else:
            low, high = _bracket(design, scores_DKM[d])
        there = math.sqrt(low * high)
        if _LOWEST < there < _HIGHEST:
            log_ratios.append(math.log(here / there))
        n_differing += int(((here <= levels_L) != (there <= levels_L)).sum())
    return Check(
        test=cell.test,
        law=cell.law,
        n_checked=n_checked,
        log_ratios=tuple(log_ratios),
        n_decisions=n_checked * len(LEVELS),
        n_differing=n_differing,
    )


def _bracket(design: PowerDesign, scores_KM: np.ndarray) -> tuple[float, float]:
    """Bounds of the library's p-value of scored orders."""
    if design.rule == "t":
        p = sharded_t.analyse(scores_KM, np.ones(len(scores_KM)), 0).p_value
        return p, p
    # Permutation does not studentise; with one row it would not matter.
    scored = row_scores(scores_KM, kind="auto", relative_tolerance=MATRIX_TOLERANCE)
    tail = lattice_tail(scored.differences, scored.tolerance)
    return 10.0**tail.log10_lower, 10.0**tail.log10_upper


def _pair_bracket(pairs: Sequence[Pairs], effect: float, d: int) -> tuple[float, float]:
    """Bounds of the library's p-value over all orders of a file's pair matrices."""
    sums = []
    for own in pairs:
        gains = np.asarray(own.weights[d], np.float64)
        for noise_SS, weights_G in zip(np.asarray(own.noise[d]), gains, strict=True):
            matrix_SS = noise_SS + effect * np.diag(weights_G, 1)
            codes_S = np.zeros(len(matrix_SS), np.int64)
            orders_MS = stratum_orders(codes_S, np.random.default_rng(0))
            sums.append(path_sums(double_centred(matrix_SS), orders_MS))
    largest = sum(float(np.abs(sums_M).max()) for sums_M in sums)
    tail = lattice_tail(
        (row_M - row_M[0] for row_M in sums), MATRIX_TOLERANCE * largest
    )
    return 10.0**tail.log10_lower, 10.0**tail.log10_upper


_Z = 1.96
_EFFECTS = {MDE: "as `mde`", FOUND: "1 x wanted"}


def grids(results: Sequence[CellResult], checks: Sequence[Check]) -> list[Grid]:
    """Every table; cells that were left out leave a dash."""
    tests = list(dict.fromkeys(result.cell.test for result in results))
    by_law = [result for result in results if result.cell.part == LAWS_PART]
    planned = [result for result in results if result.cell.part == PLANNER_PART]
    n_sets = results[0].n_sets

    def by_test(title: str, words: Callable[[CellResult], str]) -> Grid:
        cells = {(one.cell.law, one.cell.test): words(one) for one in by_law}
        return Grid.crossed(title, "law", cells, columns=tests, empty="-")

    return [
        by_test(
            f"Power at p <= {LEVEL:g}, simulated ({n_sets:,} data sets) / formula at "
            "the spread that a report of clean files shows (difference in SE)",
            lambda result: _beside(result.share(FOUND, LEVEL)),
        ),
        by_test(
            "Share of clean files with p <= "
            + ", ".join(f"{level:g}" for level in LEVELS)
            + ", per cent",
            lambda result: " ".join(
                f"{100 * result.share(NONE, level).simulated:.{digits}f}"
                for level, digits in zip(LEVELS, (2, 2, 3), strict=True)
            ),
        ),
        by_test(
            "Spread of one boundary that a report of clean files shows, in standard "
            "deviations of an entry",
            lambda result: f"{result.spread:.3f}",
        ),
        _curve_grid(by_law),
        _planner_grid(planned),
        _check_grid(results, checks),
    ]


def difference_svg(results: Sequence[CellResult]) -> str:
    """Simulated less formula against the formula, normal entries, all tests."""
    curves = []
    for result in results:
        if result.cell.part != LAWS_PART or result.cell.law != "normal":
            continue
        shares = sorted(
            (s for s in result.shares if s.level == LEVEL), key=lambda s: s.formula
        )
        gaps = np.array([100 * (s.simulated - s.formula) for s in shares])
        halves = np.array([100 * _Z * s.se for s in shares])
        curves.append(
            Curve(
                label=result.cell.test,
                x=[s.formula for s in shares],
                y=gaps.tolist(),
                low=(gaps - halves).tolist(),
                high=(gaps + halves).tolist(),
            )
        )
    return curves_svg(
        curves,
        x_label=f"power by the formula at p <= {LEVEL:g}",
        y_label="simulated less formula, points",
        level=0.0,
    )


def numbers(
    results: Sequence[CellResult], checks: Sequence[Check]
) -> dict[str, list[dict]]:
    """Raw numbers for JSON."""
    return {
        "cells": [
            {
                **dataclasses.asdict(result),
                "sets_per_second": result.n_sets / max(result.cpu_seconds, 1e-9),
            }
            for result in results
        ],
        "checks": [dataclasses.asdict(check) for check in checks],
    }


def _beside(share: Share) -> str:
    return f"{share.simulated:.3f} / {share.formula:.3f} ({share.apart:+.1f})"


def _curve_grid(by_law: Sequence[CellResult]) -> Grid:
    rows = [
        (result.cell.test, share)
        for result in by_law
        if result.cell.law == "normal"
        for share in sorted(result.shares, key=lambda s: s.effect)
        if share.level == LEVEL and share.name != NONE
    ]
    return Grid.of(
        f"Normal entries: power at p <= {LEVEL:g} by effect (95 % intervals over data "
        "sets)",
        rows,
        {
            "test": "{r[0]}",
            "effect": lambda row: _EFFECTS.get(row[1].name, f"{row[1].name} x wanted"),
            "in sd": "{r[1].effect:.3f}",
            "formula": "{r[1].formula:.3f}",
            "simulated": lambda row: _simulated(row[1]),
            "points": lambda row: f"{100 * (row[1].simulated - row[1].formula):+.2f}",
            "in SE": "{r[1].apart:+.1f}",
        },
    )


def _planner_grid(planned: Sequence[CellResult]) -> Grid:
    return Grid.of(
        f"`jaxcontam plan`: power at p <= {LEVEL:g} with the examples that it asks for",
        [(result, result.share(FOUND, LEVEL)) for result in planned],
        {
            "test": "{r[0].cell.test}",
            "effect / sd": "{r[1].effect:g}",
            "N": "{r[0].cell.n_examples}",
            "K": "{r[0].n_strata}",
            "m": lambda row: "all" if row[0].n_orders is None else f"{row[0].n_orders}",
            "planned": "{r[1].formula:.3f}",
            "simulated": lambda row: _simulated(row[1]),
            "in SE": "{r[1].apart:+.1f}",
        },
    )


def _simulated(share: Share) -> str:
    return f"{share.simulated:.4f} +- {_Z * share.se:.4f}"


def _check_grid(results: Sequence[CellResult], checks: Sequence[Check]) -> Grid:
    rows = []
    for test in dict.fromkeys(result.cell.test for result in results):
        own = [r for r in results if r.cell.test == test and r.cell.part == LAWS_PART]
        seconds = sum(result.cpu_seconds for result in own)
        speed = sum(result.n_sets for result in own) / max(seconds, 1e-9)
        checked = [check for check in checks if check.test == test]
        ratios = [ratio for check in checked for ratio in check.log_ratios]
        spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
        rows.append(
            (
                test,
                f"{speed:,.0f}",
                str(sum(check.n_checked for check in checked)),
                f"{statistics.fmean(ratios):+.4f}" if ratios else "-",
                f"{spread:.4f}",
                f"{sum(check.n_differing for check in checked)} of "
                f"{sum(check.n_decisions for check in checked)}",
            )
        )
    return Grid(
        "Data sets a CPU second (compilation and check left out), and p-values beside "
        "the library's own: ln(p / p of the library), and decisions at the three "
        "levels that differ",
        ("test", "sets / s", "checked", "mean", "sd", "differ"),
        tuple(rows),
    )
