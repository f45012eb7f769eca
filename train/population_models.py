"""Models of a population: planned, trained, tested. All that their results follow from.

The sets of a model are disjoint samples of one pool of examples, each in random order:
at 0 copies the null hypothesis of every order test holds by construction, whatever the
examples are and wherever else they occur.

On a CPU models are trained one after the other, which keeps its caches warm; on an
accelerator, which one small model leaves idle, side by side, over all devices. Both
forms scan `Step.update`: a scan over the steps is faster than one call a step.

Dimension key
    M  models
    E  examples of a set
    R  rows of a stream
    N  steps
    B  rows a step
    T  targets a row
"""

import dataclasses
import functools
import hashlib
import json
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
from jaxcontam.models.decoder import Decoder, abstract_decoder
from jaxcontam.models.fused_attention import hardware
from jaxcontam.orders.methods import ADJACENCY
from jaxcontam.orders.order_test import plan_test, score_test
from jaxcontam.scoring.local import local_scorer
from jaxcontam.stats.pair_test import adjacency_test
from train.audits import AUDIT_NUMBERS
from train.config import Config
from train.data import Corpus
from train.filters import document_filter
from train.plant import PlannedSet, Stream, build_stream, training_order
from train.step import build_step, fresh_decoder, residuals_scaled
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
    """A trained model, not yet tested or written; weights in the tree's order."""

    seed: int
    losses: np.ndarray
    weights: list[np.ndarray]


def train_models(job: Job, seeds: Sequence[int]) -> list[TrainedModel]:
    """Train the models of some seeds."""
    config, first_id = job.design.config, job.texts.prefix_id
    rows = [plan_model(job.design, job.texts, seed=seed).rows for seed in seeds]
    if job.is_scan:
        (seed,), (rows_RT,) = seeds, rows
        decoder, losses_N = train_scanned(config, rows_RT, seed=seed, first_id=first_id)
        weights = jax.device_get(jax.tree.leaves(nnx.state(decoder)))
        return [TrainedModel(seed, losses_N, weights)]
    states, losses_MN = train_together(
        config, np.stack(rows), seeds=seeds, first_id=first_id
    )
    leaves = jax.device_get(jax.tree.leaves(states))
    return [
        TrainedModel(seed, losses_MN[m], [leaf[m] for leaf in leaves])
        for seed, m in {seed: m for m, seed in enumerate(seeds)}.items()
    ]


def trained_together(
    job: Job, chunks: Sequence[Sequence[int]]
) -> Iterator[TrainedModel]:
    """Train models chunk by chunk, those of a chunk side by side."""
    for chunk in chunks:
        # A last chunk of another size would be another program to compile.
        padding = [chunk[-1]] * (len(chunks[0]) - len(chunk))
        yield from train_models(job, [*chunk, *padding])


def train_scanned(
    config: Config, rows_RT: np.ndarray, *, seed: int, first_id: int | None = None
) -> tuple[Decoder, np.ndarray]:
    """Train a decoder on (R, T + 1) rows, each once, in one call; gives all losses.

    Models of one config and one number of steps share what is compiled, so a population
    should cut its rows to one number. The same seed and rows give the same weights.
    """
    decoder = fresh_decoder(config.decoder, seed=seed, mesh=None)
    graphdef, params = nnx.split(decoder)
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
) -> tuple[nnx.State, np.ndarray]:
    """Train models side by side, each on its own rows, in one call.

    As `train_scanned` for each seed but for rounding. Memory grows with the number of
    models; over several devices it is split, and the last models are trained twice
    where their number does not divide. Gives weights with an axis of models and (M, N)
    losses.
    """
    if len(seeds) != len(rows_MRT):
        raise ValueError(f"seeds must be {len(rows_MRT)}, got {len(seeds)}")
    devices, M = jax.devices(), len(seeds)
    mesh = jax.make_mesh((len(devices),), ("models",), axis_types=(AxisType.Auto,))
    padded = [*range(M), *[M - 1] * (-M % mesh.size)]
    rows_MNBT = np.stack([_batches(config, rows_MRT[m]) for m in padded])
    graphdef = nnx.split(Decoder(config.decoder, rngs=nnx.Rngs(0)))[0]
    train = _compiled_together(graphdef, config, rows_MNBT.shape[1], mesh, first_id)
    keys = [jax.random.key_data(jax.random.key(seeds[m])) for m in padded]
    params, losses_MN = train(np.stack(jax.device_get(keys)), rows_MNBT)
    return jax.tree.map(lambda x: x[:M], params), np.asarray(losses_MN)[:M]


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
    of_run = build_step(graphdef, config, n_steps, first_id=first_id)

    def step(carry: tuple[Any, Any], batch_BT: jax.Array):
        params, opt_state, numbers = of_run.update(*carry, batch_BT)
        return (params, opt_state), numbers["loss"]

    start = (params, of_run.optimizer.init(params))
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
        params = residuals_scaled(params, config.decoder)
        return _run(graphdef, config, n_steps, first_id, params, rows_NBT)

    models = PartitionSpec("models")
    # Scans start from constants; the check of vma takes them for equal everywhere.
    split = jax.shard_map(
        jax.vmap(one), mesh=mesh, in_specs=models, out_specs=models, check_vma=False
    )
    return jax.jit(split)


def set_results(
    job: Job, model: PlannedModel, decoder: Decoder
) -> tuple[SetResult, ...]:
    """Test every set of a trained model, as an audit along a run does."""
    scorer, rows = local_scorer(decoder), []
    for planned, encoded in zip(model.sets, model.encoded, strict=True):
        test = plan_test(
            planned.benchmark,
            encoded,
            _BRIEF,
            prefix_id=job.texts.prefix_id,
            context=job.design.config.decoder.context,
            seed=model.seed,
        )
        result = test.result(score_test(test, scorer), primary=False, pretests=())
        rows.append(
            SetResult(
                name=result.benchmark,
                copies=planned.copies,
                method=result.method,
                n_examples=result.n_examples,
                n_strata=result.n_strata,
                **{name: getattr(result.numbers, name) for name in AUDIT_NUMBERS},
            )
        )
    return tuple(rows)


def decoder_of(config: Config, weights: Sequence[np.ndarray]) -> Decoder:
    """The decoder of a `TrainedModel`."""
    graphdef, shapes = nnx.split(abstract_decoder(config.decoder))
    leaves = jax.device_put(list(weights))
    return nnx.merge(graphdef, jax.tree.unflatten(jax.tree.structure(shapes), leaves))


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
