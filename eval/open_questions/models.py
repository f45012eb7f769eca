"""The models that questions are asked of: populations trained here, or given runs."""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.open_questions.scores import Subject
from eval.planted import in_rows
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.data.manifest import Manifest, PlantedSet, read_manifest
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import load_checkpoint
from jaxcontam.report.archive import read_archive
from jaxcontam.results import Evidence
from jaxcontam.scoring.local import checkpoint_scorer, local_scorer
from train.audits import encode_planted
from train.earlier import MANIFEST_NAME, MODEL_DIR
from train.population_forms import train_scanned
from train.population_plan import Design, Texts, plan_model
from train.presets import PRESETS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Population(Design):
    """Models of one design.

    Attributes:
        questions: What they are asked.
        first_seed: Added to the study's seed.
        share: Models of it for each model of the study.
    """

    questions: tuple[str, ...]
    first_seed: int
    share: float = 1.0


GIVEN_QUESTIONS = ("symmetry", "skew", "lags", "places")
"""What any planted model can be asked at a few passes a set."""
LADDER = Population(
    name="0.16m",
    preset=in_rows("0.16m", 128, 1),
    n_examples=120,
    copies=(0, 1, 2, 4, 10),
    n_steps=988,
    max_example_tokens=31,
    questions=(*GIVEN_QUESTIONS, "efforts"),
    first_seed=0,
)
TINY = Population(
    name="tiny",
    preset=PRESETS["tiny"],
    n_examples=125,
    copies=(0, 1, 2, 4, 10, 50),
    n_steps=664,
    max_example_tokens=31,
    questions=(*GIVEN_QUESTIONS, "efforts"),
    first_seed=1000,
    share=0.25,
)
# 2,400 tokens a set and copy whatever the length of its examples, and 126,464 in all.
BY_CONTEXT = tuple(
    Population(
        name=f"{context}x{tokens}",
        preset=in_rows("0.16m", context, 256 // context),
        n_examples=2400 // tokens,
        copies=(0, 4, 10, 20),
        n_steps=494,
        max_example_tokens=tokens,
        # Strata of six reversed examples need 240 examples and their 60 tokens.
        questions=("symmetry", "context", *(("efforts",) if tokens == 10 else ())),
        first_seed=2000 + 1000 * number,
        share=0.1875,
    )
    for number, (context, tokens) in enumerate(
        (context, tokens) for context in (64, 128, 256) for tokens in (10, 20, 40)
    )
)
PULSE = Population(
    name="pulse-64x31",
    preset=PRESETS["pulse"],
    n_examples=24,
    copies=(0, 4),
    n_steps=40,
    max_example_tokens=31,
    questions=(*GIVEN_QUESTIONS, "context", "efforts"),
    first_seed=0,
)


def trained_subjects(design: Population, texts: Texts, *, seed: int) -> list[Subject]:
    """Train one model; its sets.

    Raises:
        InputError: If there are too few examples or documents.
    """
    model = plan_model(design, texts, seed=seed)
    decoder, _ = train_scanned(design.preset, model.rows, seed=seed)
    scorer = local_scorer(decoder)
    return [
        Subject(
            population=design.name,
            seed=seed,
            copies=one.copies,
            benchmark=one.benchmark,
            encoded=ids,
            prefix_id=texts.prefix_id,
            context=design.preset.context,
            scorer=scorer,
        )
        for one, ids in zip(model.sets, model.encoded, strict=True)
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GivenRun:
    """A finished training run, such as that of `eval.canaries`.

    Attributes:
        name: What tables call it: the name of its folder.
        folder: With manifest.json, model/, sets/, and perhaps a report whose random
            orders need not be scored again.
        manifest: What it was trained on.
    """

    name: str
    folder: Path
    manifest: Manifest

    @property
    def ordered(self) -> list[PlantedSet]:
        """Sets whose copies had one order."""
        return [
            row
            for row in self.manifest.sets
            if not row.shuffled and row.layout == "block"
        ]


def read_runs(folders: Sequence[Path]) -> list[GivenRun]:
    """Finished runs, whose parts are looked for and not yet read.

    Raises:
        InputError: If a part is missing, training did not finish, or two runs, or a
            run and a population, have one name.
    """
    runs: dict[str, GivenRun] = {}
    populations = {one.name for one in (LADDER, TINY, *BY_CONTEXT, PULSE)}
    for folder in folders:
        # The name of `.` and of `a/..`, too.
        name = Path(os.path.abspath(folder)).name
        manifest = read_manifest(folder / MANIFEST_NAME)
        if not manifest.finished:
            raise InputError(
                f"{folder}: training did not finish", hint="run its command again"
            )
        run = GivenRun(name=name, folder=folder, manifest=manifest)
        for part in (MODEL_DIR, *(row.file for row in run.ordered)):
            if not (folder / part).exists():
                raise InputError(f"{folder / part}: not there")
        if name in runs or name in populations:
            raise InputError(
                f"{folder}: "
                + (
                    f"{runs[name].folder} is called {name!r}, too"
                    if name in runs
                    else f"models that are trained here are called {name!r}, too"
                ),
                hint="tables tell runs by the names of their folders: rename one, or "
                "link to it by another name",
            )
        runs[name] = run
    return list(runs.values())


def given_subjects(given: GivenRun, *, seed: int, store: Path) -> Iterator[Subject]:
    """Sets of a finished training run.

    Sets whose copies had no one order are left out.

    Args:
        given: The run.
        seed: Seeds the tests.
        store: Where scores are kept.

    Raises:
        InputError: If its model cannot be read, or a set's file is not what was
            planted.
    """
    run, manifest = given.folder, given.manifest
    checkpoint = load_checkpoint(str(run / MODEL_DIR))
    scorer = checkpoint_scorer(checkpoint, store=store)
    stored = _stored_orders(run, checkpoint.fingerprint)
    for row in given.ordered:
        benchmark = load_benchmark(run / row.file, text_field=row.text_field)
        if benchmark.fingerprint != row.fingerprint:
            raise InputError(f"{run / row.file}: not the set that was planted")
        yield Subject(
            population=given.name,
            seed=seed,
            copies=row.copies,
            benchmark=benchmark,
            encoded=encode_planted(checkpoint.tokenizer, benchmark, manifest),
            prefix_id=checkpoint.prefix_id,
            context=checkpoint.config.context,
            scorer=scorer,
            orders=stored.get(benchmark.fingerprint),
        )


def _stored_orders(run: Path, fingerprint: str) -> dict[str, Evidence]:
    """Scores of `stratified` in the run's report, by the set's fingerprint."""
    try:
        report = json.loads((run / "report.json").read_text(encoding="utf-8"))
        rows = report["results"]
        if report["model"]["fingerprint"] != fingerprint:
            return {}
        evidence = read_archive(run / "orders.npz", len(rows))
    except (OSError, ValueError, KeyError, InputError):
        return {}
    return {
        row["fingerprint"]: one
        for row, one in zip(rows, evidence, strict=True)
        if row["method"] == "stratified" and one is not None
    }
