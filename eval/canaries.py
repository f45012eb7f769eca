"""The canary table of Oren et al., on a model trained here.

Question: does a small model that saw the paper's ten test sets at the paper's
duplication counts give the paper's verdicts, and are the same files' later lines,
which it never saw, left alone?
Command: `python -m eval.canaries --corpus DIR --canaries DIR`. Hardware: 2 CPU cores,
an hour or two. Headline: LOG.md has the table.

The ten files are those that the authors published with their code, in the order in
which they planted them; the paper's model has 1.4 B parameters and saw all lines.
"""

import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from rich.console import Console

from eval.planted import order_tests, trained
from jaxcontam.cli import parse, run_command
from jaxcontam.commands.flags import (
    STORE_DIR,
    check_positive,
    check_seed,
    flags_of,
)
from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.report import write_page
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.report.document import write_report
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.report.table import print_results
from jaxcontam.results import OrderResult, Report
from jaxcontam.scoring.local import checkpoint_scorer, device_info, model_info
from jaxcontam.verdict import MIN_EFFECT, decide
from train.allocator import keep_freed_memory
from train.earlier import MODEL_DIR
from train.plan import PlannedSet
from train.prepare import RunOptions
from train.presets import PRESETS
from train.sources import read_documents

_HELD_OUT = "-held"


@dataclasses.dataclass(frozen=True, slots=True)
class _Canary:
    """Copies in the paper's two models, and its sharded p-value in the first."""

    published: int
    lower: int
    paper_p: str | None = None


# Copies: the authors' code (dupcount-higher, dupcount-lower). p-values: the five that
# their public response to reviewers states, arXiv:2310.17623.
CANARIES: Mapping[str, _Canary] = {
    "boolq": _Canary(1, 1, "0.156"),
    "hellaswag": _Canary(1, 1, "0.478"),
    "openbookqa": _Canary(1, 2),
    "naturalquestions": _Canary(10, 2),
    "mnli": _Canary(10, 4, "1.96e-11"),
    "truthfulqa": _Canary(10, 4),
    "piqa": _Canary(50, 7),
    "mmlu_professional_law": _Canary(50, 7, "1e-38"),
    "mmlu_professional_psychology": _Canary(50, 10),
    "mmlu_high_school_psychology": _Canary(100, 10, "1e-38"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """Train with the paper's ten test sets planted, then test them and their controls.

    Question: are the paper's verdicts found on a small model, and the lines that it
    never saw left alone? Hardware: 2 CPU cores, an hour or two (--tiny: half a minute).
    """

    corpus: tuple[Path, ...]
    """Background: .jsonl files with a field `text`, or .txt files, or folders."""
    canaries: Path
    """Folder with the ten files, boolq.jsonl to truthfulqa.jsonl."""
    dup_counts: Literal["published", "lower"] = "published"
    """Copies as in the paper's first model (1 to 100), or in its second (1 to 10)."""
    limit: int = 200
    """Plant the first so many lines of each set; as many after them are controls."""
    max_example_tokens: int = 48
    """Longer lines are cut, separator included."""
    background_tokens: int = 5_000_000
    """Take random documents up to so many tokens."""
    n_permutations: int = 19
    """Orders of the permutation test, whose p is at least 1 / (this + 1)."""
    preset: str = "5m"
    """Shape of the model."""
    seed: int = 0
    """Seeds weights, stream, batches and tests."""
    out: Path = Path("runs/canaries")
    """Folder for the model, the sets and report.json; finished work is reused."""
    tiny: bool = False
    """A pulse run of half a minute, too small to detect anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(
            self, "limit", "max_example_tokens", "background_tokens", "n_permutations"
        )
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)

    def run(self) -> dict:
        """Train, test, print the table; returns the report."""
        started, clock = utc_now(), time.monotonic()
        console = Console()
        limit = min(self.limit, 20) if self.tiny else self.limit
        sets = [
            planned
            for name, canary in CANARIES.items()
            for planned in _set_and_control(
                self.canaries / f"{name}.jsonl",
                getattr(canary, self.dup_counts),
                limit,
            )
        ]
        documents = read_documents(self.corpus)
        manifest = trained(
            documents,
            sets,
            PRESETS["pulse" if self.tiny else self.preset],
            out=self.out,
            seed=self.seed,
            options=RunOptions(
                background_tokens=5_000 if self.tiny else self.background_tokens,
                max_example_tokens=self.max_example_tokens,
                # Passages and questions of these files stand in both of their parts.
                allow_overlap=True,
            ),
        )
        checkpoint = load_checkpoint(str(self.out / MODEL_DIR))
        with progress_bar("testing orders") as progress:
            results, evidence = order_tests(
                sorted(sets, key=lambda one: one.copies == 0),
                manifest,
                checkpoint,
                checkpoint_scorer(checkpoint, store=self.out / STORE_DIR),
                n_orders={
                    "adjacency": None,
                    "stratified": None,
                    "reversal": None,
                    "permutation": 2 if self.tiny else self.n_permutations,
                },
                seed=self.seed,
                progress=progress,
            )
        decided = decide(results, min_effect=MIN_EFFECT)
        report = Report(
            command=("eval.canaries", *flags_of(self)),
            seed=self.seed,
            started=started,
            wall_seconds=time.monotonic() - clock,
            model=model_info(checkpoint),
            device=device_info(),
            versions=library_versions(),
            min_effect=MIN_EFFECT,
            results=tuple(decided),
            study={
                "name": "canaries",
                "canary_share": manifest.n_canary_tokens / manifest.n_tokens,
                "n_tokens": manifest.n_tokens,
                "corpus_digest": manifest.corpus_digest,
                "n_documents": len(documents),
                "paper_sharded_p": self._paper_p(),
            },
        )
        document = write_report(report, evidence, self.out)
        page = write_page(document, self.out)
        print_results(decided, console, quoted=("paper\nsharded", self._paper_p()))
        _print_reading(decided, document["study"], page, console)
        return document

    def _paper_p(self) -> dict[str, str]:
        """What is known of the paper's p-values at these duplication counts."""
        if self.dup_counts != "published":
            return {}
        return {
            name: canary.paper_p
            for name, canary in CANARIES.items()
            if canary.paper_p is not None
        }


def _set_and_control(path: Path, copies: int, limit: int) -> tuple[PlannedSet, ...]:
    """The first lines of a file to plant, and as many after them to keep out."""
    whole = load_benchmark(path, limit=2 * limit)
    if len(whole) < 2 * limit:
        raise InputError(
            f"{path}: {len(whole)} lines, {2 * limit} needed for a set and a control",
            hint=f"--limit {len(whole) // 2} or less" if len(whole) > 1 else "",
        )
    return tuple(
        PlannedSet(
            benchmark=Benchmark(
                whole.name + suffix, whole.texts[part], whole.rows[part]
            ),
            copies=n,
        )
        for suffix, part, n in (
            ("", slice(limit), copies),
            (_HELD_OUT, slice(limit, None), 0),
        )
    )


def _print_reading(
    results: list[OrderResult], study: dict, page: Path, console: Console
) -> None:
    """How many planted sets and how many controls each test rejects."""
    console.print(
        f"\n{study['canary_share']:.0%} of the {study['n_tokens']:,} training tokens "
        f"are planted; rows that end in {_HELD_OUT} are later lines of the same files, "
        "which no training saw. p at most 0.05:",
        highlight=False,
    )
    for method in dict.fromkeys(result.method for result in results):
        planted, held = (
            [
                result.numbers.p_value <= 0.05
                for result in results
                if result.method == method and (result.copies == 0) == is_held
            ]
            for is_held in (False, True)
        )
        console.print(
            f"  {method}: {sum(planted)} of {len(planted)} planted sets, "
            f"{sum(held)} of {len(held)} controls",
            highlight=False,
        )
    console.print(f"\nreport: {page}", soft_wrap=True, highlight=False)


def main() -> int:
    """Command line of `python -m eval.canaries`."""
    keep_freed_memory()
    return run_command(
        lambda: parse(Canaries, sys.argv[1:], prog="python -m eval.canaries").run(),
        name="eval.canaries",
    )


if __name__ == "__main__":
    sys.exit(main())
