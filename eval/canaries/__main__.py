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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from eval.canaries.tables import Plan, copies_of, grids_of, numbers_of, run_of
from eval.planted import order_tests, trained
from eval.study import Clock, StudyFlags, finish_study, run_study
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError, check_names
from jaxcontam.models.checkpoint import load_checkpoint
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
from train.plant import HELD_OUT, PlannedSet
from train.run_folder import MANIFEST_NAME, MODEL_DIR

_OUT = Path("runs/canaries")
# Fewer lines after a planted set are no control: an order test would find nothing.
_FEWEST_CONTROLS = 20
# Inside a run's folder: the model that read the background alone.
_REFERENCE = "reference"
# Flags that change the model and its sets.
_TRAINING = (
    *("corpus", "canaries", "dup_counts", "limit"),
    *("preset", "batch_rows", "max_example_tokens", "background_tokens"),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A finished run: what the model was trained on, its sets, and its folder."""

    manifest: Manifest
    sets: Sequence[PlannedSet]
    folder: Path


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
        """Output folder: by default no other kind of run's."""
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
            return _finished(self.trained)
        assert self.canaries is not None
        limit = min(self.limit, 20) if self.tiny else self.limit
        sets = [
            one
            for name, copies in copies_of(self.dup_counts).items()
            for one in set_and_control(self.canaries / f"{name}.jsonl", copies, limit)
        ]
        return self._train(sets, self.folder)

    def _train(self, sets: Sequence[PlannedSet], folder: Path) -> Trained:
        preset = PRESETS["pulse" if self.tiny else self.preset]
        manifest = trained(
            read_documents(self.corpus),
            sets,
            preset.changed(
                batch_rows=self.batch_rows, max_example_tokens=self.max_example_tokens
            ),
            out=folder,
            seed=self.seed,
            options=RunOptions(
                background_tokens=5_000 if self.tiny else self.background_tokens,
                # Passages and questions of these files stand in both of their parts.
                allow_overlap=True,
            ),
        )
        return Trained(manifest, _planted_first(sets), folder)

    def _reference(self, model: Trained) -> Trained | None:
        """The same background without the sets; None where a given run has none."""
        folder = model.folder / _REFERENCE
        if self.trained is None:
            unread = [dataclasses.replace(one, copies=0) for one in model.sets]
            return self._train(unread, folder)
        if not folder.is_dir():
            return None
        manifest = read_manifest(folder / MANIFEST_NAME)
        if not manifest.finished or manifest.n_canary_tokens:
            raise InputError(
                f"{folder}: no finished model that read the background alone",
                hint="move it away to go without a reference",
            )
        if manifest.corpus_digest != model.manifest.corpus_digest:
            raise InputError(f"{folder}: trained on another corpus")
        return Trained(manifest, model.sets, folder)

    def _test(self, model: Trained, clock: Clock) -> dict:
        """Every test of every set; writes the report."""
        reference = self._reference(model)
        began = time.monotonic()
        n_orders: dict[str, int | None] = dict.fromkeys(
            ("adjacency", "stratified", "reversal")
        )
        if self.n_permutations:
            n_orders["permutation"] = 2 if self.tiny else self.n_permutations
        info, found = self._scored(model, n_orders, self.folder / STORE_DIR)
        info_of_reference = None
        if reference is not None:
            info_of_reference, others = self._scored(
                reference, {"adjacency": None}, reference.folder / STORE_DIR
            )
            found = with_reference(found, others, info_of_reference, seed=self.seed)
        results, evidence = zip(*found, strict=True)
        manifest, sets = model.manifest, model.sets
        pairs = [(one, _control_of(one, sets)) for one in sets if one.copies]
        report = Report(
            command=("eval.canaries", *flags_of(self)),
            seed=self.seed,
            started=clock.started,
            wall_seconds=time.monotonic() - clock.wall,
            model=info,
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
                "seen": {
                    control.name: (len(found_in(control, one)), len(control.benchmark))
                    for one, control in pairs
                    if control is not None
                },
            },
        )
        document, _ = write_files(
            report, {ARCHIVE_NAME: archive_bytes(evidence)}, self.folder
        )
        return document

    def _scored(
        self, model: Trained, n_orders: Mapping[str, int | None], store: Path
    ) -> tuple[ModelInfo, list[tuple[OrderResult, Evidence | None]]]:
        """Order tests before verdicts, with the scores of each."""
        checkpoint = load_checkpoint(str(model.folder / MODEL_DIR))
        with progress_bar(f"testing orders, {model.folder.name}") as progress:
            found = order_tests(
                model.sets,
                model.manifest,
                checkpoint,
                checkpoint_scorer(checkpoint, store=store),
                n_orders=n_orders,
                seed=self.seed,
                progress=progress,
            )
        return model_info(checkpoint), list(zip(*found, strict=True))


def set_and_control(path: Path, copies: int, limit: int) -> Iterable[PlannedSet]:
    """The first lines of a file, and as many later ones at most, never planted."""
    whole = load_benchmark(path, limit=2 * limit)
    has_control = len(whole) - limit >= min(limit, _FEWEST_CONTROLS)
    for suffix, part, n in (
        ("", slice(limit), copies),
        (HELD_OUT, slice(limit, None), 0),
    )[: 1 + has_control]:
        name, texts, rows = whole.name + suffix, whole.texts[part], whole.rows[part]
        yield PlannedSet(benchmark=Benchmark(name, texts, rows), copies=n)


def _finished(folder: Path) -> Trained:
    """The manifest and the sets of a finished run.

    Raises:
        InputError: If the run is not finished, a file of it is missing, or a set is
            not the one that the manifest names.
    """
    manifest = read_manifest(folder / MANIFEST_NAME)
    if not manifest.finished:
        raise InputError(
            f"{folder}: its training is not finished",
            hint="the same command again goes on from the last checkpoint",
        )
    sets = []
    for row in manifest.sets:
        benchmark = load_benchmark(folder / row.file, text_field=row.text_field)
        if benchmark.fingerprint != row.fingerprint:
            raise InputError(
                f"{folder / row.file}: not the set {row.name!r} of {MANIFEST_NAME}",
                hint="the file was changed after training",
            )
        sets.append(
            PlannedSet(
                benchmark=dataclasses.replace(benchmark, name=row.name),
                copies=row.copies,
                shuffled=row.shuffled,
                held_out_of=row.held_out_of,
            )
        )
    if not any(one.copies for one in sets):
        raise InputError(f"{folder}: no set was planted there")
    return Trained(manifest, _planted_first(sets), folder)


def _planted_first(sets: Sequence[PlannedSet]) -> list[PlannedSet]:
    """Planted sets before controls, otherwise in the order of the manifest."""
    return sorted(sets, key=lambda one: one.copies == 0)


def _control_of(planted: PlannedSet, sets: Sequence[PlannedSet]) -> PlannedSet | None:
    """The later lines of a planted set's own file, which were not planted."""
    for one in sets:
        named = planted.name in (one.held_out_of, one.name.removesuffix(HELD_OUT))
        if one.copies == 0 and named:
            return one
    return None


if __name__ == "__main__":
    sys.exit(run_study("canaries", Canaries, trains=True))
