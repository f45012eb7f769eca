"""`jaxcontam audit`: was this benchmark's order in the training data?"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxcontam.arguments import path_word
from jaxcontam.orders.benchmarks import (
    HEAD,
    AuditFiles,
    CheckedFiles,
    check_files,
    read_files,
)
from jaxcontam.orders.dry_run import dry_run
from jaxcontam.orders.flags import Audit
from jaxcontam.orders.methods import WORDS
from jaxcontam.orders.run import ReadyAudit, plan_audit, run_audit
from jaxcontam.processes import is_first
from jaxcontam.progress import progress_bar, waiting_for
from jaxcontam.proof.outcome import print_checks, print_outcome, print_unscored
from jaxcontam.proof.publish import earlier_reports, report_name, shown
from jaxcontam.reports.flags import (
    check_references,
    flags_of,
    open_for,
)
from jaxcontam.reports.page import looks_sentence
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.report_files import make_folder
from jaxcontam.scoring.opened import about_reference
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text, visible

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel


def opened_model(command: Audit) -> "OpenModel":
    """Open the model of an audit; a reference that is no model is refused before."""
    check_references(command)
    return _open(command, command.model)


def _open(command: Audit, word: str, beside: "OpenModel | None" = None) -> "OpenModel":
    plan_only = command.dry_run
    weights = not plan_only or _is_timed(command)
    return open_for(command, word, plan_only=plan_only, weights=weights, beside=beside)


def _is_timed(command: Audit) -> bool:
    # A price per hour asks for the hours.
    return command.time or command.hour_price is not None


def audit(command: Audit, opened: Callable[[], "OpenModel"]) -> dict:
    """Load, plan, score, decide, write and print; the report, or an estimate.

    `opened` gives the model once the files were read.
    """
    watch = Stopwatch()
    names = map(path_word, command.benchmark)
    typed = ("audit", command.model, *names, *flags_of(command))
    with waiting_for("reading the files") as say:
        files = read_files(command.benchmark, command)
        most = HEAD if command.dry_run else None
        checked = check_files(files, command, most=most, say=say)
    if is_first():
        console = Terminal(stderr=True)
        print_checks(checked.pretests, console)
        for words in checked.notes:
            console.print(f"{words}.")
        print_unscored(checked.unscored, typed, WORDS, console, explain=command.explain)
    target = reference = None
    if checked.benchmarks:
        with waiting_for("opening the model and planning"):
            model = opened()
            out = _out(command, model.name, files, model.info.fingerprint)
            target, left_out = _ready(command, model, files, checked, out)
        for words in left_out:
            print(visible(f"jaxcontam: warning: left out: {words}"), file=sys.stderr)
        if command.reference is not None:
            with about_reference():
                other = _open(command, command.reference, beside=model)
                reference, _ = _ready(command, other, files, checked, out)
        if command.dry_run:
            return dry_run(
                target,
                reference,
                names=command.test_names,
                timed=_is_timed(command),
                price_per_hour=command.hour_price,
                budget=command.limits,
                as_json=command.json,
            )
    elif command.dry_run:
        found = {"unscored": [dataclasses.asdict(one) for one in checked.unscored]}
        if command.json:
            print(json_text(found))
        return found
    else:
        # No model was opened, so nothing else is known of it.
        out = _out(command, "unscored", files, command.model)
    result = run_audit(
        target,
        checked,
        command,
        reference=reference,
        command=typed,
        watch=watch,
        bar=progress_bar,
    )
    if not is_first():
        return {}
    if command.out is None:
        earlier = earlier_reports(result.report, out)
        report = dataclasses.replace(result.report, earlier=earlier)
        result = dataclasses.replace(result, report=report)

    def show(console: Terminal) -> None:
        if result.results:
            found, said = list(result.results), result.report.command
            print_outcome(found, said, WORDS, console, explain=command.explain)
        if earlier := result.report.earlier:
            console.print(looks_sentence(earlier))

    return shown(lambda: result.written(out), show, as_json=command.json)


def _out(command: Audit, model: str, files: AuditFiles, fingerprint: str) -> Path:
    decides = (fingerprint, command.dtype, command.reference or "", *command.flags)
    if command.context is not None:
        decides = (*decides, f"context {command.context}")
    name = report_name(model, files.benchmarks, decides)
    return command.out or Path("runs/audit") / name


def _ready(
    command: Audit,
    model: "OpenModel",
    files: AuditFiles,
    checked: CheckedFiles,
    out: Path,
) -> tuple[ReadyAudit, tuple[str, ...]]:
    tests, left_out = plan_audit(checked.benchmarks, files, model, command)
    if not command.dry_run:
        make_folder(out)
    scorer = command.scorer(model, out)
    return ReadyAudit(model, tests, scorer), left_out
