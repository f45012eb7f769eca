"""One planted model of a power study: trained as in `train.population`, many tests.

The pool that its sets are drawn from are the questions that `eval.python_docs` makes.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eval.study import Records
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import (
    Layout,
    OrderFile,
    PlannedTest,
    TestMethod,
    plan_test,
    score_test,
)
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.processes import (
    Failure,
    in_this_process,
    keep_freed_memory,
    over_processes,
)
from jaxcontam.proof.result import Evidence
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.stats.result import OrderNumbers
from train.plant import PlannedSet
from train.population_device import train_scanned
from train.population_models import (
    Design,
    Texts,
    last_loss,
    n_parameters,
    plan_model,
    texts_in_memory,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Orders to score, and the tests that read their scores.

    Attributes:
        scored: The method whose orders are scored.
        n_orders: m of these orders; None is the method's own.
        readings: Name in the table, and a row of METHODS; each is charged the cost.
        n_shards: Strata of whole orders; None follows the method's rule.
    """

    scored: str
    n_orders: int | None = None
    readings: tuple[tuple[str, str], ...]
    n_shards: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Study(Design):
    """A population and the tests of every set of its models.

    Attributes:
        variants: What is scored and tested.
    """

    variants: tuple[Variant, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One test of one set of one model; numbers as in `OrderNumbers`.

    Attributes:
        passes: Tokens that the model read over those of the examples.
    """

    test: str
    copies: int
    log10_p: float
    effect: float | None
    effect_se: float | None
    mde: float | None
    n_strata: int
    n_orders: int
    passes: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """One model of a population and what the tests said of its sets.

    Attributes:
        design: Name of the population.
        seed: Seeds sets, stream, weights and tests.
        n_examples: Examples of each set.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_canary_tokens: Ids of all copies of all sets.
        loss: Mean of the last steps, nats per token.
        train_seconds: Wall time, compilation included.
        test_seconds: Likewise.
        rows: Every test of every set.
        cpu_seconds: CPU seconds of both.
    """

    design: str
    seed: int
    n_examples: int
    n_parameters: int
    n_tokens: int
    n_canary_tokens: int
    loss: float
    train_seconds: float
    test_seconds: float
    rows: tuple[Outcome, ...]
    cpu_seconds: float = 0.0


def planted_model(study: Study, texts: Texts, *, seed: int) -> ModelRecord:
    """Draw sets, plant them, train, test.

    Raises:
        InputError: If there are too few questions or documents.
        DivergedError: If the loss is not finite at the end.
    """
    start, cpu = time.monotonic(), time.process_time()
    model = plan_model(study, texts, seed=seed)
    decoder, losses = train_scanned(study.config, model.rows, seed=seed)
    loss = last_loss(losses)
    trained = time.monotonic()
    scorer = local_scorer(decoder)
    rows = tuple(
        row
        for one, ids in zip(model.sets, model.encoded, strict=True)
        for row in _test(study, texts, scorer, one, ids, seed)
    )
    return ModelRecord(
        design=study.name,
        seed=seed,
        n_examples=study.n_examples,
        n_parameters=n_parameters(decoder),
        n_tokens=study.n_tokens,
        n_canary_tokens=model.stream.n_canary_ids,
        loss=loss,
        train_seconds=trained - start,
        test_seconds=time.monotonic() - trained,
        rows=rows,
        cpu_seconds=time.process_time() - cpu,
    )


def _test(
    study: Study,
    texts: Texts,
    scorer: Scorer,
    planned: PlannedSet,
    encoded: Encoded,
    seed: int,
) -> list[Outcome]:
    """Every variant on one set, through the code that audits run."""
    rows = []
    for variant in study.variants:
        test = plan_test(
            planned.benchmark,
            encoded,
            method_of(variant),
            prefix_id=texts.prefix_id,
            context=study.config.decoder.context,
            seed=seed,
            n_orders=variant.n_orders,
        )
        evidence = score_test(test, scorer).evidence
        passes = n_read(test.layout) / int(encoded.lengths.sum())
        rows += [
            _outcome(*reading, planned.copies, test, evidence, passes)
            for reading in variant.readings
        ]
    return rows


def method_of(variant: Variant) -> TestMethod:
    """The row of METHODS, with the variant's strata in place of its own."""
    method = order_method(variant.scored)
    if variant.n_shards is not None and isinstance(method, OrderMethod):
        n_shards = variant.n_shards

        def strata(file: OrderFile, n_orders: int) -> list[np.ndarray]:
            return np.array_split(np.arange(file.n_examples), n_shards)

        # Few shards are longer than the context.
        return dataclasses.replace(method, strata=strata, windowed=True)
    return method


def n_read(layout: Layout) -> int:
    """Tokens that the model reads; a prefix counts once, however often it is shared."""
    prefixes = 0
    if isinstance(layout.plan, PairPlan):
        prefixes = sum(len(group.prefix) for group in layout.plan.groups)
    return layout.n_targets + prefixes


def _outcome(
    name: str,
    method: str,
    copies: int,
    test: PlannedTest,
    evidence: Evidence,
    passes: float,
) -> Outcome:
    """One test of scores that may be another method's."""
    numbers: OrderNumbers = order_method(method).numbers(
        evidence,
        grouped=False,
        seed=test.seed,
        content_digest=test.benchmark.content_digest,
    )
    return Outcome(
        test=name,
        copies=copies,
        log10_p=numbers.log10_p,
        effect=numbers.effect,
        effect_se=numbers.effect_se,
        mde=numbers.mde,
        n_strata=test.layout.design.n_strata,
        n_orders=test.layout.n_orders,
        passes=passes,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process must know to make any model.

    Attributes:
        records: Where each model's record is kept.
        documents: Background texts.
        questions: The pool that sets are drawn from.
        corpus: Digest of both.
    """

    records: Records
    documents: tuple[str, ...]
    questions: tuple[str, ...]
    corpus: str

    def finished(self, study: Study, seed: int) -> ModelRecord | None:
        """The record of a model that the same inputs and, if asked, code made."""
        fields = self.records.read(f"{study.name}-{seed}", *self._inputs(study, seed))
        return None if fields is None else record_of(fields)

    def keep(self, study: Study, record: ModelRecord) -> None:
        """Write a model's record."""
        inputs = self._inputs(study, record.seed)
        name = f"{study.name}-{record.seed}"
        self.records.write(name, dataclasses.asdict(record), *inputs)

    def _inputs(self, study: Study, seed: int) -> tuple[Any, ...]:
        return dataclasses.asdict(study), seed, self.corpus


def record_of(fields: dict[str, Any]) -> ModelRecord:
    """A record from the fields of its file."""
    names = {field.name for field in dataclasses.fields(ModelRecord)}
    known = {name: value for name, value in fields.items() if name in names}
    rows = tuple(Outcome(**row) for row in known.pop("rows"))
    return ModelRecord(rows=rows, **known)


Task = tuple[Study, int]
"""A population, and the seed of one of its models."""


def made(
    job: Job, tasks: Sequence[Task], *, n_processes: int
) -> Iterator[tuple[Task, ModelRecord | Failure]]:
    """Make models; each writes its record before it is told of.

    A population's models stay together, so that a process compiles once for many.
    """
    if n_processes == 1:
        yield from in_this_process(open_maker, job, tasks)
        return
    n_processes = min(n_processes, len(tasks))
    yield from over_processes(open_maker, job, tasks, n_processes=n_processes)


def open_maker(job: Job) -> Callable[[Task], ModelRecord]:
    """What a process does first; returns what makes a model."""
    from jaxcontam.scoring.identity import keep_compiled

    keep_freed_memory()
    keep_compiled()
    texts: dict[tuple[int, int, str], Texts] = {}

    def make(task: Task) -> ModelRecord:
        study, seed = task
        vocab_size = study.config.decoder.vocab_size
        kind = (vocab_size, study.max_example_tokens, study.separator)
        if kind not in texts:
            texts[kind] = texts_in_memory(job.documents, job.questions, study)
        record = planted_model(study, texts[kind], seed=seed)
        job.keep(study, record)
        return record

    return make
