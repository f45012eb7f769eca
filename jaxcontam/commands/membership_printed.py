"""What `jaxcontam membership` shows on a terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from jaxcontam.report.membership_words import (
    auc_words,
    blind_name,
    increment_words,
    membership_sentence,
    operating_header,
    p_words,
    sweep_sentence,
    tpr_words,
)


def print_membership(document: dict[str, Any], console: Console) -> None:
    """The scores with blind baselines below them, and the sentence that decides."""
    rows, blind = document["results"], document.get("blind", [])
    ranked = [row for row in rows if "operating_points" in row]
    if ranked:
        console.print(_ranking_table(ranked, blind, console), crop=False)
    elif blind:
        console.print(_blind_table(blind))
    for row in document.get("thresholds", []):
        if row["threshold"] is not None:
            console.print(
                f"{row['method']} above {row['threshold']:.4g}: {row['n_above']} "
                f"texts, at a false-positive rate of {row['fpr']:.3g} (on new "
                f"non-members {row['fpr_low']:.3f} to {row['fpr_high']:.3f}); "
                f"{row['n_discoveries']} by Benjamini-Hochberg at {row['fpr']:.3g}.",
                highlight=False,
            )
    study = document["study"]
    console.print(
        f"{study['n_texts']:,} texts, {study['tokens_scored']:,} tokens scored"
        + (f", {study['n_unscored']} texts without a token" * (study["n_unscored"] > 0))
        + (f", {study['n_left_out']} left out as prefix" * (study["n_left_out"] > 0))
        + ".",
        highlight=False,
    )
    if study["sweep"] is not None:
        console.print(sweep_sentence(study["sweep"]), highlight=False)
    decisive = next((row for row in rows if row["primary"]), None)
    warnings = [*study["warnings"], *(decisive["warnings"] if decisive else [])]
    for warning in warnings:
        console.print(f"{warning}.", highlight=False, markup=False)
    if decisive is not None:
        console.print()
        console.print(
            membership_sentence(decisive, blind), highlight=False, markup=False
        )


def _ranking_table(
    rows: Sequence[dict[str, Any]],
    blind: Sequence[dict[str, Any]],
    console: Console,
) -> RichTable:
    """As wide as the terminal allows: intervals go first, then the gain, then rates.

    What is left out stands on the page. What is still too wide is printed so, since a
    number cut short is a wrong one.
    """
    n_rates = len(rows[0]["operating_points"])
    unbound = console.options.update(max_width=1_000)
    for intervals, gain, rates in (
        (True, True, n_rates),
        (False, True, n_rates),
        (False, False, n_rates),
        (False, False, 1),
    ):
        table = _ranking(rows, blind, intervals=intervals, gain=gain, n_rates=rates)
        needed = Measurement.get(console, unbound, table).maximum
        if needed <= console.width:
            break
    else:
        table.width = needed
    if rates < n_rates:
        table.caption = "the other rates stand in the report"
        table.caption_justify = "left"
    return table


def _ranking(
    rows: Sequence[dict[str, Any]],
    blind: Sequence[dict[str, Any]],
    *,
    intervals: bool,
    gain: bool,
    n_rates: int,
) -> RichTable:
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("score", no_wrap=True)
    table.add_column("AUC (95 %)", justify="right", no_wrap=True)
    for point in rows[0]["operating_points"][:n_rates]:
        name = operating_header(point).replace(" at FPR ", "\nFPR ")
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    if gain:
        table.add_column("gain over\nblind", justify="right", no_wrap=True)
    for row in rows:
        points = row["operating_points"][:n_rates]
        cells = [tpr_words(point, interval=intervals) for point in points]
        cells.append(p_words(row["p_value"]))
        if gain:
            cells.append(increment_words(row, interval=intervals))
        table.add_row(
            row["method"],
            auc_words(row),
            *cells,
            style="bold" if row["primary"] else None,
        )
    for one in blind:
        table.add_row(f"blind: {blind_name(one['name'])}", auc_words(one), style="dim")
    return table


def _blind_table(blind: Sequence[dict[str, Any]]) -> RichTable:
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("texts against non-members, blind", no_wrap=True)
    table.add_column("AUC (95 %)", justify="right", no_wrap=True)
    for one in blind:
        table.add_row(blind_name(one["name"]), auc_words(one))
    return table
