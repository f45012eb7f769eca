"""What a population's processes run, and folders and results of finished models.

A folder is written under another name and renamed when it is complete, so a killed run
leaves complete models only.
"""

import dataclasses
import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from rich.console import Console

from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.models.decoder import abstract_decoder
from jaxcontam.proof.outcome import bare_table
from jaxcontam.reports.report_files import replace_folder
from jaxcontam.scoring.identity import keep_compiled
from jaxcontam.stats.proportions import wilson_interval
from train.manifest import Manifest, write_manifest
from train.population_models import (
    Job,
    SetResult,
    TrainedModel,
    last_loss,
    n_parameters,
    plan_tests,
    set_results,
    train_models,
)
from train.population_plan import PlannedModel, plan_model
from train.population_workers import keep_freed_memory
from train.prepare import STREAM_NAME, stream_manifest, write_set
from train.run_folder import MANIFEST_NAME, MODEL_DIR

TESTS_NAME = "tests.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One finished model.

    Attributes:
        seed: Seed of sets, stream, weights and tests.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_canary_tokens: Ids of all copies of all sets.
        loss: Mean of the last steps, nats per token.
        train_seconds: Wall time of planning and training, compilation included; where
            models are trained together, a model's share.
        test_seconds: Likewise of tests.
        cpu_seconds: CPU time of both, which other programs on the machine do not
            lengthen much.
        rows: One per set; empty without tests.
    """

    seed: int
    n_parameters: int
    n_tokens: int
    n_canary_tokens: int
    loss: float
    train_seconds: float
    test_seconds: float
    cpu_seconds: float
    rows: tuple[SetResult, ...]


def finished_result(job: Job, seed: int) -> ModelResult | None:
    """Result of a model that this job finished before; None if it is to be made.

    Raises:
        InputError: If other code, or a job of other inputs, made the model that is
            there.
    """
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
    """Prepare a worker process.

    Returns:
        A function that trains the model of a seed, or takes one that was trained side
        by side with others, tests it and writes its folder.
    """
    # Accelerators are left to the process that trains side by side.
    jax.config.update("jax_platforms", "cpu")
    keep_freed_memory()
    keep_compiled()
    graphdef, shapes = nnx.split(abstract_decoder(job.design.config.decoder))
    structure = jax.tree.structure(shapes)

    def make(task: int | TrainedModel) -> ModelResult:
        if isinstance(task, int):
            (task,) = train_models(job, [task])
        start, cpu = time.monotonic(), time.process_time()
        loss = last_loss(task.losses)
        if isinstance(task.scored, InputError):
            raise task.scored
        model = plan_model(job.design, job.texts, seed=task.seed)
        rows: tuple[SetResult, ...] = ()
        if job.test is not None:
            rows = set_results(job, plan_tests(job, model), task.scored)
        decoder = nnx.merge(graphdef, jax.tree.unflatten(structure, task.weights))
        result = ModelResult(
            seed=model.seed,
            n_parameters=n_parameters(decoder),
            n_tokens=job.design.n_tokens,
            n_canary_tokens=model.stream.n_canary_ids,
            loss=loss,
            train_seconds=task.train_seconds,
            test_seconds=task.score_seconds + time.monotonic() - start,
            cpu_seconds=task.cpu_seconds + time.process_time() - cpu,
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
    write_manifest(_manifest(job, model), partial / MANIFEST_NAME)
    fields = {"key": job.key(model.seed), **dataclasses.asdict(result)}
    (partial / TESTS_NAME).write_text(json.dumps(fields, indent=1) + "\n")
    replace_folder(partial, folder)


def _manifest(job: Job, model: PlannedModel) -> Manifest:
    design = job.design
    return stream_manifest(
        list(zip(model.sets, model.encoded, strict=True)),
        model.stream,
        model.starts,
        design.config,
        code=job.code,
        seed=model.seed,
        corpus_digest=job.texts.documents.corpus_digest,
        separator=design.separator,
        max_example_tokens=design.max_example_tokens,
        finished=True,
        tokenizer_digest=job.tokenizer_digest,
        first_id=job.texts.prefix_id,
    )


LEVELS = (0.001, 0.05)
"""Levels at which power is stated."""
# A p-value of the level itself must not be lost to rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Share of sets that a test finds at one duplication count.

    Attributes:
        method: The test.
        copies: Duplication count; at 0 the share is the test's size.
        level: Significance level.
        n_sets: Sets tested, one or more a model.
        n_rejected: p-values at or below the level.
        low: Lower end of the 95 % Wilson interval of the share, which treats sets of
            one model as independent.
        high: Its upper end.
        median_log10_p: Over the sets.
        mean_effect: Nats per boundary, over the sets.
    """

    method: str
    copies: int
    level: float
    n_sets: int
    n_rejected: int
    low: float
    high: float
    median_log10_p: float
    mean_effect: float | None


def power_rows(models: Sequence[ModelResult]) -> list[PowerRow]:
    """One row per test, duplication count and level; counts ascend."""
    cells: dict[tuple[str, int], list[SetResult]] = {}
    for model in models:
        for row in model.rows:
            cells.setdefault((row.method, row.copies), []).append(row)
    table = []
    for (method, copies), rows in sorted(cells.items()):
        effects = [row.effect for row in rows if row.effect is not None]
        for level in LEVELS:
            threshold = math.log10(level) + _ROUNDING
            n_rejected = sum(row.log10_p <= threshold for row in rows)
            low, high = wilson_interval(n_rejected, len(rows))
            table.append(
                PowerRow(
                    method=method,
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
    """What was made, and a line a test and duplication count."""
    first = models[0]
    planted = statistics.fmean(model.n_canary_tokens for model in models)
    console.print(
        f"{len(models)} models of {first.n_parameters:,} parameters, "
        f"{first.n_tokens:,} tokens each, {planted / first.n_tokens:.0%} planted, "
        f"last loss {statistics.fmean(model.loss for model in models):.2f}"
    )
    if not table:
        return
    header = ("test", "copies", "sets", *(f"p <= {at:g} (95 %)" for at in LEVELS))
    cells = {(row.method, row.copies, row.level): row for row in table}
    lines = []
    for method, copies in dict.fromkeys((row.method, row.copies) for row in table):
        found = [cells[method, copies, level] for level in LEVELS]
        effect = found[0].mean_effect
        shares = (
            f"{row.n_rejected / row.n_sets:.2f} ({row.low:.2f}-{row.high:.2f})"
            for row in found
        )
        p = 10.0 ** found[0].median_log10_p
        median = f"{p:.3f}" if p >= 1e-3 else f"{p:.0e}"
        end = "" if effect is None else f"{effect:+.3f}"
        lines.append([method, str(copies), str(found[0].n_sets), *shares, median, end])
    console.print(bare_table((*header, "median p", "effect"), lines, gap=2))
