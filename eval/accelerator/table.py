"""Measurements as text, and the goals that they are held to."""

import statistics
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_TRAIN = ("train_1.4b", "train_1.4b_kept")
GOALS = (
    (("score_1.4b",), "utilisation", 0.55, "scoring 1.4 B: share of the peak"),
    (("score_1.4b",), "ratio", 1.5, "scoring 1.4 B: times torch"),
    (("train_124m",), "utilisation", 0.45, "training 124 M: share of the peak"),
    (_TRAIN, "utilisation", 0.45, "training 1.4 B: share of the peak"),
)
"""Parts of which the best counts, number, least value, words."""


def judge(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each goal whose number was measured, and whether it is met."""
    rows = []
    for parts, number, least, words in GOALS:
        cells = [measured.get(part, {}) for part in parts]
        known = [cell[number] for cell in cells if cell.get(number) is not None]
        if number == "utilisation":
            known = [of_side["jaxcontam"] for of_side in known]
        if known:
            found = max(known)
            met = found >= least
            rows.append({"goal": words, "least": least, "found": found, "met": met})
    return rows


def print_measured(measured: Mapping[str, Any], console: Console) -> None:
    """Print one line a part, and the goals."""
    device = measured["device"]
    console.print(
        f"{device['kind']} ({device['platform']}, {device['n']}); "
        f"{measured['versions']}\n"
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("part")
    for column in ("tokens/s", "of peak", "torch", "of peak", "ratio", "peak", "GB"):
        table.add_column(column, justify="right", no_wrap=True)
    for part, cell in measured.items():
        if isinstance(cell, Mapping) and "utilisation" in cell:
            table.add_row(part, *_numbers(cell))
        elif isinstance(cell, Mapping) and "failed" in cell:
            table.add_row(part, cell["failed"])
    console.print(table)
    for row in measured["goals"]:
        console.print(
            f"{row['goal']}: {row['found']:.2f}, goal {row['least']:.2f}, "
            f"{'met' if row['met'] else 'not met'}"
        )


def _numbers(cell: Mapping[str, Any]) -> list[str]:
    def rate(name: str) -> list[str]:
        if name not in cell["tokens_per_second"]:
            return ["", ""]
        median = statistics.median(cell["tokens_per_second"][name])
        return [f"{median:,.0f}", f"{cell['utilisation'][name]:.0%}"]

    memory = cell["memory_gb"]
    memory = memory["jaxcontam"] if isinstance(memory, Mapping) else memory
    return [
        *rate("jaxcontam"),
        *rate("torch"),
        "" if cell["ratio"] is None else f"{cell['ratio']:.2f}",
        f"{max(cell['peak_tflops'].values()):,.1f} TF/s",
        "" if memory is None else f"{memory:.1f}",
    ]
