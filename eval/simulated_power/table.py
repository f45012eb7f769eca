"""Tables and the figure of the study."""

import dataclasses
import statistics
from collections.abc import Sequence

from eval.curves import Curve, curves_svg
from eval.simulated_power.cells import LEVELS, CellResult, Share
from eval.simulated_power.check import Check
from eval.simulated_power.planned_cells import (
    FOUND,
    LAWS_PART,
    LEVEL,
    MDE,
    NONE,
    PLANNER_PART,
)
from eval.study import Grid

_Z = 1.96


def grids(results: Sequence[CellResult], checks: Sequence[Check]) -> list[Grid]:
    """Every table; cells that were left out leave a dash."""
    tests = list(dict.fromkeys(result.cell.test for result in results))
    by_law = [result for result in results if result.cell.part == LAWS_PART]
    planned = [result for result in results if result.cell.part == PLANNER_PART]
    n_sets = results[0].n_sets
    return [
        _matrix(
            f"Power at p <= {LEVEL:g}, simulated ({n_sets:,} data sets) / formula at "
            "the spread that a report of clean files shows (difference in SE)",
            by_law,
            tests,
            lambda result: _beside(result.share(FOUND, LEVEL)),
        ),
        _matrix(
            "Share of clean files with p <= "
            + ", ".join(f"{level:g}" for level in LEVELS)
            + ", per cent",
            by_law,
            tests,
            lambda result: " ".join(
                f"{100 * result.share(NONE, level).simulated:.{digits}f}"
                for level, digits in zip(LEVELS, (2, 2, 3), strict=True)
            ),
        ),
        _matrix(
            "Spread of one boundary that a report of clean files shows, in standard "
            "deviations of an entry",
            by_law,
            tests,
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
        gaps = [100 * (s.simulated - s.formula) for s in shares]
        curves.append(
            Curve(
                label=result.cell.test,
                x=[s.formula for s in shares],
                y=gaps,
                low=[
                    gap - 100 * _Z * s.se for gap, s in zip(gaps, shares, strict=True)
                ],
                high=[
                    gap + 100 * _Z * s.se for gap, s in zip(gaps, shares, strict=True)
                ],
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


def _matrix(title, results, tests, words) -> Grid:
    found = {(r.cell.law, r.cell.test): words(r) for r in results}
    laws = list(dict.fromkeys(law for law, _ in found))
    rows = [(law, *(found.get((law, test), "-") for test in tests)) for law in laws]
    return Grid(title, ("law", *tests), tuple(rows))


def _curve_grid(by_law: Sequence[CellResult]) -> Grid:
    rows = []
    for result in by_law:
        if result.cell.law != "normal":
            continue
        shares = [s for s in result.shares if s.level == LEVEL and s.name != NONE]
        rows += [
            (
                result.cell.test,
                "as `mde`" if s.name == MDE else _multiple(s.name),
                f"{s.effect:.3f}",
                f"{s.formula:.3f}",
                f"{s.simulated:.4f} +- {_Z * s.se:.4f}",
                f"{100 * (s.simulated - s.formula):+.2f}",
                f"{s.apart:+.1f}",
            )
            for s in sorted(shares, key=lambda s: s.effect)
        ]
    return Grid(
        f"Normal entries: power at p <= {LEVEL:g} by effect (95 % intervals over data "
        "sets)",
        ("test", "effect", "in sd", "formula", "simulated", "points", "in SE"),
        tuple(rows),
    )


def _multiple(name: str) -> str:
    return "1 x wanted" if name == FOUND else f"{name} x wanted"


def _planner_grid(planned: Sequence[CellResult]) -> Grid:
    rows = []
    for result in planned:
        share = result.share(FOUND, LEVEL)
        rows.append(
            (
                result.cell.test,
                f"{share.effect:g}",
                str(result.cell.n_examples),
                str(result.n_strata),
                "all" if result.n_orders is None else str(result.n_orders),
                f"{share.formula:.3f}",
                f"{share.simulated:.4f} +- {_Z * share.se:.4f}",
                f"{share.apart:+.1f}",
            )
        )
    return Grid(
        f"`jaxcontam plan`: power at p <= {LEVEL:g} with the examples that it asks for",
        ("test", "effect / sd", "N", "K", "m", "planned", "simulated", "in SE"),
        tuple(rows),
    )


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
