"""Training and pair tests of many models of one shape, in one call each.

On a CPU models come one after the other, which keeps its caches warm; on an
accelerator, which one small model leaves idle, side by side, over all devices. Both
forms of training scan `Step.update`: a scan over the steps is faster than one call a
step. The head is applied at scored places alone, as for a single model.

Dimension key
    M  models
    R  rows of a stream
    N  steps
    B  rows a step
    T  targets a row, or ids of a continuation
    I  prefixes of a batch, of each model
    P  ids of a prefix
    K  continuations of each prefix
"""

import collections
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, PartitionSpec

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import hardware
from jaxcontam.orders.order_test import PlannedTest, ScoredTest, unscorable
from jaxcontam.scoring.kernel import score_continuations
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.pair_plan import PairGroup, PairPlan
from jaxcontam.scoring.pair_scorer import (
    PairBatch,
    PairScores,
    by_continuation,
    groups_by_length,
    padded_lengths,
    pair_inputs,
    pair_values,
    sizes_of,
)
from jaxcontam.scoring.run_batches import NonFiniteScoreError, bucket_lengths
from train.config import Config
from train.step import build_step, fresh_decoder, residuals_scaled

# Each device call has overhead, which this many steps of `at_once` share.
_STEPS_A_CALL = 16
# Calls in flight: the host prepares one while the device works on another.
_AHEAD = 1


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
) -> tuple[nnx.GraphDef, nnx.State, np.ndarray]:
    """Train models side by side, each on its own rows, in one call.

    As `train_scanned` for each seed but for rounding. Memory grows with the number of
    models; over several devices it is split, and the last models are trained twice
    where their number does not divide. Gives the graph, weights with an axis of models,
    and (M, N) losses.
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

    return _over_models(jax.vmap(one), mesh)


def score_population(
    graphdef: nnx.GraphDef,
    states: nnx.State,
    groups: Sequence[Sequence[PairGroup]],
    *,
    context: int,
    batch_tokens: int | None = None,
    side_by_side: bool = False,
) -> list[PairScores | NonFiniteScoreError]:
    """Score the pairs of every model, as `PairScorer` does for one.

    `states` has an axis of M models in front; see `stacked`. Gives for each model its
    scores, or their error: one that diverged does not cost the others theirs.
    """
    M = jax.tree.leaves(states)[0].shape[0]
    if len(groups) != M:
        raise ValueError(f"groups must be given for {M} models, got {len(groups)}")
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
    of_models = [groups_by_length(sizes_of(own), buckets) for own in groups]
    sizes = sizes_of([group for of_model in groups for group in of_model])
    K = int(sizes.n_continuations.max())
    for bucket in sorted({bucket for found in of_models for bucket in found}):
        P, T = padded_lengths(sizes, bucket)
        at_once = max(1, batch_tokens // (P + K * T))
        n_most = max(len(found.get(bucket, ())) for found in of_models)
        start = 0
        while start < n_most:
            n_steps = -(-(n_most - start) // at_once)
            # A power of two: the rests of many populations are few shapes to compile.
            n_steps = min(_STEPS_A_CALL, 1 << (n_steps - 1).bit_length())
            n_rows = n_steps * at_once
            yield [
                PairBatch(
                    tuple(found.get(bucket, ())[start : start + n_rows]),
                    n_rows,
                    K,
                    P,
                    T,
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
    side_by_side: bool = False,
) -> list[list[ScoredTest] | InputError]:
    """Score the pair tests of many models in one call: tests, or an error, of each."""
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
