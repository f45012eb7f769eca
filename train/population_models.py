"""Train, test and write the models of a population, each in its own folder.

A folder is written under another name and renamed when it is complete, so a killed run
leaves complete models only.

Dimension key
    N  steps
"""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxcontam import __version__
from jaxcontam.data.manifest import Manifest, write_manifest
from jaxcontam.methods import order_method
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from train.allocator import keep_freed_memory
from train.planted import planted_sets, write_set
from train.population_job import (
    TESTS_NAME,
    Job,
    ModelResult,
    SetResult,
    open_texts,
)
from train.population_plan import PlannedModel, Texts, plan_model
from train.presets import preset_to_json
from train.stream import stream_digest

MODEL_DIR = "model"
STREAM_NAME = "stream.npy"
MANIFEST_NAME = "manifest.json"

# The final loss is the mean over this many steps.
_LAST_STEPS = 50


class DivergedError(ArithmeticError):
    """A model's loss is not finite."""


def open_maker(job: Job) -> Callable[[int], ModelResult]:
    """Prepare a worker process.

    Returns:
        A function that trains the model of a seed, tests it and writes its folder.
    """
    from jaxcontam.scoring.compiled import keep_compiled
    from train.scan import train_scanned

    keep_freed_memory()
    keep_compiled()
    tokenizer, texts = open_texts(job)

    def make(seed: int) -> ModelResult:
        start, cpu = time.monotonic(), time.process_time()
        model = plan_model(job.design, texts, seed=seed)
        decoder, losses_N = train_scanned(job.design.preset, model.rows, seed=seed)
        loss = last_loss(losses_N)
        trained = time.monotonic()
        rows = set_results(job, texts, model, decoder)
        result = ModelResult(
            seed=seed,
            n_parameters=n_parameters(decoder),
            n_tokens=job.design.n_tokens,
            n_canary_tokens=model.stream.n_canary_ids,
            loss=loss,
            train_seconds=trained - start,
            test_seconds=time.monotonic() - trained,
            cpu_seconds=time.process_time() - cpu,
            rows=rows,
        )
        write_model(job, model, result, decoder, tokenizer)
        return result

    return make


def set_results(
    job: Job, texts: Texts, model: PlannedModel, decoder: Any
) -> tuple[SetResult, ...]:
    """The test of every set of a model; none if the job has no test."""
    if job.test is None:
        return ()
    from jaxcontam.scoring.local import local_scorer

    scorer = local_scorer(decoder)
    rows = []
    for planned, encoded in zip(model.sets, model.encoded, strict=True):
        test = plan_test(
            planned.benchmark,
            encoded,
            order_method(job.test),
            prefix_id=texts.prefix_id,
            context=job.design.preset.decoder.context,
            seed=model.seed,
        )
        scored = score_test(test, scorer)
        result = order_result(
            test, scored, primary=False, pretests=(), copies=planned.copies
        )
        numbers = result.numbers
        rows.append(
            SetResult(
                name=result.benchmark,
                copies=planned.copies,
                method=result.method,
                n_examples=result.n_examples,
                n_strata=result.n_strata,
                p_value=numbers.p_value,
                log10_p=numbers.log10_p,
                effect=numbers.effect,
                effect_se=numbers.effect_se,
                mde=numbers.mde,
            )
        )
    return tuple(rows)


def write_model(
    job: Job, model: PlannedModel, result: ModelResult, decoder: Any, tokenizer: Any
) -> None:
    """Write a model's folder, whole or not at all."""
    from jaxcontam.models.checkpoint import save_checkpoint

    folder = job.folder(model.seed)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if job.weights:
        preset = job.design.preset
        save_checkpoint(
            decoder, tokenizer, partial / MODEL_DIR, model_type=preset.model_type
        )
        np.save(partial / STREAM_NAME, model.stream.ids)
        for planned in model.sets:
            write_set(planned, partial)
    write_manifest(_manifest(job, model), partial / MANIFEST_NAME)
    fields = {"key": job.key(model.seed), **dataclasses.asdict(result)}
    (partial / TESTS_NAME).write_text(json.dumps(fields, indent=1) + "\n")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    partial.rename(folder)


def _manifest(job: Job, model: PlannedModel) -> Manifest:
    design = job.design
    return Manifest(
        jaxcontam=__version__,
        code=job.code,
        seed=model.seed,
        preset=design.preset.name,
        corpus_digest=job.corpus_digest,
        separator=design.separator,
        max_example_tokens=design.max_example_tokens,
        context=design.preset.context,
        n_tokens=len(model.stream.ids),
        n_canary_tokens=model.stream.n_canary_ids,
        n_steps=design.n_steps,
        finished=True,
        stream=STREAM_NAME,
        stream_digest=stream_digest(model.stream.ids),
        tokenizer_digest=job.tokenizer_digest,
        recipe=json.loads(json.dumps(preset_to_json(design.preset))),
        sets=planted_sets(
            model.sets, model.encoded, model.stream, model.starts, design.preset
        ),
    )


def n_parameters(decoder: Any) -> int:
    """Weights, tied ones counted once."""
    import jax
    from flax import nnx

    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))


def last_loss(losses_N: np.ndarray) -> float:
    """Mean loss of the last steps, nats per token.

    Raises:
        DivergedError: If one of them is not finite.
    """
    loss = float(losses_N[-_LAST_STEPS:].mean())
    if not np.isfinite(loss):
        n_finite = int(np.isfinite(losses_N).sum())
        raise DivergedError(f"the loss is not finite from step {n_finite + 1} on")
    return loss
