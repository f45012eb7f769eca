"""The canary table of Oren et al., on a model trained here or given.

Question: does a small model that saw the paper's ten test sets at the paper's
duplication counts give the paper's verdicts, and are the same files' later lines, which
were not planted, left alone? The same for the lower counts of the authors' second
model.
Command: `python -m eval.canaries --corpus DIR --canaries DIR [--dup-counts lower]`
trains and tests; `--trained DIR` tests the finished run of another folder. Hardware: 2
CPU cores, an hour or two, of which testing takes half an hour. Headline: docs/log has
the tables.

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
pairs, decides, since nobody but the authors knows how these files came by their order.
Fixed after direction's p-values were known: beside a reference, trained on the same
background without the sets, as verdicts on published orders ask for.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eval.canaries.runs import (
    Plan,
    Trained,
    control_of,
    planted_first,
    read_trained,
    run_of,
    sets_to_plant,
)
from eval.canaries.tables import grids_of, numbers_of
from eval.planted import order_tests, trained
from eval.study import Clock, StudyFlags, finish_study, run_study
from jaxcontam.errors import InputError, check_names
from jaxcontam.models.checkpoint import Checkpoint, load_checkpoint
from jaxcontam.orders.run import with_reference
from jaxcontam.progress import progress_bar
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.verdict import MIN_EFFECT, decide
from jaxcontam.reports.archive import ARCHIVE_NAME, archive_bytes
from jaxcontam.reports.flags import STORE_DIR, flags_of
from jaxcontam.reports.report import Report, library_versions
from jaxcontam.reports.report_files import PAGE_NAME, write_files
from jaxcontam.scoring.local import checkpoint_scorer, device_info, model_info
from jaxcontam.scoring.opened import ModelInfo
from train.background_check import found_in
from train.config import PRESETS, RunOptions
from train.data import read_documents
from train.manifest import Manifest, read_manifest
from train.plant import PlannedSet
from train.run_folder import MANIFEST_NAME, MODEL_DIR

_OUT = Path("runs/canaries")
# Inside a run's folder: the model that read the background alone.
_REFERENCE = "reference"
# Flags that change the model and its sets.
_TRAINING = (
    *("corpus", "canaries", "dup_counts", "limit"),
    *("preset", "batch_rows", "max_example_tokens", "background_tokens"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Canaries(StudyFlags):
    """Train with the paper's ten test sets planted, then test them and their controls.

    Question: are the paper's verdicts found on a small model, and lines that were not
    planted left alone? Hardware: 2 CPU cores, an hour or two (--tiny: half a minute).
    """

    corpus: tuple[Path, ...] = ()
    """Background: .jsonl files with a field `text`, or .txt files, or folders."""
    canaries: Path | None = None
    """Folder with the ten files, boolq.jsonl to truthfulqa.jsonl."""
    trained: Path | None = None
    """Train nothing: test the model and the sets of this folder of a finished run."""
    dup_counts: Plan = "published"
    """Copies as in the paper's first model (1 to 100), or in its second (1 to 10)."""
    limit: int = 200
    """Plant the first so many lines of each set; as many after them are controls."""
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
    out: Path | None = None
    """Folder for the model, the sets, the report and the tables; finished work is
    reused (default: runs/canaries, runs/canaries-tiny, or runs/canaries-trained/NAME of
    the given run)."""

    positive = ("limit", "max_example_tokens", "background_tokens", "batch_rows")

    def __post_init__(self) -> None:
        StudyFlags.__post_init__(self)
        if self.n_permutations < 0:
            raise InputError(
                f"--n-permutations must be at least 0, got {self.n_permutations}"
            )
        check_names("preset", (self.preset,), PRESETS)
        if self.trained is not None:
            self._check_of_use()
            return
        for flag, value in (("corpus", self.corpus), ("canaries", self.canaries)):
            if not value:
                raise InputError(
                    f"--{flag} is missing", hint="or --trained DIR, a finished run"
                )

    def _check_of_use(self) -> None:
        """Refuse flags that would change nothing, and yet stand in the report."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _TRAINING:
            if getattr(self, name) != defaults[name]:
                flag = name.replace("_", "-")
                raise InputError(
                    f"--{flag} changes nothing with --trained", hint="leave it out"
                )

    @property
    def folder(self) -> Path:
        """Where everything is written: by default no other kind of run's folder."""
        if self.out is not None:
            return self.out
        if self.trained is not None:
            name = self.trained.resolve().name
            return _OUT.with_name(f"{_OUT.name}-trained") / name
        return _OUT.with_name(f"{_OUT.name}-tiny") if self.tiny else _OUT

    def run(self) -> dict:
        """Train, test, print the tables; returns the report."""
        clock = Clock.start()
        document = self._test(self._model(), clock)
        run = run_of(document)
        finish_study(
            "canaries",
            self,
            clock=clock,
            out=self.folder,
            numbers=numbers_of(run),
            grids=grids_of(run),
        )
        print(f"report: {self.folder / PAGE_NAME}")
        return document

    def _model(self) -> Trained:
        """The model to test: a finished run's, or one that is trained now."""
        if self.trained is not None:
            return read_trained(self.trained)
        assert self.canaries is not None
        limit = min(self.limit, 20) if self.tiny else self.limit
        sets = sets_to_plant(self.canaries, self.dup_counts, limit)
        manifest = self._train(sets, self.folder)
        return Trained(manifest, planted_first(sets), self.folder / MODEL_DIR)

    def _train(self, sets: Sequence[PlannedSet], folder: Path) -> Manifest:
        preset = PRESETS["pulse" if self.tiny else self.preset]
        return trained(
            read_documents(self.corpus),
            sets,
            preset.changed(batch_rows=self.batch_rows),
            out=folder,
            seed=self.seed,
            options=RunOptions(
                background_tokens=5_000 if self.tiny else self.background_tokens,
                max_example_tokens=self.max_example_tokens,
                # Passages and questions of these files stand in both of their parts.
                allow_overlap=True,
            ),
        )

    def _reference(self, model: Trained) -> Trained | None:
        """The same background without the sets; None where a given run has none."""
        folder = model.model.parent / _REFERENCE
        if self.trained is None:
            unread = [dataclasses.replace(one, copies=0) for one in model.sets]
            manifest = self._train(unread, folder)
        elif folder.is_dir():
            manifest = read_manifest(folder / MANIFEST_NAME)
            own = model.manifest
            if not manifest.finished or manifest.n_canary_tokens:
                raise InputError(
                    f"{folder}: no finished model that read the background alone",
                    hint="move it away to go without a reference",
                )
            if manifest.corpus_digest != own.corpus_digest:
                raise InputError(f"{folder}: trained on another corpus")
        else:
            return None
        return Trained(manifest, model.sets, folder / MODEL_DIR)

    def _test(self, model: Trained, clock: Clock) -> dict:
        """Every test of every set; writes the report."""
        reference = self._reference(model)
        began = time.monotonic()
        checkpoint = load_checkpoint(str(model.model))
        results, scored = self._scored(model, checkpoint)
        evidence: list[Evidence | None] = [*scored]
        info_of_reference = None
        if reference is not None:
            other = load_checkpoint(str(reference.model))
            info_of_reference = model_info(other)
            results, evidence = self._beside(
                results, evidence, reference, other, info_of_reference
            )
        manifest = model.manifest
        report = Report(
            command=("eval.canaries", *flags_of(self)),
            seed=self.seed,
            started=clock.started,
            wall_seconds=time.monotonic() - clock.wall,
            model=model_info(checkpoint),
            reference=info_of_reference,
            device=device_info(),
            versions=library_versions(),
            min_effect=MIN_EFFECT,
            results=tuple(decide(results, min_effect=MIN_EFFECT)),
            study={
                "name": "canaries",
                "canary_share": manifest.n_canary_tokens / manifest.n_tokens,
                "n_tokens": manifest.n_tokens,
                "corpus_digest": manifest.corpus_digest,
                "test_seconds": round(time.monotonic() - began, 1),
                "seen": _seen(model.sets),
            },
        )
        document, _ = write_files(
            report, {ARCHIVE_NAME: archive_bytes(evidence)}, self.folder
        )
        return document

    def _scored(
        self, model: Trained, checkpoint: Checkpoint
    ) -> tuple[list[OrderResult], list[Evidence]]:
        """Order tests before verdicts."""
        scorer = checkpoint_scorer(checkpoint, store=self.folder / STORE_DIR)
        n_orders: dict[str, int | None] = dict.fromkeys(
            ("adjacency", "stratified", "reversal")
        )
        if self.n_permutations:
            n_orders["permutation"] = 2 if self.tiny else self.n_permutations
        with progress_bar("testing orders") as progress:
            return order_tests(
                model.sets,
                model.manifest,
                checkpoint,
                scorer,
                n_orders=n_orders,
                seed=self.seed,
                progress=progress,
            )

    def _beside(
        self,
        results: list[OrderResult],
        evidence: list[Evidence | None],
        reference: Trained,
        checkpoint: Checkpoint,
        info: ModelInfo,
    ) -> tuple[list[OrderResult], list[Evidence | None]]:
        """The results beside the same tests of a model that read none of the sets."""
        store = reference.model.parent / STORE_DIR
        with progress_bar("testing orders with the reference") as progress:
            others = order_tests(
                reference.sets,
                reference.manifest,
                checkpoint,
                checkpoint_scorer(checkpoint, store=store),
                n_orders={"adjacency": None},
                seed=self.seed,
                progress=progress,
            )
        pairs = list(zip(results, evidence, strict=True))
        of_reference = list(zip(*others, strict=True))
        found = with_reference(pairs, of_reference, info, seed=self.seed)
        return [row for row, _ in found], [arrays for _, arrays in found]


def _seen(sets: Sequence[PlannedSet]) -> dict[str, tuple[int, int]]:
    """Control -> its lines that stand in the planted part, and its lines."""
    pairs = [(one, control_of(one.name, sets)) for one in sets if one.copies]
    return {
        control.name: (len(found_in(control, one)), len(control.benchmark))
        for one, control in pairs
        if control is not None
    }


if __name__ == "__main__":
    sys.exit(run_study("canaries", Canaries, trains=True))
