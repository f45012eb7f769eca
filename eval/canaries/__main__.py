"""The canary table of Oren et al., on a model trained here.

Question: does a small model that saw the paper's ten test sets at the paper's
duplication counts give the paper's verdicts, and are the same files' later lines, which
were not planted, left alone? The same for the lower counts of the authors' second
model.
Command: `python -m eval.canaries --corpus DIR --canaries DIR [--dup-counts lower]`.
Hardware: 2 CPU cores, an hour or two, of which testing takes half an hour; a killed run
goes on. Headline: docs/log has the tables.

The ten files are those that the authors published with their code, in the order in
which they planted them; the paper's model has 1.4 B parameters and saw all lines.

Fixed before looking: one model of each plan, seed 0, preset 5m; the first 200 lines of
each file planted and the next 200 kept as controls, cut to 48 tokens; adjacency,
stratified, sharded_t of the same scores and reversal at their own numbers of
orders, and permutation with 19. The published plan has 5 million background tokens and
the lower plan 2 million. The order tests of the published plan's model were known when
this was written; nothing of the lower plan's model was.

Fixed later: controls of which training read more than 5 % of the lines are in no count
of false alarms. Fixed after adjacency's
p-values of both plans were known, and before any of direction's: direction, of the same
pairs, decides, as for any file of whose order nothing is known; that the authors
shuffled these, as their README says, was not known here then.
Fixed after direction's p-values were known: beside a reference, trained on the same
background without the sets, as verdicts on published orders ask for.
"""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.canaries.tables import Plan, copies_of, grids_of, numbers_of, run_of
from eval.planted import Model, order_tests, trained_model, write_report
from eval.study import Clock, ResumedFlags, finish_study, run_study
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError, check_names
from jaxcontam.orders.run import with_reference
from jaxcontam.progress import progress_bar
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.verdict import decide
from jaxcontam.reports.flags import STORE_DIR
from jaxcontam.reports.report_files import PAGE_NAME
from jaxcontam.scoring.local import checkpoint_scorer, model_info
from train.background_check import found_in
from train.config import PRESETS
from train.data import read_documents
from train.plant import HELD_OUT, PlannedSet

# Fewer lines after a planted set are no control: an order test would find nothing.
_FEWEST_CONTROLS = 20
# Inside a run's folder: the model that read the background alone.
_REFERENCE = "reference"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Canaries(ResumedFlags):
    """Train with the paper's ten test sets planted, then test them and their controls.

    Question: are the paper's verdicts found on a small model, and lines that were not
    planted left alone? Hardware: 2 CPU cores, an hour or two (--tiny: half a minute).
    """

    corpus: tuple[Path, ...]
    """Background: .jsonl files with a field `text`, or .txt files, or folders."""
    canaries: Path
    """Folder with the ten files, boolq.jsonl to truthfulqa.jsonl."""
    dup_counts: Plan = "published"
    """Copies as in the paper's first model (1 to 100), or in its second (1 to 10)."""
    limit: int = 200
    """Plant the first so many lines of each set, or all; as many after them, or what
    there is, are its control if they are 20 or more."""
    max_example_tokens: int = 48
    """Longer lines are cut, separator included."""
    background_tokens: int = 5_000_000
    """Take random documents up to so many tokens."""
    n_permutations: int = 19
    """Orders of the permutation test, whose p is at least 1 / (this + 1); 0 leaves the
    test out, which is two thirds of the work."""
    preset: str = "5m"
    """Shape of the model."""
    batch_rows: int | None = None
    """Rows a step (default: the preset's)."""
    out: Path = Path("runs/canaries")
    """Folder for models, sets, the report and the tables; finished models stay."""

    positive = ("limit", "max_example_tokens", "background_tokens", "batch_rows")

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        if self.n_permutations < 0:
            raise InputError(
                f"--n-permutations must be at least 0, got {self.n_permutations}"
            )
        check_names("preset", (self.preset,), PRESETS)
        if not self.corpus:
            raise InputError("--corpus is empty")

    def run(self) -> dict:
        """Train, test, print the tables; returns the report."""
        clock, folder = Clock.start(), self.out / "tiny" if self.tiny else self.out
        document = self._tested(folder, clock)
        run = run_of(document, self.dup_counts)
        finish_study(
            "canaries",
            self,
            clock=clock,
            out=folder,
            numbers=numbers_of(run),
            grids=grids_of(run),
        )
        print(f"report: {folder / PAGE_NAME}")
        return document

    def _trained(
        self, sets: Sequence[PlannedSet], folder: Path, documents: Sequence[str]
    ) -> Model:
        preset = PRESETS["pulse" if self.tiny else self.preset]
        return trained_model(
            folder,
            documents,
            sets,
            preset.changed(
                batch_rows=self.batch_rows, max_example_tokens=self.max_example_tokens
            ),
            seed=self.seed,
            background_tokens=5_000 if self.tiny else self.background_tokens,
            any_code=self.any_code,
        )

    def _tested(self, folder: Path, clock: Clock) -> dict:
        """Every test of every set; writes the report."""
        limit = min(self.limit, 20) if self.tiny else self.limit
        pairs = [
            set_and_control(self.canaries / f"{name}.jsonl", copies, limit)
            for name, copies in copies_of(self.dup_counts).items()
        ]
        drawn = [one for pair in pairs for one in pair]
        # Tables begin with what was planted.
        sets = sorted(drawn, key=lambda one: one.copies == 0)
        documents = read_documents(self.corpus)
        model = self._trained(drawn, folder, documents)
        unread = [dataclasses.replace(one, copies=0) for one in sets]
        reference = self._trained(unread, folder / _REFERENCE, documents)
        began = time.monotonic()
        n_orders: dict[str, int | None] = dict.fromkeys(
            ("adjacency", "stratified", "reversal")
        )
        if self.n_permutations:
            n_orders["permutation"] = 2 if self.tiny else self.n_permutations
        own = self._scored(model, sets, n_orders, folder)
        theirs = {"adjacency": None}
        others = self._scored(reference, sets, theirs, folder / _REFERENCE)
        info = model_info(reference.checkpoint)
        found = with_reference(own, others, info, seed=self.seed)
        results, evidence = zip(*found, strict=True)
        document, _ = write_report(
            "canaries",
            self,
            model,
            decide(results, min_effect=MIN_EFFECT),
            evidence,
            clock=clock,
            out=folder,
            reference=info,
            test_seconds=round(time.monotonic() - began, 1),
            seen={
                control.name: (len(found_in(control, one)), len(control.benchmark))
                for one, *controls in pairs
                for control in controls
            },
        )
        return document

    def _scored(
        self,
        model: Model,
        sets: Sequence[PlannedSet],
        n_orders: Mapping[str, int | None],
        folder: Path,
    ) -> list[tuple[OrderResult, Evidence | None]]:
        """Order tests before verdicts, with the scores of each."""
        with progress_bar(f"testing orders, {folder.name}") as progress:
            found = order_tests(
                sets,
                model.manifest,
                model.checkpoint,
                checkpoint_scorer(model.checkpoint, store=folder / STORE_DIR),
                n_orders=n_orders,
                seed=self.seed,
                progress=progress,
            )
        return list(zip(*found, strict=True))


def set_and_control(path: Path, copies: int, limit: int) -> tuple[PlannedSet, ...]:
    """The first lines of a file, and as many later ones at most, never planted."""
    whole = load_benchmark(path, limit=2 * limit)

    def part(rows: slice, copies: int, suffix: str = "") -> PlannedSet:
        name, texts = whole.name + suffix, whole.texts[rows]
        benchmark = Benchmark(name, texts, whole.rows[rows])
        return PlannedSet(benchmark=benchmark, copies=copies)

    planted = part(slice(limit), copies)
    if len(whole) - limit < min(limit, _FEWEST_CONTROLS):
        return (planted,)
    return planted, part(slice(limit, None), 0, HELD_OUT)


if __name__ == "__main__":
    sys.exit(run_study("canaries", Canaries, trains=True))
