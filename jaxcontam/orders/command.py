"""`jaxcontam audit`: was this benchmark's order in the training data?"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from jaxcontam.arguments import path_word
from jaxcontam.orders.benchmarks import (
    HEAD,
    AuditFiles,
    CheckedFiles,
    check_files,
    read_files,
)
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.dry_run import dry_run
from jaxcontam.orders.methods import WORDS
from jaxcontam.orders.run import ReadyAudit, plan_audit, run_audit
from jaxcontam.processes import is_first
from jaxcontam.progress import progress_bar, waiting_for
from jaxcontam.proof.outcome import print_checks, print_outcome, print_unscored
from jaxcontam.proof.publish import earlier_reports, report_name, shown
from jaxcontam.reports.flags import (
    ScoringFlags,
    check_references,
    flags_of,
    in_order,
    open_for,
    prices_of,
    runs_here,
)
from jaxcontam.reports.page import looks_sentence
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.report_files import make_folder
from jaxcontam.scoring.opened import about_reference
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import json_text, visible

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit(ScoringFlags, AuditDesign):
    """Test if a model saw benchmarks in their published order.

    Examples:
        # cost, and smallest effect that could be found
        jaxcontam audit MODEL_DIR benchmark.jsonl --dry-run
        # p-value, verdict, report
        jaxcontam audit MODEL_DIR benchmark.jsonl --reference OLDER_DIR
        jaxcontam audit MODEL_DIR mmlu.jsonl --group-field subject
        # a served model
        jaxcontam audit api:https://host/v1#NAME benchmark.jsonl --tokenizer DIR
    """

    benchmark: Positional[tuple[Path, ...]]
    """Files in published order: .jsonl, .json, .csv, .tsv, .txt, also .gz; .parquet; or
    hf:ORG/NAME:SPLIT, tfds:NAME/SPLIT, lm_eval:TASK."""
    reference: str | None = None
    """A comparable model that cannot have seen the file, named like MODEL; it gets the
    same tests. Without one a published order is at most suspected."""
    out: Path | None = None
    """Folder for the report (default: runs/audit/MODEL-BENCHMARK-DIGEST, the digest of
    all that decides the result)."""
    dry_run: bool = False
    """Print what would be scored, the time it takes and what it could find; score
    nothing."""
    price: str | None = None
    """For an api: model: prices IN,OUT per million tokens of prompts and of answers.
    For a model directory with --dry-run: price per hour of a device."""
    explain: bool = False
    """Print reasons, notes and next steps in full, as in the report."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        AuditDesign.__post_init__(self)
        ScoringFlags.__post_init__(self)
        self.check_files(len(self.benchmark))
        if self.reference is not None:
            self.check_reference()

    @property
    def hour_price(self) -> float | None:
        """Price of a device's hour, for a dry run of a model directory."""
        prices = prices_of(self.price) if self.dry_run and runs_here(self.model) else ()
        return prices[0] if len(prices) == 1 else None

    def run(self) -> dict:
        """Load, plan, score, decide, write and print; the report, or an estimate."""

        def opened() -> "OpenModel":
            check_references(self)
            return open_for(self, self.model, plan_only=self.dry_run)

        return self.run_on(opened)

    def run_on(self, opened: Callable[[], "OpenModel"]) -> dict:
        """`run` on the model that `opened` gives once the files were read."""
        watch = Stopwatch()
        words = map(path_word, self.benchmark)
        command = ("audit", self.model, *words, *flags_of(self))
        with waiting_for("reading the files") as say:
            files = read_files(self.benchmark, self)
            most = HEAD if self.dry_run else None
            checked = check_files(files, self, most=most, say=say)
        if is_first():
            console = Terminal(stderr=True)
            print_checks(checked.pretests, console)
            for words in checked.notes:
                console.print(f"{words}.")
            print_unscored(
                checked.unscored, command, WORDS, console, explain=self.explain
            )
        target = reference = None
        if checked.benchmarks:
            with waiting_for("opening the model and planning"):
                model = opened()
                out = self._out(model.name, files, model.info.fingerprint)
                target, left_out = self._ready(model, files, checked, out)
            for words in left_out:
                print(
                    visible(f"jaxcontam: warning: left out: {words}"), file=sys.stderr
                )
            if self.reference is not None:
                with about_reference():
                    other = open_for(
                        self, self.reference, plan_only=self.dry_run, beside=model
                    )
                    reference, _ = self._ready(other, files, checked, out)
            if self.dry_run:
                return dry_run(
                    target,
                    reference,
                    names=self.test_names,
                    price_per_hour=self.hour_price,
                    budget=self.limits,
                    as_json=self.json,
                )
        elif self.dry_run:
            found = {"unscored": [dataclasses.asdict(one) for one in checked.unscored]}
            if self.json:
                print(json_text(found))
            return found
        else:
            # No model was opened, so nothing else is known of it.
            out = self._out("unscored", files, self.model)
        result = run_audit(
            target,
            checked,
            self,
            reference=reference,
            command=command,
            watch=watch,
            bar=progress_bar,
        )
        if not is_first():
            return {}
        if self.out is None:
            earlier = earlier_reports(result.report, out)
            report = dataclasses.replace(result.report, earlier=earlier)
            result = dataclasses.replace(result, report=report)

        def show(console: Terminal) -> None:
            if result.results:
                found, said = list(result.results), result.report.command
                print_outcome(found, said, WORDS, console, explain=self.explain)
            if earlier := result.report.earlier:
                console.print(looks_sentence(earlier))

        return shown(lambda: result.written(out), show, as_json=self.json)

    def _out(self, model: str, files: AuditFiles, fingerprint: str) -> Path:
        decides = (fingerprint, self.dtype, self.reference or "", *self.flags)
        if self.context is not None:
            decides = (*decides, f"context {self.context}")
        name = report_name(model, files.benchmarks, decides)
        return self.out or Path("runs/audit") / name

    def _ready(
        self, model: "OpenModel", files: AuditFiles, checked: CheckedFiles, out: Path
    ) -> tuple[ReadyAudit, tuple[str, ...]]:
        tests, left_out = plan_audit(checked.benchmarks, files, model, self)
        if not self.dry_run:
            make_folder(out)
        scorer = self.scorer(model, out)
        return ReadyAudit(model, tests, scorer), left_out
