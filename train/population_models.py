"""Models of a population made: trained, tested, written; each in a folder of its own.

A folder is written under another name and renamed when it is complete, so a killed run
leaves whole models and nothing that looks like one.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from jaxcontam import __version__
from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.data.manifest import Manifest, write_manifest
from jaxcontam.errors import InputError
from jaxcontam.methods import order_method
from jaxcontam.methods.layouts import ScoredTest
from jaxcontam.methods.order_test import PlannedTest, order_result, plan_test
from train.planted import write_set
from train.population_plan import (
    Design,
    PlannedModel,
    Texts,
    plan_model,
    planted_rows,
    read_pool,
)
from train.presets import preset_to_json
from train.stream import stream_digest
from train.token_blocks import BOUND_TYPE, BOUNDS, IDS, id_type
from train.tokenizer import prefix_id
from train.tokens import TokenCache

MODEL_DIR = "model"
STREAM_NAME = "stream.npy"
MANIFEST_NAME = "manifest.json"
TESTS_NAME = "tests.json"
TEXTS_DIR = "texts"
TOKENIZER_DIR = "tokenizer"
POOL_NAME = "pool.json"

# Losses at the end of training are averaged over so many steps.
_LAST_STEPS = 50


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that a process must know to make any model of a population.

    Attributes:
        design: What the models share.
        out: Folder of the population.
        test: Method that tests every set, or None.
        weights: Whether models, sets and streams are kept.
        code: Git commit, for manifests.
        sources: Digest of the source files; another one makes models anew.
        tokens: Folder of the tokenised background.
        corpus_digest: Of the background documents.
        tokens_digest: Of their ids.
        tokenizer_digest: SHA-256 of the tokenizer's JSON.
        pool_digest: Of the pool, in its order.
        device: What computes: `scan` or `vmap`, and on which kind of device.
    """

    design: Design
    out: Path
    test: str | None
    weights: bool
    code: str | None
    sources: str
    tokens: Path
    corpus_digest: str
    tokens_digest: str
    tokenizer_digest: str
    pool_digest: str
    device: str

    def folder(self, seed: int) -> Path:
        """Of one model."""
        return self.out / f"model-{seed}"

    def key(self, seed: int) -> str:
        """Digest of all that a model follows from."""
        parts = [
            dataclasses.asdict(self.design),
            seed,
            self.test,
            self.weights,
            self.sources,
            self.corpus_digest,
            self.tokens_digest,
            self.tokenizer_digest,
            self.pool_digest,
            self.device,
        ]
        text = json.dumps(parts, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """The test of one set of one model; numbers as in `OrderNumbers`."""

    name: str
    copies: int
    method: str
    n_examples: int
    n_strata: int
    p_value: float | None
    log10_p: float
    effect: float | None
    effect_se: float | None
    mde: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One finished model.

    Attributes:
        seed: Of sets, stream, weights and tests.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_canary_tokens: Ids of all copies of all sets.
        loss: Mean of the last steps, nats a token.
        train_seconds: Wall time of planning and training, compilation included; where
            models are trained together, a model's share.
        test_seconds: Likewise of tests.
        cpu_seconds: Of both, by the process's own clock, which other programs on the
            machine do not lengthen much.
        rows: One a set; empty without tests.
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


class DivergedError(ArithmeticError):
    """A model's loss is not finite."""


def source_digest() -> str:
    """Digest of every source file that trains and tests, whether git knows it or not.

    Narrower than a commit: a new README makes no finished model obsolete.
    """
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in ("jaxcontam", "train"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 of a tokenizer's JSON, as manifests have it."""
    return f"sha256:{hashlib.sha256(tokenizer.to_str().encode()).hexdigest()}"


def save_texts(folder: Path, tokenizer: Any, pool: Sequence[str]) -> None:
    """Write what `open_texts` reads beside the tokenised background."""
    tokenizer.save_pretrained(folder / TOKENIZER_DIR)
    (folder / POOL_NAME).write_text(json.dumps(pool), encoding="utf-8")


def open_texts(job: Job) -> tuple[Any, Texts]:
    """The tokenizer as models are saved with it, and the texts.

    The background is mapped from its files, which all processes share.
    """
    from jaxcontam.models.checkpoint import quiet_transformers

    quiet_transformers()
    from transformers import PreTrainedTokenizerFast

    folder = job.out / TEXTS_DIR
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / TOKENIZER_DIR)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    documents = TokenCache(
        np.memmap(job.tokens / IDS, id_type(plain), mode="r"),
        np.memmap(job.tokens / BOUNDS, BOUND_TYPE, mode="r"),
        job.corpus_digest,
        job.tokens_digest,
    )
    texts = read_pool(
        plain,
        prefix_id(tokenizer),
        documents,
        json.loads((folder / POOL_NAME).read_text(encoding="utf-8")),
        max_example_tokens=job.design.max_example_tokens,
        separator=job.design.separator,
    )
    return tokenizer, texts


def finished_result(job: Job, seed: int) -> ModelResult | None:
    """Of a model that stands in its folder, if the same job would make it."""
    try:
        fields = json.loads((job.folder(seed) / TESTS_NAME).read_text("utf-8"))
        if fields.pop("key") != job.key(seed):
            return None
        rows = tuple(SetResult(**row) for row in fields.pop("rows"))
        return ModelResult(rows=rows, **fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def scan_maker(job: Job) -> Callable[[int], ModelResult]:
    """Read the texts; returns what makes the model of a seed, one after the other."""
    from flax import nnx

    from jaxcontam.methods.population import score_population_tests
    from jaxcontam.scoring.population import stacked
    from train.population_forms import train_scanned

    tokenizer, texts = open_texts(job)

    def make(seed: int) -> ModelResult:
        start, cpu = time.monotonic(), time.process_time()
        model = plan_model(job.design, texts, seed=seed)
        decoder, losses = train_scanned(job.design.preset, model.rows, seed=seed)
        loss = _last_loss(losses)
        trained = time.monotonic()
        rows: tuple[SetResult, ...] = ()
        if job.test is not None:
            planned = plan_tests(job, texts, model)
            graphdef, state = nnx.split(decoder)
            (scored,) = score_population_tests(
                [planned],
                graphdef,
                stacked([state]),
                context=job.design.preset.decoder.context,
            )
            if isinstance(scored, InputError):
                raise scored
            rows = set_results(job, planned, scored)
        result = ModelResult(
            seed=seed,
            n_parameters=_n_parameters(decoder),
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


def make_together(
    job: Job, chunks: Sequence[Sequence[int]]
) -> Iterator[tuple[int, ModelResult | Exception]]:
    """Make models chunk by chunk, those of a chunk side by side.

    Yields:
        A seed and its model, or why there is none.
    """
    import jax
    from flax import nnx

    from jaxcontam.methods.population import score_population_tests
    from train.population_forms import train_together

    tokenizer, texts = open_texts(job)
    for chunk in chunks:
        start, cpu = time.monotonic(), time.process_time()
        # A last chunk of another size would be another program to compile.
        seeds = [*chunk, *[chunk[-1]] * (len(chunks[0]) - len(chunk))]
        models = [plan_model(job.design, texts, seed=seed) for seed in seeds]
        graphdef, states, losses = train_together(
            job.design.preset, np.stack([model.rows for model in models]), seeds=seeds
        )
        trained = time.monotonic()
        tests: list[list[PlannedTest]] = [[] for _ in models]
        scored: list[list[ScoredTest] | InputError] = [[] for _ in models]
        if job.test is not None:
            tests = [plan_tests(job, texts, model) for model in models]
            scored = score_population_tests(
                tests,
                graphdef,
                states,
                context=job.design.preset.decoder.context,
                side_by_side=True,
            )
        host = jax.device_get(states)
        share = 1 / len(chunk)
        together = (time.monotonic() - trained) * share
        cpu = (time.process_time() - cpu) * share
        for m, model in enumerate(models[: len(chunk)]):
            own, own_cpu = time.monotonic(), time.process_time()
            try:
                loss, of_model = _last_loss(losses[m]), scored[m]
                if isinstance(of_model, InputError):
                    raise of_model
                rows = set_results(job, tests[m], of_model)
            except (DivergedError, InputError) as e:
                yield model.seed, e
                continue
            decoder = nnx.merge(graphdef, jax.tree.map(lambda x, m=m: x[m], host))
            result = ModelResult(
                seed=model.seed,
                n_parameters=_n_parameters(decoder),
                n_tokens=job.design.n_tokens,
                n_canary_tokens=model.stream.n_canary_ids,
                loss=loss,
                train_seconds=(trained - start) * share,
                test_seconds=together + time.monotonic() - own,
                cpu_seconds=cpu + time.process_time() - own_cpu,
                rows=rows,
            )
            write_model(job, model, result, decoder, tokenizer)
            yield model.seed, result


def plan_tests(job: Job, texts: Texts, model: PlannedModel) -> list[PlannedTest]:
    """The test of every set of a model."""
    assert job.test is not None
    return [
        plan_test(
            planned.benchmark,
            encoded,
            order_method(job.test),
            prefix_id=texts.prefix_id,
            context=job.design.preset.decoder.context,
            seed=model.seed,
        )
        for planned, encoded in zip(model.sets, model.encoded, strict=True)
    ]


def set_results(
    job: Job, planned: Sequence[PlannedTest], scored: Sequence[ScoredTest]
) -> tuple[SetResult, ...]:
    """Results of scored tests; needs no device."""
    rows = []
    for copies, test, one in zip(job.design.copies, planned, scored, strict=False):
        result = order_result(test, one, primary=False, pretests=(), copies=copies)
        numbers = result.numbers
        rows.append(
            SetResult(
                name=result.benchmark,
                copies=copies,
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
        sets=planted_rows(design, model),
    )


def _n_parameters(decoder: Any) -> int:
    import jax
    from flax import nnx

    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))


def _last_loss(losses: np.ndarray) -> float:
    loss = float(losses[-_LAST_STEPS:].mean())
    if not np.isfinite(loss):
        raise DivergedError(
            f"the loss is not finite from step {int(np.isfinite(losses).sum()) + 1} on"
        )
    return loss
