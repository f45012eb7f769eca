"""Pair tests of many models of one shape, scored in one call.

On a CPU models are scored one after the other, which keeps the caches warm; on an
accelerator side by side, and over several devices where there are several. The head is
applied at scored places alone, as for a single model.

Dimension key
    M  models
    I  prefixes of a batch, of each model
    P  ids of a prefix
    K  continuations of each prefix
    T  ids of a continuation
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
from jaxcontam.methods.layouts import PairLayout, ScoredTest
from jaxcontam.methods.order_test import PlannedTest, unscorable
from jaxcontam.scoring.batching import bucket_lengths
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import (
    PairBatch,
    PairScores,
    by_continuation,
    groups_by_length,
    pair_inputs,
    pair_values,
)
from jaxcontam.scoring.pairs import score_continuations
from jaxcontam.scoring.run_batches import NonFiniteScoreError

# Each device call has overhead, which this many steps of `at_once` share.
_STEPS_A_CALL = 16
# Calls in flight: the host prepares one while the device works on another.
_AHEAD = 1


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
        groups: Pairs of each model. One list that stands there for every model is sent
            to the device once.
        context: Tokens that the models read at once.
        batch_tokens: Tokens that a device scores side by side; None chooses.
        side_by_side: Whether models are; None is the platform's better way.

    Returns:
        For each model its scores, or the error that they raise: a model that diverged
        does not cost the others theirs.

    Raises:
        ValueError: If there are not as many lists as models, or a group does not fit
            the context.
    """
    M = jax.tree.leaves(states)[0].shape[0]
    if len(groups) != M:
        raise ValueError(f"groups must be given for {M} models, got {len(groups)}")
    if side_by_side is None:
        side_by_side = models_side_by_side()
    mesh = models_mesh()
    if M % mesh.size:
        # A lone model, or a last chunk, is not worth a program over all devices.
        mesh = models_mesh(jax.devices()[:1])
    is_shared = all(of_model is groups[0] for of_model in groups)
    plans = groups[:1] if is_shared else groups
    n_tokens = default_batch_tokens() if batch_tokens is None else batch_tokens
    if side_by_side:
        n_tokens //= M // mesh.size
    found: list[list[list[np.ndarray]]] = [[[]] * len(of_model) for of_model in groups]
    errors: dict[int, NonFiniteScoreError] = {}

    def finish(batches: Sequence[PairBatch], logprobs_MIKT: Any) -> None:
        host_MIKT = np.asarray(logprobs_MIKT)
        for m, of_model in enumerate(groups):
            batch = batches[0] if is_shared else batches[m]
            try:
                values = pair_values(batch, host_MIKT[m], of_model)
            except NonFiniteScoreError as e:
                errors.setdefault(m, e)
                continue
            for index, value in zip(batch.groups, values, strict=True):
                found[m][index] = by_continuation(of_model[index], value)

    waiting: collections.deque[tuple[Sequence[PairBatch], Any]] = collections.deque()
    for batches in _calls(plans, context, n_tokens):
        inputs = [
            pair_inputs(batch, of_model)
            for batch, of_model in zip(batches, plans, strict=True)
        ]
        arrays = inputs[0] if is_shared else map(np.stack, zip(*inputs, strict=True))
        score = _compiled(graphdef, mesh, batches[0].at_once, side_by_side, is_shared)
        waiting.append((batches, score(states, *arrays)))
        if len(waiting) > _AHEAD:
            finish(*waiting.popleft())
    for batches, scores in waiting:
        finish(batches, scores)
    return [errors.get(m) or PairScores(found[m], 0) for m in range(M)]


def stacked(states: Sequence[nnx.State]) -> nnx.State:
    """Weights of several models with an axis of models in front."""
    return jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *states)


def models_side_by_side() -> bool:
    """Whether models are better computed side by side here than in turn.

    On a CPU several models at once miss its caches; on an accelerator one small model
    leaves most of the chip idle.
    """
    return jax.default_backend() != "cpu"


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
def _compiled(
    graphdef: nnx.GraphDef,
    mesh: Mesh,
    at_once: int,
    side_by_side: bool,
    is_shared: bool,
) -> Callable[..., jax.Array]:
    """(states, prefixes, lengths, continuations) -> logprobs_MIKT."""

    def score_one(state: nnx.State, prefixes_IP, lengths_I, continuations_IKT):
        return score_continuations(
            graphdef,
            state,
            prefixes_IP,
            lengths_I,
            continuations_IKT,
            at_once=at_once,
        ).logprobs

    def score(states: nnx.State, *pairs: jax.Array) -> jax.Array:
        if side_by_side:
            axes = (0, *[None if is_shared else 0] * 3)
            return jax.vmap(score_one, in_axes=axes)(states, *pairs)
        if is_shared:
            return jax.lax.map(lambda state: score_one(state, *pairs), states)
        return jax.lax.map(lambda one: score_one(*one), (states, *pairs))

    models = PartitionSpec("models")
    pairs = PartitionSpec() if is_shared else models
    return jax.jit(
        jax.shard_map(
            score,
            mesh=mesh,
            in_specs=(models, pairs, pairs, pairs),
            out_specs=models,
            # Scans start from constants; the check takes them for equal everywhere.
            check_vma=False,
        )
    )


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

    Raises:
        ValueError: If a test scores whole orders.
    """
    layouts: list[list[PairLayout]] = []
    for of_model in planned:
        layouts.append([])
        for test in of_model:
            if not isinstance(test.layout, PairLayout):
                raise ValueError(f"{test.method.name} scores no pairs")
            layouts[-1].append(test.layout)
    scored = score_population(
        graphdef,
        states,
        [
            [group for layout in of_model for group in layout.plan.groups]
            for of_model in layouts
        ],
        context=context,
        side_by_side=side_by_side,
    )
    found: list[list[ScoredTest] | InputError] = []
    for tests, of_model, scores in zip(planned, layouts, scored, strict=True):
        stops = np.cumsum([len(layout.plan.groups) for layout in of_model])
        if isinstance(scores, NonFiniteScoreError):
            at = int(np.searchsorted(stops, scores.sequence, side="right"))
            index = scores.sequence - int(stops[at]) + len(of_model[at].plan.groups)
            example = of_model[at].plan.groups[index].others[scores.position]
            found.append(unscorable(tests[at], example))
            continue
        starts = stops - [len(layout.plan.groups) for layout in of_model]
        found.append(
            [
                ScoredTest(layout.evidence(scores.logprobs[start:stop]), 0)
                for layout, start, stop in zip(of_model, starts, stops, strict=True)
            ]
        )
    return found
