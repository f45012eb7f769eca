"""Train and test the models of a population: all that their results follow from.

Dimension key
    M  models
    R  rows of a stream
    T  targets a row
    N  steps
"""

import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxcontam.errors import InputError
from jaxcontam.orders.methods import ADJACENCY, order_method
from jaxcontam.orders.order_test import PlannedTest, ScoredTest, plan_test
from jaxcontam.proof.test_row import TestRow
from jaxcontam.stats.pair_test import adjacency_test
from train.audits import AUDIT_NUMBERS
from train.population_device import (
    score_population_tests,
    stacked,
    train_scanned,
    train_together,
)
from train.population_plan import Design, PlannedModel, Texts, plan_model

# The final loss is the mean over this many steps.
_LAST_STEPS = 50


class DivergedError(ArithmeticError):
    """A model's loss is not finite."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that a process needs to train any model of a population.

    Attributes:
        design: What the models share.
        out: Folder of the population.
        test: Method that tests every set, or None.
        weights: Whether models, sets and streams are kept.
        code: Git commit, for manifests.
        sources: `source_digest` of what trains and tests.
        tokenizer: A transformers fast tokenizer, as models are saved with it.
        texts: Background and pool; processes share the background's files.
        tokenizer_digest: SHA-256 of the tokenizer's JSON.
        pool_digest: Digest of the pool, in its order.
        device: What computes: `scan` or `vmap`, and on which kind of device.
    """

    design: Design
    out: Path
    test: str | None
    weights: bool
    code: str | None
    sources: str
    tokenizer: Any
    texts: Texts
    tokenizer_digest: str
    pool_digest: str
    device: str

    @property
    def is_scan(self) -> bool:
        """Whether each process trains one model after another, by a scan."""
        return self.device.startswith("scan")

    def folder(self, seed: int) -> Path:
        """Folder of one model."""
        return self.out / f"model-{seed}"

    def key(self, seed: int) -> str:
        """Digest of all inputs of a model."""
        parts = [
            dataclasses.asdict(self.design),
            seed,
            self.test,
            self.weights,
            self.sources,
            self.texts.documents.corpus_digest,
            self.texts.documents.digest,
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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TrainedModel:
    """A trained model, scored but not yet analysed or written.

    Attributes:
        seed: Its seed.
        losses: (n_steps,) float32, nats per token.
        scored: Scores of its tests, or why they cannot be scored.
        weights: Leaves of the decoder's state, in host memory.
        train_seconds: Its share of the wall time of planning and training.
        score_seconds: Its share of the wall time of scoring.
        cpu_seconds: Its share of the process's CPU time.
    """

    seed: int
    losses: np.ndarray
    scored: list[ScoredTest] | InputError
    weights: list[np.ndarray]
    train_seconds: float
    score_seconds: float
    cpu_seconds: float


def train_models(job: Job, seeds: Sequence[int]) -> list[TrainedModel]:
    """Train and score the models of some seeds."""
    start, cpu = time.monotonic(), time.process_time()
    config, texts = job.design.config, job.texts
    models = [plan_model(job.design, texts, seed=seed) for seed in seeds]
    if job.is_scan:
        (model,) = models
        decoder, losses_N = train_scanned(
            config, model.rows, seed=model.seed, first_id=texts.prefix_id
        )
        graphdef, state = nnx.split(decoder)
        states, losses_MN = stacked([state]), losses_N[None]
    else:
        rows_MRT = np.stack([model.rows for model in models])
        graphdef, states, losses_MN = train_together(
            config, rows_MRT, seeds=seeds, first_id=texts.prefix_id
        )
    trained = time.monotonic()
    scored: list[list[ScoredTest] | InputError] = [[] for _ in models]
    if job.test is not None:
        scored = score_population_tests(
            [plan_tests(job, model) for model in models],
            graphdef,
            states,
            context=config.decoder.context,
            side_by_side=None if job.is_scan else True,
        )
    leaves = jax.device_get(jax.tree.leaves(states))
    share = 1 / len(set(seeds))
    shares = (
        (trained - start) * share,
        (time.monotonic() - trained) * share,
        (time.process_time() - cpu) * share,
    )
    return [
        TrainedModel(
            seed, losses_MN[m], scored[m], [leaf[m] for leaf in leaves], *shares
        )
        for seed, m in {seed: m for m, seed in enumerate(seeds)}.items()
    ]


def trained_together(
    job: Job, chunks: Sequence[Sequence[int]]
) -> Iterator[TrainedModel]:
    """Train and score models chunk by chunk, those of a chunk side by side."""
    for chunk in chunks:
        # A last chunk of another size would be another program to compile.
        padding = [chunk[-1]] * (len(chunks[0]) - len(chunk))
        yield from train_models(job, [*chunk, *padding])


def plan_tests(job: Job, model: PlannedModel) -> list[PlannedTest]:
    """The test of every set of a model."""
    assert job.test is not None
    return [
        plan_test(
            planned.benchmark,
            encoded,
            order_method(job.test),
            prefix_id=job.texts.prefix_id,
            context=job.design.config.decoder.context,
            seed=model.seed,
        )
        for planned, encoded in zip(model.sets, model.encoded, strict=True)
    ]


def set_results(
    job: Job, planned: Sequence[PlannedTest], scored: Sequence[ScoredTest]
) -> tuple[SetResult, ...]:
    """Results of scored tests; needs no device."""
    rows = []
    for copies, test, one in zip(job.design.copies, planned, scored, strict=True):
        result = test.result(
            one, primary=False, pretests=(), method=_brief(test.method)
        )
        rows.append(
            SetResult(
                name=result.benchmark,
                copies=copies,
                method=result.method,
                n_examples=result.n_examples,
                n_strata=result.n_strata,
                **{name: getattr(result.numbers, name) for name in AUDIT_NUMBERS},
            )
        )
    return tuple(rows)


def _brief(method: TestRow) -> TestRow:
    """A test without what `SetResult` has no field for, most of its time."""
    if method is not ADJACENCY:
        return method
    analyse = functools.partial(adjacency_test, brief=True)
    return dataclasses.replace(ADJACENCY, analyse=analyse, locates=False)


def n_parameters(decoder: Any) -> int:
    """Weights, tied ones counted once."""
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
