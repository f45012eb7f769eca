"""Models of a population: planned, trained, tested. All that their results follow from.

The sets of a model are disjoint samples of one pool of examples, each in random order:
at 0 copies the null hypothesis of every order test holds by construction, whatever the
examples are and wherever else they occur.

Dimension key
    M  models
    E  examples of a set
    R  rows of a stream
    N  steps
    T  targets a row
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.orders.methods import ADJACENCY
from jaxcontam.orders.order_test import PlannedTest, ScoredTest, plan_test
from jaxcontam.stats.pair_test import adjacency_test
from train.audits import AUDIT_NUMBERS
from train.config import Config
from train.data import Corpus
from train.filters import document_filter
from train.plant import PlannedSet, Stream, build_stream, training_order
from train.population_device import (
    score_population_tests,
    stacked,
    train_scanned,
    train_together,
)
from train.tokens import (
    Documents,
    TokenCache,
    choose_documents,
    prefix_id,
    refused,
    tokenised,
    train_tokenizer,
)

# Without what `SetResult` has no field for, most of its time.
_BRIEF = dataclasses.replace(
    ADJACENCY,
    analyse=functools.partial(adjacency_test, brief=True),
    locates=False,
)
# The final loss is the mean over this many steps.
_LAST_STEPS = 50


class DivergedError(ArithmeticError):
    """A model's loss is not finite."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What the models of a population share; background fills what sets leave."""

    name: str
    config: Config
    n_examples: int
    copies: tuple[int, ...]
    n_steps: int

    @property
    def n_tokens(self) -> int:
        """Target tokens of a training run."""
        return self.n_steps * self.config.step_tokens

    @property
    def set_names(self) -> tuple[str, ...]:
        """One per set: its copies, and its number among those with as many."""
        names = []
        for i, copies in enumerate(self.copies):
            again = self.copies[:i].count(copies)
            names.append(f"{self.name}-{copies}" + (f"-{again + 1}" if again else ""))
        return tuple(names)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Background and pool of models of one vocabulary; `refused` are indices."""

    tokenizer: Tokenizer
    prefix_id: int
    documents: TokenCache
    pool: tuple[str, ...]
    encoded: Encoded
    refused: np.ndarray


def read_texts(
    corpus: Corpus | Sequence[str],
    pool: Sequence[str],
    config: Config,
    folder: Path | None = None,
) -> tuple[Any, Texts]:
    """Train a tokenizer on the background, and encode it and the pool.

    Gives the transformers fast tokenizer, the same for the same texts, and the texts.
    Files are tokenised into a cache in `folder`.
    """
    keep = document_filter(config.data)
    tokenizer = train_tokenizer(filter(keep, corpus), config.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    encoded = encode_examples(
        plain,
        pool,
        separator=config.data.separator,
        max_example_tokens=config.data.max_example_tokens,
    )
    return tokenizer, Texts(
        plain,
        prefix_id(tokenizer),
        tokenised(corpus, plain, folder),
        tuple(pool),
        encoded,
        refused(corpus, keep),
    )


def part_of(encoded: Encoded, indices: Sequence[int] | np.ndarray) -> Encoded:
    """Some of the examples, in this order."""
    ids = tuple(encoded.ids[i] for i in indices)
    return Encoded(ids, encoded.separator, encoded.n_cut_ids[np.asarray(indices)])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """One model before its training: (R, T + 1) rows, exactly the design's steps."""

    seed: int
    sets: tuple[PlannedSet, ...]
    encoded: tuple[Encoded, ...]
    stream: Stream
    rows: np.ndarray
    starts: np.ndarray


def draw_sets(design: Design, pool: Sequence[str], *, seed: int) -> list[np.ndarray]:
    """Indices of the examples of each set, in a seeded random order; no one twice."""
    needed = design.n_examples * len(design.copies)
    if len(pool) < needed:
        raise InputError(
            f"the pool has {len(pool)} examples, {needed} needed for "
            f"{len(design.copies)} sets of {design.n_examples}",
            hint="give more files, fewer copies or smaller sets",
        )
    rng = np.random.default_rng([seed, 3])
    sampled = rng.permutation(len(pool))[:needed]
    return np.split(sampled, len(design.copies))


def plan_model(design: Design, texts: Texts, *, seed: int) -> PlannedModel:
    """Sample the sets, build the stream, cut it into rows."""
    members = draw_sets(design, texts.pool, seed=seed)
    sets = tuple(
        PlannedSet(
            benchmark=Benchmark(
                name,
                tuple(texts.pool[i] for i in part),
                (None,) * len(part),
                order_provenance="seeded",
            ),
            copies=copies,
        )
        for name, copies, part in zip(
            design.set_names, design.copies, members, strict=True
        )
    )
    encoded = tuple(part_of(texts.encoded, part) for part in members)
    stream = build_stream(
        _background(design, texts, encoded, seed=seed),
        list(zip(sets, encoded, strict=True)),
        prefix_id=texts.prefix_id,
        seed=seed,
    )
    # One BOS before each document and copy: a few tokens more than the steps take.
    n_rows = design.n_steps * design.config.batch_rows
    starts = training_order(
        len(stream.ids),
        design.config.context,
        seed=seed,
        planted_C2=stream.planted,
        n_trained=n_rows,
    )[:n_rows]
    places = starts[:, None] + np.arange(design.config.context + 1)
    rows = stream.ids[places % len(stream.ids)]
    return PlannedModel(seed, sets, encoded, stream, rows, starts)


def _background(
    design: Design, texts: Texts, encoded: Sequence[Encoded], *, seed: int
) -> Documents:
    """Random documents that fill what planted tokens leave, the last one cut."""
    sizes = [int(ids.lengths.sum()) for ids in encoded]
    n_planted = sum(n * size for n, size in zip(design.copies, sizes, strict=True))
    n_ids = design.n_tokens - n_planted
    if n_ids < 0:
        raise InputError(
            f"the sets' copies are {n_planted:,} tokens, training only "
            f"{design.n_tokens:,}",
            hint="raise --steps or --background-tokens, or plant fewer copies",
        )
    cache = texts.documents
    order = choose_documents(
        cache.lengths, budget=n_ids, seed=seed, without=texts.refused
    )
    documents = cache.chosen(order if n_ids else order[:0])
    surplus = int(documents.lengths.sum()) - n_ids
    if surplus < 0:
        raise InputError(
            f"the corpus has {-surplus:,} tokens too few to fill {design.n_steps:,} "
            "steps",
            hint="give more text, or train for fewer steps",
        )
    documents.lengths[-1:] -= surplus
    return documents


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that a process needs to train any model of a population.

    `sources` digests the code that trains and tests; `device` is `scan` or `vmap`, and
    on which kind of device.
    """

    design: Design
    out: Path
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
    """A trained model, scored (or the reason why not), not yet analysed or written."""

    seed: int
    losses: np.ndarray
    scored: list[ScoredTest] | InputError
    weights: list[np.ndarray]


def train_models(job: Job, seeds: Sequence[int]) -> list[TrainedModel]:
    """Train and score the models of some seeds."""
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
    scored = score_population_tests(
        [plan_tests(job, model) for model in models],
        graphdef,
        states,
        context=config.decoder.context,
        side_by_side=not job.is_scan,
    )
    leaves = jax.device_get(jax.tree.leaves(states))
    return [
        TrainedModel(seed, losses_MN[m], scored[m], [leaf[m] for leaf in leaves])
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
    return [
        plan_test(
            planned.benchmark,
            encoded,
            _BRIEF,
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
        result = test.result(one, primary=False, pretests=())
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


def n_parameters(decoder: Any) -> int:
    """Weights, tied ones counted once."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder)))


def last_loss(losses_N: np.ndarray) -> float:
    """Mean loss of the last steps; DivergedError if one of them is not finite."""
    loss = float(losses_N[-_LAST_STEPS:].mean())
    if not np.isfinite(loss):
        n_finite = int(np.isfinite(losses_N).sum())
        raise DivergedError(f"the loss is not finite from step {n_finite + 1} on")
    return loss
