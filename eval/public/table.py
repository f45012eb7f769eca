"""Audits of all cells to one table and picture: Holm over all of it, then verdicts."""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.patches import Patch, Rectangle

from eval.public.cells import Outcome
from eval.study import Grid
from jaxcontam.analyses.method_notes import method_words
from jaxcontam.report.figure import STYLE, figure_axes, svg_text
from jaxcontam.report.numbers import effect_words, p_text
from jaxcontam.report.plain_names import plain_name
from jaxcontam.report.remedies import Advice
from jaxcontam.results import OrderResult, UnscoredFile
from jaxcontam.results.read import read_result
from jaxcontam.verdict import (
    CONTAMINATED,
    INCONCLUSIVE,
    INVALID_DESIGN,
    NO_EVIDENCE,
    SUSPECTED,
    decide,
    screen,
)

FAILED = "failed"
LETTERS = {
    CONTAMINATED: "C",
    SUSPECTED: "S",
    NO_EVIDENCE: "N",
    INCONCLUSIVE: "I",
    INVALID_DESIGN: "X",
}
"""Letters for verdicts in the wide table and the picture."""

_LEVEL = 0.05


def decided_cells(
    outcomes: Sequence[Outcome], *, min_effect: float
) -> tuple[list[dict[str, Any]], list[OrderResult]]:
    """Rows of public.json and results with verdicts, of the cells that were tested.

    A verdict here is not that of the cell's own report, which knows of one benchmark:
    its p-value is adjusted for all cells that were tested.

    Args:
        outcomes: Outcomes of all cells.
        min_effect: Nats a boundary that `no evidence` must have been able to find.
    """
    tested = [one for one in outcomes if one.report is not None]
    # Models may share a benchmark; a verdict looks at the tests beside it in its cell.
    results = [
        dataclasses.replace(read_result(OrderResult, row), benchmark=one.cell.name)
        for one in tested
        for row in (one.report or {})["results"]
    ]
    decided = [one for one in decide(results, min_effect=min_effect) if one.primary]
    by = [row.by for row in screen(decided)] or [None] * len(decided)
    rows = [
        _row(one, result, level)
        for one, result, level in zip(tested, decided, by, strict=True)
    ]
    return rows, decided


def _row(one: Outcome, result: OrderResult, by: float | None) -> dict[str, Any]:
    report, numbers = one.report, result.numbers
    assert report is not None
    return {
        "model": one.cell.model.name,
        "benchmark": one.cell.benchmark.name,
        "command": shlex.join(["jaxcontam", "audit", *one.cell.words]),
        "out": str(one.cell.audit.out),
        "kept": one.kept,
        "n_examples": result.n_examples,
        "method": result.method,
        "p_value": numbers.p_value,
        "log10_p": numbers.log10_p,
        "p_adjusted": result.p_adjusted,
        "by": by,
        "effect": numbers.effect,
        "effect_se": numbers.effect_se,
        "effect_unit": result.effect_unit,
        "mde": numbers.mde,
        "verdict": result.verdict,
        "failed_pretests": [t.name for t in result.refusals],
        "order_provenance": result.order_provenance,
        "tokens_scored": sum(row["tokens_scored"] for row in report["results"]),
        "wall_seconds": report["wall_seconds"],
        "model_fingerprint": report["model"]["fingerprint"],
        "benchmark_fingerprint": result.fingerprint,
    }


def refused_cells(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The cells that were not scored as their file's own order failed its checks."""
    return [
        {
            "model": one.cell.model.name,
            "benchmark": one.cell.benchmark.name,
            "verdict": one.refused["verdict"],
            "method": one.refused["method"],
            "failed_pretests": [
                test.name for test in read_result(UnscoredFile, one.refused).refusals
            ],
            "remedy": _advice(one),
        }
        for one in outcomes
        if one.refused is not None
    ]


def _advice(one: Outcome) -> str:
    """The first thing to do about a file that was not scored."""
    refused = read_result(UnscoredFile, one.refused)
    command = ("audit", *one.cell.words)
    return Advice(command, method_words()).about_file(refused)[0].words


def _p(result: OrderResult) -> str:
    return p_text(result.numbers.log10_p, result.validity)


def failed_cells(outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """The cells that could not be tested, and why."""
    return [
        {
            "model": one.cell.model.name,
            "benchmark": one.cell.benchmark.name,
            "error": one.error,
            "hint": one.hint,
        }
        for one in outcomes
        if one.report is None and one.refused is None
    ]


def wide_words(
    rows: Sequence[Mapping[str, Any]],
    decided: Sequence[OrderResult],
    refused: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], str]:
    """(model, benchmark) -> p, if there is one, and the letter of the verdict."""
    return {
        (row["model"], row["benchmark"]): f"{_p(result)} {LETTERS[row['verdict']]}"
        for row, result in zip(rows, decided, strict=True)
    } | {(row["model"], row["benchmark"]): LETTERS[row["verdict"]] for row in refused}


def grids(
    rows: Sequence[Mapping[str, Any]],
    decided: Sequence[OrderResult],
    refused: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, str]],
    models: Sequence[str],
    benchmarks: Sequence[str],
) -> tuple[Grid, ...]:
    """The table with models as rows, one line a cell, and what has none."""
    words = wide_words(rows, decided, refused)
    letters = ", ".join(f"{letter} {verdict}" for verdict, letter in LETTERS.items())
    wide = Grid.crossed(
        f"p of the deciding test; verdict after Holm over {len(rows)} cells "
        f"({letters})",
        "model",
        words,
        lines=models,
        columns=benchmarks,
        empty=FAILED,
    )
    long = Grid.of(
        reading(rows),
        list(zip(rows, decided, strict=True)),
        {
            "model": "{r[0][model]}",
            "benchmark": "{r[0][benchmark]}",
            "n": "{r[0][n_examples]:,}",
            "test": "{r[0][method]}",
            "p": lambda line: _p(line[1]),
            "p adjusted": lambda line: p_text(
                math.log10(line[0]["p_adjusted"]), line[1].validity
            ),
            "effect, nats a boundary": lambda line: effect_words(
                line[1].numbers.effect, line[1].numbers.effect_se
            ),
            "MDE": lambda line: (
                "-" if line[0]["mde"] is None else f"{line[0]['mde']:.2f}"
            ),
            "verdict": lambda line: _verdict(line[0]),
        },
    )
    tables = [wide, long] if rows else [wide]
    place = {"model": "{r[model]}", "benchmark": "{r[benchmark]}"}
    if refused:
        why = {"checks that failed": _failed, "remedy": lambda row: row["remedy"] or ""}
        title = "Not scored: the file's own order"
        tables.append(Grid.of(title, refused, {**place, **why}))
    if failed:
        tables.append(Grid.of("Not tested", failed, {**place, "reason": "{r[error]}"}))
    return tuple(tables)


def reading(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to hold the number of small p-values against, in a sentence."""
    valid = [row for row in rows if row["verdict"] != INVALID_DESIGN]
    small = sum(row["p_value"] <= _LEVEL for row in valid)
    return (
        f"{small} of {len(valid)} cells with a valid design have p <= {_LEVEL} before "
        f"correction; {_LEVEL * len(valid):.1f} are expected where nothing was seen. "
        "MDE: smallest effect found with power 0.8 at level 0.001, one cell alone"
    )


def _failed(row: Mapping[str, Any]) -> str:
    return "; ".join(map(plain_name, row["failed_pretests"]))


def _verdict(row: Mapping[str, Any]) -> str:
    verdict = row["verdict"]
    is_refused = row["failed_pretests"] and verdict == INVALID_DESIGN
    return f"{verdict} ({_failed(row)})" if is_refused else verdict


# Adjusted p above each, and its colour; the darkest two carry white words.
_STEPS = (
    (0.05, "#f4f7fb", "p > 0.05"),
    (0.001, "#c9dcf0", "p <= 0.05"),
    (1e-6, "#7fb0dc", "p <= 0.001"),
    (1e-12, "#1f5fa8", "p <= 1e-6"),
    (-1.0, "#0b2f5b", "p <= 1e-12"),
)
_WHITE_FROM = 1e-6
_INVALID, _FAILED = ("#e3d4e6", "invalid design"), ("#dddddd", "failed")
_CELL_INCHES = (0.95, 0.34)
# Around the cells: names of models, names of benchmarks, legend.
_MARGIN_INCHES = (3.0, 1.7)


def heat_map(
    rows: Sequence[Mapping[str, Any]],
    words: Mapping[tuple[str, str], str],
    models: Sequence[str],
    benchmarks: Sequence[str],
) -> str:
    """SVG of the table; each cell shows p before correction, its colour p after it.

    Args:
        rows: Cells of public.json.
        words: (model, benchmark) -> what stands in the cell.
        models: From top to bottom.
        benchmarks: From left to right.
    """
    by_cell = {(row["model"], row["benchmark"]): row for row in rows}
    size = tuple(
        n * cell + margin
        for n, cell, margin in zip(
            (len(benchmarks), len(models)), _CELL_INCHES, _MARGIN_INCHES, strict=True
        )
    )
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((size[0], size[1]))
        shown: dict[str, str] = {}
        for y, model in enumerate(models):
            for x, benchmark in enumerate(benchmarks):
                row = by_cell.get((model, benchmark))
                colour, meaning = _look(row)
                shown[meaning] = colour
                axes.add_patch(Rectangle((x, y), 1, 1, fc=colour, ec="white", lw=1.5))
                is_dark = row is not None and _is_dark(row)
                axes.text(
                    x + 0.5,
                    y + 0.5,
                    words.get((model, benchmark), _FAILED[1]),
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if is_dark else "black",
                )
        axes.set_xlim(0, len(benchmarks))
        axes.set_ylim(len(models), 0)
        axes.set_xticks(
            [x + 0.5 for x in range(len(benchmarks))],
            list(benchmarks),
            rotation=40,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_yticks([y + 0.5 for y in range(len(models))], list(models))
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        order = [step[2] for step in _STEPS] + [_INVALID[1], _FAILED[1]]
        handles = [
            Patch(fc=shown[meaning], ec="grey", lw=0.4, label=meaning)
            for meaning in order
            if meaning in shown
        ]
        figure.legend(
            handles=handles,
            title="adjusted",
            loc="outside right upper",
            frameon=False,
            fontsize=8,
        )
        return svg_text(figure)


def _look(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """Colour of a cell and what it means."""
    if row is None:
        return _FAILED
    if row["verdict"] == INVALID_DESIGN:
        return _INVALID
    return next(
        (colour, meaning)
        for above, colour, meaning in _STEPS
        if row["p_adjusted"] > above
    )


def _is_dark(row: Mapping[str, Any]) -> bool:
    return row["verdict"] != INVALID_DESIGN and row["p_adjusted"] <= _WHITE_FROM
