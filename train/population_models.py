"""Train, test and write the models of a population, each in its own folder.

A folder is written under another name and renamed when it is complete, so a killed run
leaves complete models only.

Dimension key
    M  models
    R  rows of a stream
    T  targets a row
    N  steps
"""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A trained model, neither tested nor written.

    Attributes:
        seed: Its seed.
        losses: (n_steps,) float32, nats per token.
        weights: Leaves of the decoder's state, in host memory.
        train_seconds: Its share of the wall time of planning and training.
        cpu_seconds: Its share of the process's CPU time.
    """

    seed: int
    losses: np.ndarray
    weights: list[np.ndarray]
    train_seconds: float
    cpu_seconds: float


def train_models(job: Job, texts: Texts, seeds: Sequence[int]) -> list[TrainedModel]:
    """Train the models of some seeds.

    Args:
        job: A job of form `scan` takes one seed; one of form `vmap` trains all seeds
            side by side.
        texts: From `open_texts`.
        seeds: A repeated seed is trained twice and returned once.
    """
    import jax
    from flax import nnx

    from train.population_forms import train_scanned, train_together

    start, cpu = time.monotonic(), time.process_time()
    preset = job.design.preset
    rows_MRT = np.stack(
        [plan_model(job.design, texts, seed=seed).rows for seed in seeds]
    )
    if job.is_scan:
        decoder, losses_N = train_scanned(preset, rows_MRT[0], seed=seeds[0])
        leaves = [leaf[None] for leaf in jax.tree.leaves(nnx.state(decoder))]
        losses_MN = losses_N[None]
    else:
        states, losses_MN = train_together(preset, rows_MRT, seeds=seeds)
        leaves = jax.tree.leaves(states)
    leaves = jax.device_get(leaves)
    places = {seed: m for m, seed in enumerate(seeds)}
    seconds = (time.monotonic() - start) / len(places)
    cpu_seconds = (time.process_time() - cpu) / len(places)
    return [
        TrainedModel(
            seed, losses_MN[m], [leaf[m] for leaf in leaves], seconds, cpu_seconds
        )
        for seed, m in places.items()
    ]


def trained_together(
    job: Job, chunks: Sequence[Sequence[int]]
) -> Iterator[TrainedModel]:
    """Train models chunk by chunk, those of a chunk side by side."""
    _, texts = open_texts(job)
    for chunk in chunks:
        # A last chunk of another size would be another program to compile.
        padding = [chunk[-1]] * (len(chunks[0]) - len(chunk))
        yield from train_models(job, texts, [*chunk, *padding])


def open_maker(job: Job) -> Callable[[int | TrainedModel], ModelResult]:
    """Prepare a worker process.

    Returns:
        A function that trains the model of a seed, or takes one that was trained side
        by side with others, tests it and writes its folder.
    """
    import jax
    from flax import nnx

    from jaxcontam.models.decoder import Decoder
    from jaxcontam.scoring.compiled import keep_compiled

    keep_freed_memory()
    keep_compiled()
    tokenizer, texts = open_texts(job)
    decoder = nnx.eval_shape(
        lambda: Decoder(job.design.preset.decoder, rngs=nnx.Rngs(0))
    )
    graphdef, shapes = nnx.split(decoder)
    structure = jax.tree.structure(shapes)

    def make(task: int | TrainedModel) -> ModelResult:
        if isinstance(task, int):
            (task,) = train_models(job, texts, [task])
        start, cpu = time.monotonic(), time.process_time()
        loss = last_loss(task.losses)
        model = plan_model(job.design, texts, seed=task.seed)
        weights = jax.device_put(task.weights)
        decoder = nnx.merge(graphdef, jax.tree.unflatten(structure, weights))
        rows = set_results(job, texts, model, decoder)
        result = ModelResult(
            seed=model.seed,
            n_parameters=n_parameters(decoder),
            n_tokens=job.design.n_tokens,
            n_canary_tokens=model.stream.n_canary_ids,
            loss=loss,
            train_seconds=task.train_seconds,
            test_seconds=time.monotonic() - start,
            cpu_seconds=task.cpu_seconds + time.process_time() - cpu,
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
