"""What `jaxcontam membership` shows on a terminal."""

from collections.abc import Sequence

from rich.table import Table

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
from jaxcontam.report.outcome import bare_table, first_that_fits
from jaxcontam.results import Report
from jaxcontam.results.membership import BlindBaseline, ScoreResult
from jaxcontam.terminal import Terminal


def print_membership(report: Report, console: Terminal) -> None:
    """The scores with blind baselines below them, and the sentence that decides."""
    study, decisive, blind = study_of(report), decisive_row(report), report.blind
    ranked = [row for row in report.results if isinstance(row, ScoreResult)]
    if ranked:
        # Intervals go first, then the gain, then rates; the page has them all.
        n = len(ranked[0].operating_points)
        shown = ((True, True, n), (False, True, n), (False, False, n))
        tables = [_ranking(ranked, blind, *one) for one in (*shown, (False, False, 1))]
        console.print(first_that_fits(tables, console)[0], crop=False)
    elif blind:
        header = ("texts against non-members, blind", "AUC (95 %)")
        rows = [(blind_name(one.name), auc_words(one)) for one in blind]
        console.print(bare_table(header, rows, gap=2))
    for row in report.thresholds:
        if row.threshold is not None:
            console.print(
                f"{row.method} above {row.threshold:.4g}: {row.n_above} "
                f"texts, at a false-positive rate of {row.fpr:.3g} (on new "
                f"non-members {row.fpr_low:.3f} to {row.fpr_high:.3f}); "
                f"{row.n_discoveries} by Benjamini-Hochberg at {row.fpr:.3g}."
            )
    console.print(
        f"{study.n_texts:,} texts, {study.tokens_scored:,} tokens scored"
        + (f", {study.n_unscored} texts without a token" * (study.n_unscored > 0))
        + (f", {study.n_left_out} left out as prefix" * (study.n_left_out > 0))
        + "."
    )
    if study.sweep is not None:
        console.print(sweep_sentence(study.sweep))
    for warning in (*study.warnings, *(decisive.warnings if decisive else ())):
        console.print(f"{warning}.")
    if decisive is not None:
        console.print()
        console.print(membership_sentence(decisive, blind))


def _ranking(
    rows: Sequence[ScoreResult],
    blind: Sequence[BlindBaseline],
    intervals: bool,
    has_gain: bool,
    n_rates: int,
) -> Table:
    points = rows[0].operating_points
    rates = (operating_header(point) for point in points[:n_rates])
    gain = ["gain over\nblind"] * has_gain
    header = ("score", "AUC (95 %)", *rates, "p", *gain)
    header = [name.replace(" at FPR ", "\nFPR ") for name in header]
    table = bare_table(header, gap=2)
    for row in rows:
        table.add_row(
            row.method,
            auc_words(row),
            *(tpr_words(p, interval=intervals) for p in row.operating_points[:n_rates]),
            plain_p(row.p_value),
            *(increment_words(row, interval=intervals) for _ in gain),
            style="bold" if row.primary else None,
        )
    for one in blind:
        table.add_row(f"blind: {blind_name(one.name)}", auc_words(one), style="dim")
    if n_rates < len(points):
        table.caption = "the other rates stand in the report"
        table.caption_justify = "left"
    return table
