"""What `jaxcontam membership` shows on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from jaxcontam.report.membership import (
    auc_words,
    blind_name,
    decisive_row,
    increment_words,
    membership_sentence,
    operating_header,
    study_of,
    sweep_sentence,
    tpr_words,
)
from jaxcontam.report.numbers import plain_p
from jaxcontam.results import Report
from jaxcontam.results.membership import BlindBaseline, ScoreResult


def print_membership(report: Report, console: Console) -> None:
    """The scores with blind baselines below them, and the sentence that decides."""
    study, decisive, blind = study_of(report), decisive_row(report), report.blind
    ranked = [row for row in report.results if isinstance(row, ScoreResult)]
    if ranked:
        console.print(_ranking_table(ranked, blind, console), crop=False)
    elif blind:
        console.print(_blind_table(blind))
    for row in report.thresholds:
        if row.threshold is not None:
            console.print(
                f"{row.method} above {row.threshold:.4g}: {row.n_above} "
                f"texts, at a false-positive rate of {row.fpr:.3g} (on new "
                f"non-members {row.fpr_low:.3f} to {row.fpr_high:.3f}); "
                f"{row.n_discoveries} by Benjamini-Hochberg at {row.fpr:.3g}.",
                highlight=False,
            )
    console.print(
        f"{study.n_texts:,} texts, {study.tokens_scored:,} tokens scored"
        + (f", {study.n_unscored} texts without a token" * (study.n_unscored > 0))
        + (f", {study.n_left_out} left out as prefix" * (study.n_left_out > 0))
        + ".",
        highlight=False,
    )
    if study.sweep is not None:
        console.print(sweep_sentence(study.sweep), highlight=False)
    for warning in (*study.warnings, *(decisive.warnings if decisive else ())):
        console.print(f"{warning}.", highlight=False, markup=False)
    if decisive is not None:
        console.print()
        console.print(
            membership_sentence(decisive, blind), highlight=False, markup=False
        )


def _ranking_table(
    rows: Sequence[ScoreResult],
    blind: Sequence[BlindBaseline],
    console: Console,
) -> RichTable:
    """As wide as the terminal allows: intervals go first, then the gain, then rates.

    What is left out stands on the page. What is still too wide is printed so, since a
    number cut short is a wrong one.
    """
    n_rates = len(rows[0].operating_points)
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
    rows: Sequence[ScoreResult],
    blind: Sequence[BlindBaseline],
    *,
    intervals: bool,
    gain: bool,
    n_rates: int,
) -> RichTable:
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("score", no_wrap=True)
    table.add_column("AUC (95 %)", justify="right", no_wrap=True)
    for point in rows[0].operating_points[:n_rates]:
        name = operating_header(point).replace(" at FPR ", "\nFPR ")
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    if gain:
        table.add_column("gain over\nblind", justify="right", no_wrap=True)
    for row in rows:
        points = row.operating_points[:n_rates]
        cells = [tpr_words(point, interval=intervals) for point in points]
        cells.append(plain_p(row.p_value))
        if gain:
            cells.append(increment_words(row, interval=intervals))
        table.add_row(
            row.method,
            auc_words(row),
            *cells,
            style="bold" if row.primary else None,
        )
    for one in blind:
        table.add_row(f"blind: {blind_name(one.name)}", auc_words(one), style="dim")
    return table


def _blind_table(blind: Sequence[BlindBaseline]) -> RichTable:
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("texts against non-members, blind", no_wrap=True)
    table.add_column("AUC (95 %)", justify="right", no_wrap=True)
    for one in blind:
        table.add_row(blind_name(one.name), auc_words(one))
    return table
