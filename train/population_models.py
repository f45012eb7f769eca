"""Models of a population: planned, trained, tested. All that their results follow from.

The sets of a model are disjoint samples of one pool of examples, each in random order:
at 0 copies the null hypothesis of every order test holds by construction, whatever the
examples are and wherever else they occur.

On a CPU models come one after the other, which keeps its caches warm; on an
accelerator, which one small model leaves idle, side by side, over all devices. Both
forms of training call `training_step`: a scan over the steps is faster than one call a
step. The head is applied at scored places alone, as for a single model.

Dimension key
    M  models
    E  examples of a set
    R  rows of a stream
    N  steps
    B  rows a step
    T  targets a row, or ids of a continuation
    I  prefixes of a batch, of each model
    P  ids of a prefix
    K  continuations of each prefix
"""

import collections
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, PartitionSpec
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import hardware
from jaxcontam.orders.methods import ADJACENCY, order_method
from jaxcontam.orders.order_test import PlannedTest, ScoredTest, plan_test, unscorable
from jaxcontam.proof.test_row import TestRow
from jaxcontam.scoring.kernel import score_continuations
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.pair_plan import PairGroup, PairPlan
from jaxcontam.scoring.pair_scorer import (
    PairBatch,
    PairScores,
    by_continuation,
    groups_by_length,
    pair_inputs,
    pair_values,
)
from jaxcontam.scoring.run_batches import NonFiniteScoreError, bucket_lengths
from jaxcontam.stats.pair_test import adjacency_test
from train.audits import AUDIT_NUMBERS
from train.config import Config
from train.plant import PlannedSet, Stream, When, build_stream, training_order
from train.step import adamw, training_step
from train.tokens import (
    Documents,
    TokenCache,
    as_cache,
    choose_documents,
    prefix_id,
    train_tokenizer,
)

# Each device call has overhead, which this many steps of `at_once` share.
_STEPS_A_CALL = 16
# Calls in flight: the host prepares one while the device works on another.
_AHEAD = 1
# The final loss is the mean over this many steps.
_LAST_STEPS = 50


class DivergedError(ArithmeticError):
    """A model's loss is not finite."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What the models of a population share.

    Attributes:
        name: Prefix of the sets' names.
        config: Model and batch.
        n_examples: Examples in each set.
        copies: Duplication count of each set.
        n_steps: Training steps; background fills what the sets leave.
        max_example_tokens: Cut of an example, separator included.
        separator: Text after each example.
        when: When the copies of each set are trained on; none: at random.
    """

    name: str
    config: Config
    n_examples: int
    copies: tuple[int, ...]
    n_steps: int
    max_example_tokens: int
    separator: str = "\n"
    when: tuple[When, ...] = ()

    def __post_init__(self) -> None:
        if self.when and len(self.when) != len(self.copies):
            raise ValueError(
                f"when must be given for {len(self.copies)} sets, got {len(self.when)}"
            )

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
    """What models of one vocabulary are trained and tested on.

    Attributes:
        tokenizer: Adds nothing of its own; see `plain_tokenizer`.
        prefix_id: Before each document and each copy.
        documents: Background, tokenised once for all models.
        pool: Examples that sets are sampled from, no two alike.
        encoded: Their ids.
    """

    tokenizer: Tokenizer
    prefix_id: int
    documents: TokenCache
    pool: tuple[str, ...]
    encoded: Encoded


def read_pool(
    tokenizer: Tokenizer,
    prefix_id: int,
    documents: TokenCache,
    pool: Sequence[str],
    *,
    max_example_tokens: int,
    separator: str = "\n",
) -> Texts:
    """Background and pool together, the pool encoded.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    encoded = encode_examples(
        tokenizer, pool, separator=separator, max_example_tokens=max_example_tokens
    )
    return Texts(tokenizer, prefix_id, documents, tuple(pool), encoded)


def texts_in_memory(
    documents: Sequence[str], pool: Sequence[str], design: Design
) -> Texts:
    """Train a tokenizer on the background, and encode it and the pool.

    The same texts give the same tokenizer. For studies; `train.population` keeps what
    it tokenised on disk.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    tokenizer = train_tokenizer(documents, design.config.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    return read_pool(
        plain,
        prefix_id(tokenizer),
        as_cache(documents, plain),
        pool,
        max_example_tokens=design.max_example_tokens,
        separator=design.separator,
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """One model before its training.

    Attributes:
        seed: Seed of sets, stream, weights and tests.
        sets: Its sets, one a duplication count.
        encoded: Their ids.
        stream: Background and copies.
        rows: (R, T + 1) int32 ids, exactly the design's steps.
        starts: (R,) where each row starts in the stream.
    """

    seed: int
    sets: tuple[PlannedSet, ...]
    encoded: tuple[Encoded, ...]
    stream: Stream
    rows: np.ndarray
    starts: np.ndarray


def draw_sets(design: Design, pool: Sequence[str], *, seed: int) -> list[np.ndarray]:
    """Indices of the examples of each set, in a seeded random order; no one twice.

    Raises:
        InputError: If the pool is too small.
    """
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
    """Sample the sets, build the stream, cut it into rows.

    Raises:
        InputError: If there are too few examples or documents.
    """
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
            when=when,
        )
        for name, copies, when, part in zip(
            design.set_names,
            design.copies,
            design.when or ("uniform",) * len(design.copies),
            members,
            strict=True,
        )
    )
    encoded = tuple(
        Encoded(
            tuple(texts.encoded.ids[i] for i in part),
            texts.encoded.separator,
            texts.encoded.n_cut_ids[part],
        )
        for part in members
    )
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
        timed=stream.timed,
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
    order = choose_documents(cache.lengths, budget=n_ids, seed=seed)
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


def train_scanned(
    config: Config, rows_RT: np.ndarray, *, seed: int, first_id: int | None = None
) -> tuple[Decoder, np.ndarray]:
    """Train a decoder on each row once, in one call.

    Models of one config and one number of steps share what is compiled, so a
    population should cut its rows to one number. The same seed and rows give the same
    weights.

    Args:
        config: Shape, batch and learning rate.
        rows_RT: (R, T + 1) int32 ids, in the order of training.
        seed: Seeds the weights.
        first_id: As of `train.loop.train`.

    Returns:
        The decoder and the loss of each step, nats per token.
    """
    graphdef, params = nnx.split(Decoder(config.decoder, rngs=nnx.Rngs(seed)))
    rows_NBT = _batches(config, rows_RT)
    train = _compiled_scan(graphdef, config, len(rows_NBT), first_id)
    params, losses_N = train(params, rows_NBT)
    return nnx.merge(graphdef, params), np.asarray(losses_N)


def train_together(
    config: Config,
    rows_MRT: np.ndarray,
    *,
    seeds: Sequence[int],
    first_id: int | None = None,
) -> tuple[nnx.GraphDef, nnx.State, np.ndarray]:
    """Train models side by side, each on its own rows, in one call.

    As `train_scanned` for each seed but for rounding. Memory grows with the number of
    models; over several devices it is split, and the last models are trained twice
    where their number does not divide.

    Args:
        config: Shape, batch and learning rate.
        rows_MRT: (M, R, T + 1) int32 ids of each model.
        seeds: Seed of each model's weights.
        first_id: As of `train.loop.train`.

    Returns:
        The graph, weights with an axis of models in front, and (M, N) losses.
    """
    if len(seeds) != len(rows_MRT):
        raise ValueError(f"seeds must be {len(rows_MRT)}, got {len(seeds)}")
    mesh = models_mesh()
    M = len(seeds)
    padded = [*range(M), *[M - 1] * (-M % mesh.size)]
    rows_MNBT = np.stack([_batches(config, rows_MRT[m]) for m in padded])
    graphdef = nnx.split(Decoder(config.decoder, rngs=nnx.Rngs(0)))[0]
    train = _compiled_together(graphdef, config, rows_MNBT.shape[1], mesh, first_id)
    keys = [jax.random.key_data(jax.random.key(seeds[m])) for m in padded]
    params, losses_MN = train(np.stack(jax.device_get(keys)), rows_MNBT)
    return graphdef, jax.tree.map(lambda x: x[:M], params), np.asarray(losses_MN)[:M]


def _batches(config: Config, rows_RT: np.ndarray) -> np.ndarray:
    """(N, B, T + 1) of whole batches."""
    R, width = rows_RT.shape
    B = config.batch_rows
    if R < B:
        raise ValueError(f"rows must fill a batch of {B}, got {R}")
    return rows_RT[: R // B * B].reshape(R // B, B, width)


def _run(
    graphdef: nnx.GraphDef,
    config: Config,
    n_steps: int,
    first_id: int | None,
    params: nnx.State,
    rows_NBT: jax.Array,
) -> tuple[nnx.State, jax.Array]:
    """All steps of one model."""
    optimizer = adamw(config.optimizer, n_steps, params)
    isolated_id = first_id if config.isolate_documents else None

    def step(carry: tuple[Any, Any], batch_BT: jax.Array):
        params, opt_state, metrics = training_step(
            graphdef,
            optimizer,
            *carry,
            batch_BT,
            compute=config.compute,
            first_id=isolated_id,
        )
        return (params, opt_state), metrics.loss

    start = (params, optimizer.init(params))
    (params, _), losses_N = jax.lax.scan(step, start, rows_NBT)
    return params, losses_N


@functools.lru_cache(maxsize=8)
def _compiled_scan(
    graphdef: nnx.GraphDef, config: Config, n_steps: int, first_id: int | None
) -> Callable[..., tuple[nnx.State, jax.Array]]:
    """(weights, rows_NBT) -> weights and losses of one model."""
    run = functools.partial(_run, graphdef, config, n_steps, first_id)
    return jax.jit(run, donate_argnums=0)


@functools.lru_cache(maxsize=8)
def _compiled_together(
    graphdef: nnx.GraphDef,
    config: Config,
    n_steps: int,
    mesh: Mesh,
    first_id: int | None,
) -> Callable[..., tuple[nnx.State, jax.Array]]:
    """(key data of each model, rows_MNBT) -> weights and losses of every model."""
    on = hardware()

    def one(key: jax.Array, rows_NBT: jax.Array):
        # Initialised on the device: a call per model would cost more than its training.
        rngs = nnx.Rngs(jax.random.wrap_key_data(key))
        params = nnx.split(Decoder(config.decoder, rngs=rngs, on=on))[1]
        return _run(graphdef, config, n_steps, first_id, params, rows_NBT)

    return _over_models(jax.vmap(one), mesh)


def score_population(
    graphdef: nnx.GraphDef,
    states: nnx.State,
    groups: Sequence[Sequence[PairGroup]],
    *,
    context: int,
    batch_tokens: int | None = None,
    side_by_side: bool | None = None,
) -> list[PairScores | NonFiniteScoreError]:
    """Score the pairs of every model, as `PairScorer` does for one.

    Args:
        graphdef: Graph definition of the decoder, from `nnx.split`.
        states: Weights with an axis of M models in front; see `stacked`.
        groups: Pairs of each model.
        context: Tokens that the models read at once.
        batch_tokens: Tokens that a device scores side by side; None chooses.
        side_by_side: Whether models are; None is the platform's better way.

    Returns:
        For each model its scores, or the error that they raise: a model that diverged
        does not cost the others theirs.
    """
    M = jax.tree.leaves(states)[0].shape[0]
    if len(groups) != M:
        raise ValueError(f"groups must be given for {M} models, got {len(groups)}")
    if side_by_side is None:
        # One small model leaves an accelerator idle; on a CPU several miss the caches.
        side_by_side = jax.default_backend() != "cpu"
    mesh = models_mesh()
    if M % mesh.size:
        # A lone model, or a last chunk, is not worth a program over all devices.
        mesh = models_mesh(jax.devices()[:1])
    n_tokens = default_batch_tokens() if batch_tokens is None else batch_tokens
    if side_by_side:
        n_tokens //= M // mesh.size
    found: list[list[list[np.ndarray]]] = [[[]] * len(of_model) for of_model in groups]
    errors: dict[int, NonFiniteScoreError] = {}

    def finish(batches: Sequence[PairBatch], logprobs_MIKT: Any) -> None:
        host_MIKT = np.asarray(logprobs_MIKT)
        for m, (batch, of_model) in enumerate(zip(batches, groups, strict=True)):
            try:
                values = pair_values(batch, host_MIKT[m], of_model)
            except NonFiniteScoreError as e:
                errors.setdefault(m, e)
                continue
            for index, value in zip(batch.groups, values, strict=True):
                found[m][index] = by_continuation(of_model[index], value)

    waiting: collections.deque[tuple[Sequence[PairBatch], Any]] = collections.deque()
    for batches in _calls(groups, context, n_tokens):
        inputs = map(pair_inputs, batches, groups)
        score = _compiled_scores(graphdef, mesh, batches[0].at_once, side_by_side)
        arrays = map(np.stack, zip(*inputs, strict=True))
        waiting.append((batches, score(states, *arrays)))
        if len(waiting) > _AHEAD:
            finish(*waiting.popleft())
    for batches, scores in waiting:
        finish(batches, scores)
    return [errors.get(m) or PairScores(found[m], 0) for m in range(M)]


def stacked(states: Sequence[nnx.State]) -> nnx.State:
    """Weights of several models with an axis of models in front."""
    return jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *states)


def models_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """All devices (or those given) on one axis named `models`."""
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh(
        (len(devices),), ("models",), axis_types=(AxisType.Auto,), devices=devices
    )


def _calls(
    groups: Sequence[Sequence[PairGroup]], context: int, batch_tokens: int
) -> Iterator[list[PairBatch]]:
    """Batches that go to the device together, one of each model, all of one shape."""
    buckets = bucket_lengths(context)
    of_models = [groups_by_length(of_model, buckets) for of_model in groups]
    K = max(len(group.continuations) for of_model in groups for group in of_model)
    for length in sorted({length for found in of_models for length in found}):
        at_once = max(1, batch_tokens // (length * (1 + K)))
        n_most = max(len(found.get(length, ())) for found in of_models)
        start = 0
        while start < n_most:
            n_steps = -(-(n_most - start) // at_once)
            # A power of two: the rests of many populations are few shapes to compile.
            n_steps = min(_STEPS_A_CALL, 1 << (n_steps - 1).bit_length())
            n_rows = n_steps * at_once
            yield [
                PairBatch(
                    tuple(found.get(length, ())[start : start + n_rows]),
                    n_rows,
                    K,
                    length,
                    at_once,
                )
                for found in of_models
            ]
            start += n_rows


@functools.lru_cache(maxsize=32)
def _compiled_scores(
    graphdef: nnx.GraphDef, mesh: Mesh, at_once: int, side_by_side: bool
) -> Callable[..., jax.Array]:
    """(states, prefixes, lengths, continuations) -> logprobs_MIKT."""

    def score_one(state: nnx.State, *pairs: jax.Array) -> jax.Array:
        return score_continuations(graphdef, state, *pairs, at_once=at_once)

    def score(states: nnx.State, *pairs: jax.Array) -> jax.Array:
        if side_by_side:
            return jax.vmap(score_one)(states, *pairs)
        return jax.lax.map(lambda one: score_one(*one), (states, *pairs))

    return _over_models(score, mesh)


def _over_models(compute: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Jit what computes models side by side, each device its share of them."""
    models = PartitionSpec("models")
    # Scans start from constants; the check of vma takes them for equal everywhere.
    split = jax.shard_map(
        compute, mesh=mesh, in_specs=models, out_specs=models, check_vma=False
    )
    return jax.jit(split)


def score_population_tests(
    planned: Sequence[Sequence[PlannedTest]],
    graphdef: nnx.GraphDef,
    states: nnx.State,
    *,
    context: int,
    side_by_side: bool | None = None,
) -> list[list[ScoredTest] | InputError]:
    """Score the pair tests of many models of one shape in one call.

    Returns:
        The scored tests of each model, or the error that `score_test` would raise.
    """
    plans: list[list[PairPlan]] = []
    for tests in planned:
        plans.append([])
        for test in tests:
            if not isinstance(test.layout.plan, PairPlan):
                raise ValueError(f"{test.method.name} scores no pairs")
            plans[-1].append(test.layout.plan)
    scored = score_population(
        graphdef,
        states,
        [[group for plan in of_model for group in plan.groups] for of_model in plans],
        context=context,
        side_by_side=side_by_side,
    )
    found: list[list[ScoredTest] | InputError] = []
    for tests, of_model, scores in zip(planned, plans, scored, strict=True):
        begins = np.cumsum([0, *(len(plan.groups) for plan in of_model)])
        if isinstance(scores, NonFiniteScoreError):
            at = int(np.searchsorted(begins, scores.sequence, side="right")) - 1
            group = of_model[at].groups[scores.sequence - int(begins[at])]
            found.append(unscorable(tests[at], group.others[scores.position]))
            continue
        evidence = (
            test.layout.pair_evidence(scores.logprobs[begin:end])
            for test, begin, end in zip(tests, begins, begins[1:], strict=False)
        )
        found.append([ScoredTest(one, 0) for one in evidence])
    return found


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
