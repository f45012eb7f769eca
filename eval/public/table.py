"""Audits of all cells to one table: Holm over all of it, then the verdicts."""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from eval.public.cells import Outcome
from eval.study import Grid
from jaxcontam.analyses.method_notes import method_words
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
"""Of the verdicts, for cells of the wide table and of the picture."""

_LEVEL = 0.05


def decided_cells(
    outcomes: Sequence[Outcome], *, min_effect: float
) -> tuple[list[dict[str, Any]], list[OrderResult]]:
    """Rows of public.json and results with verdicts, of the cells that were tested.

    A verdict here is not that of the cell's own report, which knows of one benchmark:
    its p-value is adjusted for all cells that were tested.

    Args:
        outcomes: Of all cells.
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
        "failed_pretests": [t.name for t in result.pretests if not t.passed],
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
                test["name"] for test in one.refused["pretests"] if not test["passed"]
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
    wide = Grid(
        f"p of the deciding test; verdict after Holm over {len(rows)} cells "
        f"({letters})",
        ("model", *benchmarks),
        tuple(
            (model, *(words.get((model, name), FAILED) for name in benchmarks))
            for model in models
        ),
    )
    long = Grid(
        reading(rows),
        (
            *("model", "benchmark", "n", "test", "p", "p adjusted"),
            *("effect, nats a boundary", "MDE", "verdict"),
        ),
        tuple(map(_line, rows, decided)),
    )
    tables = [wide, long] if rows else [wide]
    if refused:
        lines = tuple(
            (
                *(row["model"], row["benchmark"]),
                "; ".join(map(plain_name, row["failed_pretests"])),
                row["remedy"] or "",
            )
            for row in refused
        )
        head = ("model", "benchmark", "checks that failed", "remedy")
        tables.append(Grid("Not scored: the file's own order", head, lines))
    if failed:
        lost = tuple((row["model"], row["benchmark"], row["error"]) for row in failed)
        tables.append(Grid("Not tested", ("model", "benchmark", "reason"), lost))
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


def _line(row: Mapping[str, Any], result: OrderResult) -> tuple[str, ...]:
    verdict = row["verdict"]
    if row["failed_pretests"] and verdict == INVALID_DESIGN:
        verdict += f" ({'; '.join(map(plain_name, row['failed_pretests']))})"
    return (
        row["model"],
        row["benchmark"],
        f"{row['n_examples']:,}",
        row["method"],
        _p(result),
        p_text(math.log10(row["p_adjusted"]), result.validity),
        effect_words(result.numbers.effect, result.numbers.effect_se),
        "-" if row["mde"] is None else f"{row['mde']:.2f}",
        verdict,
    )
