"""Train and test a population of small contaminated models in one call.

Question: how often does an order test find a set that a model saw 0, 1, 2, 4 or 10
times? Command: `python -m train.population --corpus DOCS.jsonl --sets POOL.jsonl`.
Hardware: every core makes its own models, one after the other; on an accelerator
models are trained side by side. A killed run resumes: a model's folder is written under
another name and renamed when it is complete.
"""

import dataclasses
import itertools
import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from flax import nnx
from rich.console import Console

from jaxcontam.cli.main import EXIT_PARTIAL, run_module
from jaxcontam.data.benchmark import load_benchmark
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.pools import Failure, over_processes
from jaxcontam.processes import cpu_cores, keep_freed_memory
from jaxcontam.progress import progress_bar
from jaxcontam.proof.outcome import bare_table
from jaxcontam.reports.flags import check_positive, check_seed, flags_of
from jaxcontam.reports.report import library_versions, utc_now
from jaxcontam.reports.report_files import make_folder, replace_bytes, replace_folder
from jaxcontam.scoring.identity import cpu_name, keep_compiled
from jaxcontam.sources import source_digest
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.terminal import Terminal
from train.config import ConfigFlags
from train.data import corpus_digest, open_corpus
from train.manifest import write_manifest
from train.plant import PlannedSet, check_sets
from train.population_models import (
    Design,
    Job,
    PlannedModel,
    SetResult,
    Texts,
    TrainedModel,
    draw_sets,
    last_loss,
    n_parameters,
    plan_model,
    plan_tests,
    read_texts,
    set_results,
    train_models,
    trained_together,
)
from train.prepare import STREAM_NAME, stream_manifest, write_set
from train.run_folder import MANIFEST_NAME, MODEL_DIR, code_version
from train.tokens import tokenizer_digest

TABLE_NAME = "population.json"
TESTS_NAME = "tests.json"
LEVELS = (0.001, 0.05)
"""Levels at which power is stated."""

# Models side by side on one accelerator: some 2 GB at 0.16 M parameters.
_TOGETHER = 256
# A p-value of the level itself must not be lost to rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Population(ConfigFlags):
    """Train small models with test sets planted in their data, and test every set."""

    corpus: tuple[str, ...]
    """Background: files or folders of text, tfds:NAME/SPLIT or hf:NAME:SPLIT."""
    sets: tuple[Path, ...]
    """Pool of examples, one per line: each model samples disjoint sets from it."""
    copies: tuple[int, ...] = (0, 1, 2, 4, 10)
    """Duplication counts: one set for each number."""
    n_examples: int = 120
    """Examples in each set."""
    models: int = 40
    """Number of models."""
    preset: str | None = "0.16m"
    """Shape of the models."""
    steps: int | None = None
    """Training steps (default: as much background as planted text)."""
    background_tokens: int | None = None
    """Or this much background beside what is planted."""
    max_example_tokens: int | None = None
    """Longer examples are cut, separator included (default: two fit the context)."""
    weights: bool = True
    """Keep models, sets and streams; --no-weights keeps manifests and results."""
    form: Literal["auto", "scan", "vmap"] = "auto"
    """One model after the other in each process, or models side by side."""
    processes: int | None = None
    """Processes that train models, or analyse those trained side by side (default:
    one a core)."""
    together: int = _TOGETHER
    """Models side by side of the form vmap."""
    seed: int = 0
    """Seed of the first model; the others count up."""
    out: Path = Path("runs/population")
    """Folder for the models and population.json; finished models are kept."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models", "processes", "together", "steps")
        check_positive(self, "n_examples", "background_tokens")
        ConfigFlags.__post_init__(self)
        if self.steps is not None and self.background_tokens is not None:
            raise InputError("--steps and --background-tokens exclude each other")
        if not self.copies or min(self.copies) < 0:
            raise InputError(
                "--copies must be numbers of at least 0, such as 0 1 2 4 10"
            )

    def run(self) -> int:
        """Train what is missing, print the table; returns the exit code."""
        started, clock = utc_now(), time.monotonic()
        console = Terminal(highlight=False)
        job = self._prepare(self._pool())
        seeds = [self.seed + i for i in range(self.models)]
        found = {seed: finished_result(job, seed) for seed in seeds}
        missing = [seed for seed in seeds if found[seed] is None]
        if n_kept := len(seeds) - len(missing):
            print(f"keeping {n_kept} finished models in {self.out}", file=sys.stderr)
        failures: dict[int, Failure] = {}
        n_made, making = 0, time.monotonic()
        with progress_bar("training") as progress:
            total = len(missing) * job.design.n_tokens
            for seed, outcome in self._made(job, missing):
                if isinstance(outcome, ModelResult):
                    found[seed], n_made = outcome, n_made + 1
                    progress(n_made * job.design.n_tokens, total)
                else:
                    failures[seed] = outcome
                    print(f"model {seed}: {outcome.reason}", file=sys.stderr)
        making = time.monotonic() - making
        for seed in missing:
            if found[seed] is None and seed not in failures:
                failures[seed] = Failure("not tried: the first ones all failed")
        results = [result for seed in seeds if (result := found[seed]) is not None]
        table = power_rows(results)
        document = {
            "command": ["train.population", *flags_of(self)],
            "started": started,
            "wall_seconds": time.monotonic() - clock,
            "making_seconds": making,
            "n_made": n_made,
            "cpu": cpu_name(),
            "device": job.device,
            "versions": library_versions(),
            "code": job.code,
            "corpus_digest": job.texts.documents.corpus_digest,
            "pool_digest": job.pool_digest,
            "design": dataclasses.asdict(job.design),
            "models": [dataclasses.asdict(result) for result in results],
            "failures": [
                {"seed": seed, **dataclasses.asdict(failure)}
                for seed, failure in failures.items()
            ],
            "power": [dataclasses.asdict(row) for row in table],
        }
        for model in document["models"]:
            del model["rows"]
        text = json.dumps(document, indent=1) + "\n"
        replace_bytes(self.out / TABLE_NAME, text.encode())
        if results:
            print_power(results, table, console)
        if n_made:
            rate = 3600 * n_made / making
            console.print(f"{n_made} models in {making:.0f} s: {rate:,.0f} an hour")
        console.print(f"models: {self.out}")
        if not failures:
            return 0
        print(
            f"{len(failures)} of {len(missing)} models failed; run the same command "
            "again to try these alone",
            file=sys.stderr,
        )
        return EXIT_PARTIAL

    def _pool(self) -> list[str]:
        """Every example once."""
        pool: dict[str, None] = {}
        for path in self.sets:
            benchmark = load_benchmark(path)
            check_sets([PlannedSet(benchmark=benchmark, copies=0)])
            pool.update(dict.fromkeys(benchmark.texts))
        return list(pool)

    def _prepare(self, pool: Sequence[str]) -> Job:
        """Tokenise once for all processes; refuse an impossible design."""
        config = self.configured()
        if config.data.max_example_tokens is None:
            # Pair tests read one example after another one, and a prefix token.
            most = (config.decoder.context - 1) // 2
            config = config.changed(max_example_tokens=most)
        design = Design(
            name="set",
            config=config,
            n_examples=self.n_examples,
            copies=self.copies,
            n_steps=1,
        )
        draw_sets(design, pool, seed=self.seed)
        corpus = open_corpus(self.corpus, leave_out=self.out)
        folder = self.out / "texts"
        make_folder(folder)
        tokenizer, texts = read_texts(corpus, pool, config, folder)
        design = dataclasses.replace(design, n_steps=self._n_steps(design, texts))
        plan_model(design, texts, seed=self.seed)
        return Job(
            design=design,
            out=self.out.absolute(),
            weights=self.weights,
            code=code_version(),
            sources=source_digest("train.population_models"),
            tokenizer=tokenizer,
            texts=texts,
            tokenizer_digest=tokenizer_digest(texts.tokenizer),
            pool_digest=corpus_digest(pool),
            device=self._device(),
        )

    def _n_steps(self, design: Design, texts: Texts) -> int:
        """Steps of every model; one number, so that they share what is compiled."""
        if self.steps is not None:
            return self.steps
        mean = float(texts.encoded.lengths.mean())
        planted = round(sum(design.copies) * design.n_examples * mean)
        background = self.background_tokens
        if background is None:
            if not planted:
                raise InputError(
                    "nothing is planted", hint="say how long to train with --steps"
                )
            background = planted
        return -(-(planted + background) // design.config.step_tokens)

    def _device(self) -> str:
        """Form and kind of device, part of each model's key."""
        # What scans asks for no device.
        is_cpu = self.form == "scan" or jax.default_backend() == "cpu"
        kind = cpu_name() if is_cpu else jax.devices()[0].device_kind
        is_scan = self.form == "scan" or (self.form == "auto" and is_cpu)
        return f"{'scan' if is_scan else 'vmap'} on {kind}"

    def _made(
        self, job: Job, seeds: Sequence[int]
    ) -> Iterator[tuple[int, "ModelResult | Failure"]]:
        """Models in the order in which they are finished."""
        tasks: Iterable[int | TrainedModel] = seeds
        if not job.is_scan:
            keep_compiled()
            size = self.together
            chunks = [seeds[i : i + size] for i in range(0, len(seeds), size)]
            tasks = trained_together(job, chunks)
        n_processes = min(self.processes or cpu_cores(), len(seeds))
        made = over_processes(open_maker, job, tasks, n_processes=n_processes)
        for task, outcome in made:
            yield task if isinstance(task, int) else task.seed, outcome


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One finished model; `loss` is the mean of the last steps, nats per token."""

    seed: int
    n_parameters: int
    n_tokens: int
    n_canary_tokens: int
    loss: float
    rows: tuple[SetResult, ...]


def finished_result(job: Job, seed: int) -> ModelResult | None:
    """Result of a model that this job finished before; None if it is to be made."""
    folder = job.folder(seed)
    try:
        fields = json.loads((folder / TESTS_NAME).read_text("utf-8"))
        key = fields.pop("key")
        rows = tuple(SetResult(**row) for row in fields.pop("rows"))
        result = ModelResult(rows=rows, **fields)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if key != job.key(seed):
        raise InputError(
            f"{folder}: a model of other inputs or other code",
            hint=f"another --out, or delete {job.out} to make all models anew",
        )
    return result


def open_maker(job: Job) -> Callable[[int | TrainedModel], ModelResult]:
    """Prepare a worker: what trains (if it is not yet), tests and writes a model."""
    # Accelerators are left to the process that trains side by side.
    jax.config.update("jax_platforms", "cpu")
    keep_freed_memory()
    keep_compiled()
    graphdef, shapes = nnx.split(abstract_decoder(job.design.config.decoder))
    structure = jax.tree.structure(shapes)

    def make(task: int | TrainedModel) -> ModelResult:
        if isinstance(task, int):
            (task,) = train_models(job, [task])
        loss = last_loss(task.losses)
        if isinstance(task.scored, InputError):
            raise task.scored
        model = plan_model(job.design, job.texts, seed=task.seed)
        rows = set_results(job, plan_tests(job, model), task.scored)
        decoder = nnx.merge(graphdef, jax.tree.unflatten(structure, task.weights))
        result = ModelResult(
            seed=model.seed,
            n_parameters=n_parameters(decoder),
            n_tokens=job.design.n_tokens,
            n_canary_tokens=model.stream.n_canary_ids,
            loss=loss,
            rows=rows,
        )
        write_model(job, model, result, decoder)
        return result

    return make


def write_model(
    job: Job, model: PlannedModel, result: ModelResult, decoder: Any
) -> None:
    """Write a model's folder, whole or not at all."""
    folder = job.folder(model.seed)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if job.weights:
        config = job.design.config
        save_checkpoint(
            decoder, job.tokenizer, partial / MODEL_DIR, model_type=config.model_type
        )
        np.save(partial / STREAM_NAME, model.stream.ids)
        for planned in model.sets:
            write_set(planned, partial)
    _write_manifest(job, model, partial / MANIFEST_NAME)
    fields = {"key": job.key(model.seed), **dataclasses.asdict(result)}
    (partial / TESTS_NAME).write_text(json.dumps(fields, indent=1) + "\n")
    replace_folder(partial, folder)


def _write_manifest(job: Job, model: PlannedModel, path: Path) -> None:
    design = job.design
    manifest = stream_manifest(
        list(zip(model.sets, model.encoded, strict=True)),
        model.stream,
        model.starts,
        design.config,
        code=job.code,
        seed=model.seed,
        corpus_digest=job.texts.documents.corpus_digest,
        n_left_out=len(job.texts.refused),
        finished=True,
        tokenizer_digest=job.tokenizer_digest,
        first_id=job.texts.prefix_id,
    )
    write_manifest(manifest, path)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Share of sets that their test finds at a level, with its 95 % Wilson interval.

    At 0 copies it is the test's size. Sets of one model are taken for independent.
    """

    copies: int
    level: float
    n_sets: int
    n_rejected: int
    low: float
    high: float
    median_log10_p: float
    mean_effect: float | None


def power_rows(models: Sequence[ModelResult]) -> list[PowerRow]:
    """One row per duplication count and level; counts ascend."""
    cells: dict[int, list[SetResult]] = {}
    for row in (row for model in models for row in model.rows):
        cells.setdefault(row.copies, []).append(row)
    table = []
    for (copies, rows), level in itertools.product(sorted(cells.items()), LEVELS):
        effects = [row.effect for row in rows if row.effect is not None]
        threshold = math.log10(level) + _ROUNDING
        n_rejected = sum(row.log10_p <= threshold for row in rows)
        low, high = wilson_interval(n_rejected, len(rows))
        table.append(
            PowerRow(
                copies=copies,
                level=level,
                n_sets=len(rows),
                n_rejected=n_rejected,
                low=low,
                high=high,
                median_log10_p=statistics.median(row.log10_p for row in rows),
                mean_effect=statistics.fmean(effects) if effects else None,
            )
        )
    return table


def print_power(
    models: Sequence[ModelResult], table: Sequence[PowerRow], console: Console
) -> None:
    """Print what was made, and a line a duplication count and level."""
    first = models[0]
    planted = statistics.fmean(model.n_canary_tokens for model in models)
    console.print(
        f"{len(models)} models of {first.n_parameters:,} parameters, "
        f"{first.n_tokens:,} tokens each, {planted / first.n_tokens:.0%} planted, "
        f"last loss {statistics.fmean(model.loss for model in models):.2f}"
    )
    lines = [
        (
            str(row.copies),
            str(row.n_sets),
            f"{row.level:g}",
            f"{row.n_rejected / row.n_sets:.2f} ({row.low:.2f}-{row.high:.2f})",
            f"{10.0**row.median_log10_p:.2g}",
            "" if row.mean_effect is None else f"{row.mean_effect:+.3f}",
        )
        for row in table
    ]
    header = ("copies", "sets", "level", "found (95 %)", "median p", "effect")
    console.print(bare_table(header, lines, gap=2))


def main() -> int:
    """Command line of `python -m train.population`."""
    keep_freed_memory()
    return run_module(Population, "train.population")


if __name__ == "__main__":
    sys.exit(main())
