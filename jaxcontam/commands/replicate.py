"""`jaxcontam replicate`: does a model write instances of a benchmark by heart?"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from jaxcontam.analyses.method_notes import report_words
from jaxcontam.analyses.saved import write_texts
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.commands.publish import shown
from jaxcontam.commands.replicate_judged import check_recorded, recorded_partition
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.provenance import library_versions
from jaxcontam.report.replication import (
    COMMAND,
    comparison_cells,
    judge_cells,
    overlap_cells,
    replication_rows,
    replication_sentences,
)
from jaxcontam.results import DeviceInfo, ModelInfo, Report
from jaxcontam.results.replication import COMPARISONS
from jaxcontam.scoring.api.address import PREFIX, parse_api
from jaxcontam.terminal import Terminal

if TYPE_CHECKING:
    from jaxcontam.commands.replicate_partition import Arm, Partition

SHEET_NAME = "annotate.csv"
"""Blind sheet under `--out` for people's labels."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Ask a model for the rest of instances, and see whether it copies them."""

    model: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")
    ] = None
    """Model directory, hub name, or api:URL#NAME; left out with --recorded."""
    benchmark: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK")
    ] = None
    """File of the partition: .jsonl, .json, .csv, .tsv or .txt."""
    recorded: Path | None = None
    """Judge completions made elsewhere: a .csv with a row an instance."""
    dataset_name: str | None = None
    """What the guided instruction calls the dataset (default: the file's name)."""
    split_name: str = "test"
    """What it calls the partition."""
    task: Literal["classification", "nli", "summary", "one-sentence", "plain"] = (
        "classification"
    )
    """Kind of instances; plain shows a first piece alone, for base models."""
    text_field: str | None = None
    """Field that is the text (default: known names; nli has two, see below)."""
    template: str | None = None
    """Or the text of an instance, with fields in braces."""
    first_field: str | None = None
    """Of pairs: field that the model is shown (default: known names)."""
    second_field: str | None = None
    """Of pairs: field that it must write."""
    label_field: str | None = None
    """Field of the label, which the instructions then name."""
    label_names: tuple[str, ...] = ()
    """Names of labels that are numbers, from 0 on, separated by spaces."""
    k: int = 50
    """Instances, drawn at random; the paper has 10."""
    control: Path | None = None
    """Instances that cannot have been seen, such as newer ones; with --recorded, their
    completions. Without them at most suspected."""
    prompts: Path | None = None
    """Other instructions: a .toml or .json file with guided and general templates."""
    judge: str = "local"
    """local, or a chat model api:URL#NAME beside it, which then decides."""
    bleurt: Path | None = None
    """Folder of a BLEURT checkpoint (docs/bleurt.md), a second measure of overlap."""
    embedding_model: str | None = None
    """Model whose mean hidden states are compared, a further measure."""
    compare: str | None = None
    """Further methods, comma-separated: first_instances, cdd, ts_guessing_word,
    ts_guessing_option."""
    cdd_samples: int = 20
    """Samples of each instance for cdd."""
    new_tokens: int = 500
    """Most tokens of a completion; a small context leaves fewer."""
    stop: tuple[str, ...] = ()
    r"""Texts that end a completion, such as "\n" (plain: a line end, where no second
    piece has one)."""
    annotated: Path | None = None
    """Sheet of people's labels, from annotate.csv of an earlier run: agreement."""
    concurrency: int = 8
    """Requests to a server at a time."""
    budget: float | None = None
    """Stop before requests cost more, in the currency of the prices."""
    price_in: float | None = None
    """Of a million prompt tokens, for --budget and --dry-run."""
    price_out: float | None = None
    """Of a million new tokens."""
    retry_refused: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Ask again for what a server refused in an earlier run."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the operands of matrix products; bfloat16 is faster, and not as exact."""
    seed: int = 0
    """Seeds draws, cuts, samples and resamples."""
    out: Path | None = None
    """Folder for the report (default: runs/replicate/MODEL-DIGEST)."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Say what would be asked, in tokens and money; ask nothing."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "k", "cdd_samples", "new_tokens", "concurrency")
        check_seed(self.seed)
        if self.recorded is not None:
            check_recorded(self)
        elif self.model is None or self.benchmark is None:
            raise InputError(
                "no model and benchmark",
                hint="name both, or give --recorded FILE.csv",
            )
        if (self.first_field is None) != (self.second_field is None):
            raise InputError("--first-field and --second-field go together")
        if self.judge != "local":
            if not self.judge.startswith(PREFIX):
                raise InputError(
                    f"--judge must be local or api:URL#NAME, got {self.judge!r}"
                )
            parse_api(self.judge, flag="--judge")
        for name in self.comparisons:
            if name not in COMPARISONS:
                raise unknown_name("method of --compare", name, COMPARISONS)
        if self.budget is not None and self.price_in is None and self.price_out is None:
            raise InputError(
                "--budget needs --price-in and --price-out",
                hint="of a million prompt tokens and of a million new ones",
            )
        if self.task == "plain" and (self.bleurt or self.embedding_model):
            raise InputError(
                "--bleurt and --embedding-model compare two instructions, and --task "
                "plain has one"
            )
        if self.bleurt is not None and not self.bleurt.is_dir():
            raise InputError(
                f"--bleurt {self.bleurt}: no such folder",
                hint="docs/bleurt.md says how to make one",
            )

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Methods of --compare."""
        if self.compare is None:
            return ()
        return tuple(dict.fromkeys(name.strip() for name in self.compare.split(",")))

    def run(self) -> int:
        """Ask, judge, compare, write and print.

        Returns:
            3 if there is no verdict, or a server refused anything; else 0.
        """
        watch = Stopwatch()
        if self.recorded is not None:
            partition, comparisons, rows = recorded_partition(self)
            out = self.out or Path("runs") / COMMAND / f"recorded-{partition.name}"
            model = device = None
        else:
            from jaxcontam.commands.replicate_asked import Asked

            asked = Asked(self)
            if self.dry_run:
                asked.print_estimate()
                return 0
            partition, comparisons, rows = asked.answers()
            model, device, out = asked.model_info, asked.device_info, asked.out
        document = self._publish(
            partition, comparisons, rows, watch, model, device, out
        )
        rows = document["results"]
        has_verdict = any(row["primary"] and row["verdict"] for row in rows)
        lost = ("n_refused", "n_control_refused")
        was_refused = any(row.get(name) for row in rows for name in lost)
        return 3 if was_refused or not has_verdict else 0

    def _publish(
        self,
        partition: "Partition",
        comparisons: list,
        comparison_rows: list[dict[str, Any]],
        watch: Stopwatch,
        model: ModelInfo | None,
        device: DeviceInfo | None,
        out: Path,
    ) -> dict[str, Any]:
        words = [str(w) for w in (self.model, self.benchmark) if w is not None]
        report = Report(
            command=(COMMAND, *words, *flags_of(self)),
            seed=self.seed,
            started=watch.started,
            wall_seconds=watch.seconds,
            model=model,
            device=device,
            versions=library_versions(),
            min_effect=None,
            results=(*partition.results(seed=self.seed), *comparisons),
        )
        written = write_texts(report, [*partition.rows(), *comparison_rows], out)
        self._write_sheet(partition.arm, out)
        return shown(
            written,
            lambda console: print_replication(report, console),
            as_json=self.json,
        )

    def _write_sheet(self, arm: "Arm", out: Path) -> None:
        """The blind sheet; one that somebody may have filled in is never replaced."""
        from jaxcontam.methods.replication.annotate import (
            is_filled,
            read_sheet,
            sheet_text,
        )

        texts = arm.instances, arm.guided
        number, sheet = 1, out / SHEET_NAME
        while sheet.exists():
            try:
                if not is_filled(sheet):
                    break
                read_sheet(sheet, *texts, seed=self.seed)
                return
            except InputError:
                # No sheet, or that of another run: what people wrote there stays.
                number += 1
                sheet = out / f"annotate-{number}.csv"
        replace_bytes(sheet, sheet_text(*texts, seed=self.seed).encode())
        if number > 1:
            Terminal(stderr=True).print(
                f"{out / SHEET_NAME} is no sheet of this run and was left as it is; "
                f"this run's is {sheet}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )


def print_replication(report: Report, console: Console) -> None:
    """Tables of judges, overlaps and comparisons, then sentences."""
    words = report_words(report)
    judges, overlaps, comparisons = replication_rows(report.results)
    for names, rows in (
        (
            "judge judged exact near copies control verdict",
            [judge_cells(row, words) for row in judges],
        ),
        (
            "overlap test pairs guided general p below-0.05",
            [overlap_cells(row) for row in overlaps],
        ),
        (
            "asked-for n found share chance finding",
            [comparison_cells(row, words) for row in comparisons],
        ),
    ):
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for name in names.split():
            table.add_column(name.replace("-", " "))
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            console.print(table)
            console.print()
    for sentence in replication_sentences(report.results, words):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
