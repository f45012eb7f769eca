"""`jaxcontam membership`: which texts a model saw, with what uncertainty."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from jaxcontam.amounts import counted
from jaxcontam.data.model_files import is_score_file
from jaxcontam.members.design import OF_MASKED
from jaxcontam.members.flags import Membership
from jaxcontam.members.known_texts import WEIGHTS, check_sides, choose, read_texts
from jaxcontam.members.page import (
    auc_words,
    beside_words,
    blind_name,
    decisive_row,
    membership_sentence,
    ranking_columns,
    rate_sentence,
    rate_table,
    share_sentences,
    study_of,
    sweep_sentence,
)
from jaxcontam.members.result import BlindBaseline, ScoreResult
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table, first_that_fits, print_table
from jaxcontam.proof.publish import earlier_reports, shown
from jaxcontam.reports.archive import TEXTS_NAME
from jaxcontam.reports.flags import (
    check_references,
    flags_of,
    open_for,
    runs_here,
)
from jaxcontam.reports.page import looks_sentence
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

if TYPE_CHECKING:
    from jaxcontam.members.passes import TextModel
    from jaxcontam.scoring.opened import OpenModel

# Documents of the printed table, as in table 2 of Shi et al.; the page has all.
_PRINTED = 20
# Titles of the page's columns that are shorter here.
_SHORT = {"p, permuted labels": "p", "gain over blind (95%)": "gain over\nblind"}


def rank(command: Membership) -> dict[str, Any] | None:
    """Score, judge, write and print; returns the report, or None for a dry run."""
    watch = Stopwatch()
    run = read_texts(command)
    check_sides(run)
    chosen = choose(
        command,
        run,
        WEIGHTS if runs_here(command.model) else (),
        rereads=not is_score_file(command.model),
    )
    # JAX and transformers are imported once the input is known to be good.
    from jaxcontam.members.run import (
        dry_run_words,
        inputs_of,
        plan_membership,
        score_and_judge,
    )

    check_references(command)
    opened = open_for(command, command.model, plan_only=command.dry_run)
    out = command.made_folder("membership", opened, run.fingerprint)
    model, reference = _text_model(command, opened, out), None
    if command.reference is not None:
        other = open_for(
            command, command.reference, plan_only=command.dry_run, beside=opened
        )
        reference = _text_model(command, other, out)
    inputs = inputs_of(command, opened, reference, kept=out)
    plan = plan_membership(command, run, chosen, model, inputs)
    if command.dry_run:
        print(dry_run_words(plan, command.limits))
        return None
    words = [command.model] if command.texts is None else [command.model, command.texts]
    with progress_bar("scoring texts") as progress:
        analysis = score_and_judge(
            plan,
            command=("membership", *words, *flags_of(command)),
            watch=watch,
            progress=progress,
        )
    if command.out is None:
        earlier = earlier_reports(analysis.report, out)
        report = dataclasses.replace(analysis.report, earlier=earlier)
        analysis = dataclasses.replace(analysis, report=report)

    def show(console: Terminal) -> None:
        print_membership(analysis.report, console)
        console.say(f"\nscores: {printable(out / TEXTS_NAME)}")

    return shown(lambda: analysis.written(out), show, as_json=command.json)


def _text_model(command: Membership, model: "OpenModel", out: Path) -> "TextModel":
    from jaxcontam.members.passes import text_model

    store = command.store_of(model, out)
    return text_model(model, store=store, no_prefix=command.no_prefix)


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
        header = ("texts against non-members, blind", "AUC (95%)")
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
    counts = [counted(study.n_texts, "text")]
    counts.append(f"{counted(study.tokens_scored, 'token')} scored")
    if study.n_unscored:
        counts.append(f"{counted(study.n_unscored, 'text')} without a token")
    if study.n_left_out:
        counts.append(f"{study.n_left_out} left out as prefix")
    console.print(f"{', '.join(counts)}.")
    if study.sweep is not None:
        console.print(sweep_sentence(study.sweep))
    if study.documents is not None:
        asked = rate_table(study.documents, "text")
        if asked.rows:
            print_table(asked, console, most=_PRINTED)
        console.print(rate_sentence(study.documents))
    if report.earlier:
        console.print(looks_sentence(report.earlier))
    for sentence in (*beside_words(decisive), *share_sentences(study)):
        console.print(sentence)
    for warning in (*study.warnings, *(decisive.warnings if decisive else ())):
        console.print(f"{warning}.")
    if not (ranked or blind):
        console.say(
            "Texts alone are only scored: --nonmembers FILE, unseen texts of the same "
            "kind, says how high is high."
        )
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
    columns = ranking_columns(points[:n_rates], intervals=intervals)
    columns = columns if has_gain else columns[:-1]
    titles = (_SHORT.get(title, title) for title, _ in columns)
    header = [title.replace(" at FPR ", "\nFPR ") for title in titles]
    table = bare_table(("score", *header), gap=2)
    for row in rows:
        cells = (cell(row) for _, cell in columns)
        # Parameters are on the page; what made neighbours is another score.
        kind = f"\n  {row.setting}" if row.method == OF_MASKED else ""
        table.add_row(f"{row.method}{kind}", *cells, style="bold" * row.primary or None)
    for one in blind:
        table.add_row(f"blind: {blind_name(one.name)}", auc_words(one), style="dim")
    if n_rates < len(points):
        table.caption = "the other rates are in the report"
        table.caption_justify = "left"
    return table
