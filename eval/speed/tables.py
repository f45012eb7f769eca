"""Measurements as tables that fit 100 columns, and the targets they are held to."""

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from eval.speed.subjects import CPU_SIZES
from eval.study import Column, Grid, data_file, print_grid

_WAYS = {
    "torch": "torch 1 by 1",
    "torch_batched": "batched",
    "torch_bf16": "torch bf16",
    "jaxcontam_alone": "ours 1 by 1",
    "jaxcontam": "ours",
    "jaxcontam_bf16": "ours bf16",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on one number.

    Attributes:
        name: What is asked for.
        wanted: The bound.
        unit: How a value is printed: `x`, `%`, or nothing.
        where: Places that lead to the number, dots between; the largest counts.
        at_least: Whether the bound is the lower one.
    """

    name: str
    wanted: float
    unit: str
    where: tuple[str, ...]
    at_least: bool = False

    def text(self, value: float) -> str:
        """A value with its unit."""
        if self.unit == "%":
            return f"{100 * value:.3g} %"
        return f"{value:.2f} {self.unit}" if self.unit else f"{value:g}"


TARGETS = tuple(
    Target(**row | {"where": tuple(row["where"])})
    for row in data_file(__file__, "targets")["target"]
)


def judge(measured: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every target of the parts that were measured: name, bound, value, met or not.

    A target whose number was not measured (a pulse run has other lengths) is left out.
    """
    rows = []
    for target in TARGETS:
        values = [_number(measured, place.split("/")) for place in target.where]
        known = [value for value in values if value is not None]
        if not known:
            continue
        value = max(known)
        bound = "at least " if target.at_least else "at most "
        is_above = value >= target.wanted
        rows.append(
            {
                "target": target.name,
                "wanted": bound + target.text(target.wanted),
                "measured": target.text(value),
                "value": value,
                "met": is_above if target.at_least else value <= target.wanted,
            }
        )
    return rows


def _number(measured: Mapping[str, Any], place: Sequence[str]) -> float | None:
    found: Any = measured
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def print_measured(measured: Mapping[str, Any], console: Console) -> None:
    """Print what was measured, part by part, and the targets."""
    console.print(f"{measured['device']}; {measured['versions']}")
    for grid in _grids(measured):
        print_grid(grid, console)
    for line in _lines(measured):
        console.print(line)
    if measured["targets"]:
        columns = {
            "target": "{r[target]}",
            "wanted": "{r[wanted]}",
            "measured": "{r[measured]}",
            "": lambda row: "met" if row["met"] else "not met",
        }
        print_grid(Grid.of("Targets", measured["targets"], columns), console)


def _grids(measured: Mapping[str, Any]) -> Iterator[Grid]:
    """Rates of all ways, and ratios; a line a model and length."""
    rows = [
        (_label(size), length, cell)
        for size in CPU_SIZES
        for length, cell in _cells_of(measured, size).items()
    ]
    if rows:
        start: dict[str, Column] = {"model": "{r[0]}", "T": "{r[1]}"}
        rates: dict[str, Column] = {
            words: lambda row, way=way: _rate(row[2], way)
            for way, words in _WAYS.items()
        }
        ratios: dict[str, Column] = {
            "/ 1 by 1": "{r[2][ratio_to][torch]:.2f}",
            "/ batched": "{r[2][ratio_to][torch_batched]:.2f}",
            "/ bf16": "{r[2][ratio_to][torch_bf16]:.2f}",
            "bf16 / bf16": "{r[2][ratio_bf16]:.2f}",
            "bf16 / ours": "{r[2][ratio_bf16_to_float32]:.2f}",
            "peak": "{r[2][utilisation][jaxcontam]:.0%}",
            "max diff": "{r[2][largest_difference]:.0e}",
        }
        yield Grid.of("target tokens/s, median of rounds", rows, start | rates)
        yield Grid.of("ours / theirs, median of ratios", rows, start | ratios)
    parts = [
        (part, cell)
        for part, cell in measured.items()
        if isinstance(cell, Mapping) and ("utilisation" in cell or "failed" in cell)
    ]
    if parts:
        header = ("part", "tokens/s", "of peak", "torch", "of peak", "ratio", "peak")
        lines = tuple((part, *_numbers(cell)) for part, cell in parts)
        yield Grid("bfloat16", (*header, "GB"), lines)


def _numbers(cell: Mapping[str, Any]) -> list[str]:
    """The line of a part that was measured on an accelerator."""
    if "failed" in cell:
        return [cell["failed"], *[""] * 6]
    shares = []
    for way in ("jaxcontam", "torch"):
        used = cell["utilisation"].get(way)
        shares += [_rate(cell, way), "" if used is None else f"{used:.0%}"]
    memory = cell["memory_gb"]
    memory = memory["jaxcontam"] if isinstance(memory, Mapping) else memory
    return [
        *shares,
        "" if cell["ratio"] is None else f"{cell['ratio']:.2f}",
        f"{max(cell['peak_tflops'].values()):,.1f} TF/s",
        "" if memory is None else f"{memory:.1f}",
    ]


def _label(size: str) -> str:
    return f"{size[:-1]} M"


def _rate(cell: Mapping[str, Any], way: str) -> str:
    rates = cell["tokens_per_second"].get(way)
    return "" if rates is None else f"{statistics.median(rates):,.0f}"


def _lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """A line for each other number."""
    for size in CPU_SIZES:
        cells = _cells_of(measured, size)
        if peaks := [1e3 * max(one["peak_tflops"].values()) for one in cells.values()]:
            yield (
                f"{_label(size)}: sgemm peak {min(peaks):.0f} to {max(peaks):.0f} "
                "GFLOP/s"
            )
        if growth := measured.get(f"kernel_{size}", {}).get("memory_growth_mb"):
            yield f"  memory growth while first scoring: {growth:.0f} MB"
        if real := cells.get("real"):
            yield (
                f"  real lengths: {real['n_shapes']} shapes, {real['n_batches']} "
                f"batches, {real['positions']:,} positions for {real['n_targets']:,} "
                f"targets; {real['ratio_to']['jaxcontam_alone']:.2f} x ours 1 by 1"
            )
    for size, cell in measured.get("moments", {}).items():
        yield f"moments, {_label(size)}: {cell['added_share']:+.1%} of the time"
    if found := measured.get("membership"):
        n_texts, n_tokens = found["shape"]
        yield (
            f"{len(found['scores'])} scores of one pass, 30 M, {n_texts} texts of "
            f"{n_tokens}: {found['ratio']:.3f} x Min-K% alone; forward with moments "
            f"{found['ratio_of_forwards']:.3f} x, "
            f"{found['host_us_a_text']:.0f} us a text for the scores"
        )
    if found := measured.get("growth_million", measured.get("growth")):
        rows = " ".join(f"{n:>9,}" for n in found["rows"])
        yield f"{'rows of a file':<14} {rows}  exponents"
        for part, seconds in found["seconds"].items():
            spent = " ".join(f"{own:7.2f} s" for own in seconds)
            growth = ", ".join(f"{own:.2f}" for own in found["exponents"][part])
            yield f"{part:<14} {spent}  {growth}"
    if found := measured.get("audit_memory"):
        yield (
            f"audit of {found['rows']:,} rows of {found['characters']} characters: "
            f"{found['peak_bytes'] / 1e9:.2f} GB at its peak, {found['seconds']:.0f} s "
            f"(exit code {found['exit_code']})"
        )
    if found := measured.get("train"):
        yield (
            f"training, {found['rows']} rows of {found['row_tokens']}: "
            f"{_rate(found, 'jaxcontam')} tokens/s, torch {_rate(found, 'torch')}; "
            f"{found['ratio']:.2f} x; losses of the same {found['n_losses']} steps "
            f"differ by {found['largest_difference']:.0e}"
        )


def _cells_of(measured: Mapping[str, Any], size: str) -> dict[str, Any]:
    """Cells of a model: those of one length, and those of real lengths."""
    parts = (measured.get(f"{part}_{size}", {}) for part in ("kernel", "real"))
    return {
        length: cell for part in parts for length, cell in part.get("cells", {}).items()
    }
