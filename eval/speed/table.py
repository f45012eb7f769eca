"""Measurements as text that fits 100 columns, and the targets they are held to."""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from eval.speed.measure import SIZES

_WAYS = {
    "torch": "torch 1 by 1",
    "torch_batched": "batched",
    "torch_bf16": "bf16",
    "jaxcontam_alone": "ours 1 by 1",
    "jaxcontam": "ours",
    "jaxcontam_bf16": "bf16",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on one number.

    Attributes:
        name: What is asked for.
        wanted: The bound.
        unit: How a value is printed: `x`, `%`, `s`, or nothing.
        where: Keys that lead to the number.
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


def _of_size(size: str, ratio: float) -> list[Target]:
    label = _label(size)
    fixed = (f"kernel_{size}", "cells", "512")
    real = (f"real_{size}", "cells", "real")
    return [
        Target(
            f"{label}: float32 against torch one by one, T = 512",
            ratio,
            "x",
            (*fixed, "ratio_to", "torch"),
            at_least=True,
        ),
        Target(
            f"{label}: share of the sgemm peak, T = 512",
            0.8,
            "%",
            (*fixed, "share_of_peak"),
            at_least=True,
        ),
        Target(
            f"{label}: against our own one-sequence calls, real lengths",
            2.5,
            "x",
            (*real, "ratio_to", "jaxcontam_alone"),
            at_least=True,
        ),
        Target(f"{label}: compiled shapes, real lengths", 10, "", (*real, "n_shapes")),
    ]


def _pairs(shape: str, wanted: float) -> Target:
    name = f"30 M: shared prefix against 20 calls from scratch, {shape} ids"
    where = ("pairs", shape, "ratio_to_scratch")
    return Target(name, wanted, "x", where, at_least=True)


def _label(size: str) -> str:
    return f"{size[:-1]} M"


TARGETS = (
    *_of_size("124m", 2.0),
    *_of_size("30m", 2.4),
    *(
        Target(
            f"{_label(size)}: what moments add to log-probabilities",
            0.15,
            "%",
            ("moments", size, "added_share"),
        )
        for size in SIZES
    ),
    Target(
        "30 M: all scores of one pass against Min-K% alone, 128 ids",
        1.2,
        "x",
        ("membership", "ratio"),
    ),
    _pairs("64/64", 1.8),
    _pairs("256/64", 6.0),
    Target(
        "30 M: writing with a cache against reading anew, 200 + 200 ids",
        3.0,
        "x",
        ("generation", "ratio"),
        at_least=True,
    ),
    Target("30 M: share of the store in scoring", 0.05, "%", ("store", "share")),
    Target(
        "10^4 orders a stratum, 40 of 25, exact p-value",
        1.0,
        "s",
        ("orders", "median_seconds", "exact"),
    ),
    Target(
        "30 M: a training step against a plain torch loop, T = 512",
        1.5,
        "x",
        ("train", "ratio"),
        at_least=True,
    ),
    # Asked of two cores, measured on one.
    Target(
        "10^5 fresh orders of 40 strata of 25",
        8.0,
        "s",
        ("orders", "median_seconds", "fresh"),
    ),
)


def judge(measured: Mapping[str, Any]) -> list[dict]:
    """Every target of the parts that were measured: name, bound, value, met or not.

    A target whose cell was not measured (a pulse run has other lengths) is left out.
    """
    rows = []
    for target in TARGETS:
        value: Any = measured
        for key in target.where:
            value = value.get(key, {})
        if isinstance(value, Mapping):
            continue
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


def print_measured(measured: Mapping[str, Any], console: Console) -> None:
    """Print what was measured, part by part, and the targets."""
    console.print(f"{measured['cpu']}, one core; {measured['versions']}\n")
    _print_kernels(measured, console)
    for part, words in _WORDS.items():
        if part in measured:
            for line in words(measured[part]):
                console.print(line)
    if measured["targets"]:
        table = _table("target", "wanted", "measured", "")
        for row in measured["targets"]:
            met = "met" if row["met"] else "not met"
            table.add_row(row["target"], row["wanted"], row["measured"], met)
        console.print()
        console.print(table)


def _moments(found: Mapping[str, Any]) -> Iterable[str]:
    for size, cell in found.items():
        yield f"moments, {_label(size)}: {cell['added_share']:+.1%} of the time"


def _membership(found: Mapping[str, Any]) -> Iterable[str]:
    n_texts, n_tokens = found["shape"]
    yield (
        f"{len(found['scores'])} scores of one pass, 30 M, {n_texts} texts of "
        f"{n_tokens}: {found['ratio']:.3f} x Min-K% alone; forward with moments "
        f"{found['ratio_of_forwards']:.3f} x, "
        f"{found['host_us_a_text']:.0f} us a text for the scores"
    )


def _shared_prefixes(found: Mapping[str, Any]) -> Iterable[str]:
    for shape, cell in found.items():
        yield (
            f"shared prefix, {shape} ids, {cell['n_continuations']} continuations: "
            f"{cell['ratio_to_scratch']:.2f} x scratch, "
            f"{cell['ratio_to_batched']:.2f} x batched"
        )


def _generation(found: Mapping[str, Any]) -> Iterable[str]:
    n_prompts, n_read, n_new = found["shape"]
    rates = found["ids_per_second"]
    yield (
        f"writing {n_new} ids after {n_read}, {n_prompts} prompts: with a cache "
        f"{statistics.median(rates['cached']):,.0f} ids/s, reading all again "
        f"{statistics.median(rates['anew']):,.0f}; {found['ratio']:.1f} x"
    )


def _store(found: Mapping[str, Any]) -> Iterable[str]:
    yield (
        f"store: {found['write_us']:.0f} us a batch to look for rows and write "
        f"them, {found['share']:.3%} of {found['batch_us'] / 1000:.0f} ms; "
        f"{found['read_us']:.0f} us to read"
    )


def _growth(found: Mapping[str, Any]) -> Iterable[str]:
    rows = " ".join(f"{n:>9,}" for n in found["rows"])
    yield f"{'rows of a file':<14} {rows}  exponents"
    for part, seconds in found["seconds"].items():
        spent = " ".join(f"{own:7.2f} s" for own in seconds)
        growth = ", ".join(f"{own:.2f}" for own in found["exponents"][part])
        yield f"{part:<14} {spent}  {growth}"


def _compiled(found: Mapping[str, Any]) -> Iterable[str]:
    yield (
        f"first scores, 30 M: {found['first_seconds']:.1f} s, in a second process "
        f"{found['second_seconds']:.1f} s ({found['n_files']} files, "
        f"{found['megabytes']:.1f} MB; same bits: {found['same_bits']})"
    )


def _train(found: Mapping[str, Any]) -> Iterable[str]:
    rates = found["tokens_per_second"]
    yield (
        f"training, {found['rows']} rows of {found['row_tokens']}: "
        f"{statistics.median(rates['jaxcontam']):,.0f} tokens/s, torch "
        f"{statistics.median(rates['torch']):,.0f}; {found['ratio']:.2f} x; losses "
        f"of the same {found['n_losses']} steps differ by "
        f"{found['largest_difference']:.0e}"
    )


def _redraws(found: Mapping[str, Any]) -> Iterable[str]:
    rate = statistics.median(found["redraws_per_second"]["jaxcontam"])
    yield f"re-draws: {rate / 1e6:.1f} M a second, {found['ratio']:.0f} x SciPy"


def _orders(found: Mapping[str, Any]) -> Iterable[str]:
    n_strata, n_examples = found["shape"]
    for way, label in (
        ("exact", "orders a stratum and the exact p-value"),
        ("fresh", "fresh orders of all strata"),
    ):
        yield (
            f"{found['orders'][way]:,} {label}, {n_strata} strata of "
            f"{n_examples}: {found['median_seconds'][way]:.2f} s of CPU, "
            f"{found['peak_mb'][way]:.0f} MB"
        )


def _population(found: Mapping[str, Any]) -> Iterable[str]:
    for part, plain in (("train", "step"), ("score", "single")):
        for n_models, cell in found[part].items():
            rate = cell["tokens_per_second"][plain]
            ratios = ", ".join(
                f"{way} {ratio:.2f} x"
                for way, ratio in cell[f"ratio_to_{plain}"].items()
                if way != plain
            )
            yield (
                f"{part} {n_models} models of {found['preset']}: {plain} "
                f"{rate:,.0f} tok/s; {ratios}"
            )


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    "moments": _moments,
    "membership": _membership,
    "pairs": _shared_prefixes,
    "generation": _generation,
    "store": _store,
    "growth": _growth,
    "growth_million": _growth,
    "compiled": _compiled,
    "train": _train,
    "redraws": _redraws,
    "orders": _orders,
    "population": _population,
}


def _print_kernels(measured: Mapping[str, Any], console: Console) -> None:
    cells = {size: cells for size in SIZES if (cells := _cells_of(measured, size))}
    if not cells:
        return
    console.print("target tokens/s, median of rounds; ours / theirs, median of ratios")
    table = _table("model", "T", *_WAYS.values())
    ratios = _table(
        *("model", "T", "/ 1 by 1", "/ batched", "/ bf16", "bf16 / bf16"),
        *("bf16 / ours", "peak", "max diff"),
    )
    for size, of_length in cells.items():
        for length, cell in of_length.items():
            start = (_label(size), length)
            rates, to = cell["tokens_per_second"], cell["ratio_to"]
            table.add_row(
                *start,
                *(
                    f"{statistics.median(rates[way]):,.0f}" if way in rates else ""
                    for way in _WAYS
                ),
            )
            found = [to[way] for way in ("torch", "torch_batched", "torch_bf16")]
            found += [cell["ratio_bf16"], cell["ratio_bf16_to_float32"]]
            ratios.add_row(
                *start,
                *(f"{ratio:.2f}" for ratio in found),
                f"{cell['share_of_peak']:.0%}",
                f"{cell['largest_difference']:.0e}",
            )
    for one in (table, ratios):
        console.print(one)
        console.print()
    for size, of_length in cells.items():
        peaks = [max(cell["sgemm_gflops"].values()) for cell in of_length.values()]
        console.print(
            f"{_label(size)}: sgemm peak {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s"
        )
        if growth := measured.get(f"kernel_{size}", {}).get("memory_growth_mb"):
            console.print(f"  memory growth while first scoring: {growth:.0f} MB")
        if real := of_length.get("real"):
            console.print(
                f"  real lengths: {real['n_shapes']} shapes, {real['n_batches']} "
                f"batches, {real['positions']:,} positions for {real['n_targets']:,} "
                f"targets; {real['ratio_to']['jaxcontam_alone']:.2f} x ours 1 by 1"
            )


def _cells_of(measured: Mapping[str, Any], size: str) -> dict[str, Any]:
    """Cells of a model: those of one length, and those of real lengths."""
    parts = (measured.get(f"{part}_{size}", {}) for part in ("kernel", "real"))
    return {
        length: cell for part in parts for length, cell in part.get("cells", {}).items()
    }


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for i, column in enumerate(columns):
        is_text = i == 0 or column in ("T", "")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    return table
