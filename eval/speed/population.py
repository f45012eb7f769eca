"""Which form trains and scores many small models fastest? Ratios to the plainest one.

Training: a call of the jitted step for each batch; a scan over the steps, called once a
model; the same scans within one call (`lax.map`); models side by side (`vmap`).
Scoring pairs: a scorer a model; all models in one call, in turn or side by side.

Dimension key
    M  models
    N  steps
    B  rows a step
    T  targets a row
"""

import functools
from typing import Any

import jax
import numpy as np
from flax import nnx

from eval.speed.measure import interleaved
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.population import score_population, stacked
from train.population_forms import train_scanned, train_together
from train.presets import PRESETS, Preset
from train.step import adamw, training_step

# Models of a row of the table, steps of each, prefixes of each.
_SIZES = {"full": ((4, 16), 60, 120), "tiny": ((2,), 4, 8)}
# Ids of an example and continuations of each, as in strata of eight.
_EXAMPLE, _OTHERS = 30, 7


def measure_population(rounds: int, *, tiny: bool) -> dict[str, Any]:
    """Seconds of each form and how often it runs while the plainest one does once."""
    preset = PRESETS["pulse" if tiny else "0.16m"]
    counts, n_steps, n_prefixes = _SIZES["tiny" if tiny else "full"]
    return {
        "preset": preset.name,
        "n_steps": n_steps,
        "n_prefixes": n_prefixes,
        "train": {str(M): _training(preset, M, n_steps, rounds) for M in counts},
        "score": {str(M): _scoring(preset, M, n_prefixes, rounds) for M in counts},
    }


def _training(preset: Preset, M: int, n_steps: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(M)
    shape = (M, n_steps * preset.batch_rows, preset.context + 1)
    rows_MRT = rng.integers(preset.decoder.vocab_size, size=shape, dtype=np.int32)
    seeds = range(M)
    step, start = _stepper(preset, n_steps)

    def stepwise() -> np.ndarray:
        last = []
        for m in seeds:
            params, state = start(m)
            losses = []
            for batch_BT in np.split(rows_MRT[m], n_steps):
                params, state, loss = step(params, state, batch_BT)
                losses.append(loss)
            last.append(float(losses[-1]))
        return np.array(last)

    def scanned() -> np.ndarray:
        found = [train_scanned(preset, rows_MRT[m], seed=m)[1] for m in seeds]
        return np.array([losses_N[-1] for losses_N in found])

    def mapped() -> np.ndarray:
        return np.asarray(_mapped(preset, n_steps)(_starts(preset, M), rows_MRT))

    def together() -> np.ndarray:
        return train_together(preset, rows_MRT, seeds=seeds)[2][:, -1]

    ways = {"step": stepwise, "scan": scanned, "map": mapped, "vmap": together}
    timed = interleaved(ways, rounds)
    return {
        "seconds": timed.seconds,
        "tokens_per_second": {
            way: M * n_steps * preset.step_tokens / timed.median(way) for way in ways
        },
        "ratio_to_step": {way: timed.ratio("step", way) for way in ways},
        "largest_difference": max(
            float(np.abs(timed.last[way] - timed.last["step"]).max()) for way in ways
        ),
    }


def _scoring(preset: Preset, M: int, n_prefixes: int, rounds: int) -> dict[str, Any]:
    decoders = [Decoder(preset.decoder, rngs=nnx.Rngs(m)) for m in range(M)]
    graphdef = nnx.split(decoders[0])[0]
    states = stacked([nnx.state(decoder) for decoder in decoders])
    groups = [_groups(preset, n_prefixes, seed=m) for m in range(M)]
    context = preset.decoder.context

    def singly() -> list[list[list[np.ndarray]]]:
        found = []
        for decoder, of_model in zip(decoders, groups, strict=True):
            pairs = local_scorer(decoder).pairs
            assert pairs is not None
            found.append(pairs.logprobs(of_model).logprobs)
        return found

    def in_one_call(side_by_side: bool) -> list[list[list[np.ndarray]]]:
        scored = score_population(
            graphdef, states, groups, context=context, side_by_side=side_by_side
        )
        found = []
        for scores in scored:
            assert not isinstance(scores, Exception)
            found.append(scores.logprobs)
        return found

    timed = interleaved(
        {
            "single": singly,
            "map": lambda: in_one_call(False),
            "vmap": lambda: in_one_call(True),
        },
        rounds,
    )
    n_targets = sum(group.n_targets for of_model in groups for group in of_model)
    return {
        "seconds": timed.seconds,
        "tokens_per_second": {
            way: n_targets / timed.median(way) for way in timed.seconds
        },
        "ratio_to_single": {way: timed.ratio("single", way) for way in timed.seconds},
        "largest_difference": max(
            float(np.abs(_flat(timed.last[way]) - _flat(timed.last["single"])).max())
            for way in timed.seconds
        ),
    }


def _groups(preset: Preset, n_prefixes: int, *, seed: int) -> list[PairGroup]:
    rng = np.random.default_rng(seed)
    vocab_size = preset.decoder.vocab_size

    def ids() -> np.ndarray:
        return rng.integers(vocab_size, size=_EXAMPLE, dtype=np.int32)

    others = tuple(range(1, _OTHERS + 1))
    return [
        PairGroup(ids(), tuple(ids() for _ in others), i, others)
        for i in range(n_prefixes)
    ]


def _flat(scores: list[list[list[np.ndarray]]]) -> np.ndarray:
    return np.concatenate([own for model in scores for group in model for own in group])


@functools.lru_cache(maxsize=1)
def _stepper(preset: Preset, n_steps: int):
    """The jitted step, and what a model of a seed starts from."""
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(0)))
    optimizer = adamw(preset.peak_rate, n_steps, params)
    step = jax.jit(
        functools.partial(training_step, graphdef, optimizer), donate_argnums=(0, 1)
    )

    def start(seed: int):
        params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(seed)))[1]
        return params, optimizer.init(params)

    return step, start


def _starts(preset: Preset, M: int) -> nnx.State:
    """First weights of the models of seeds 0, 1, ..."""
    return stacked(
        [nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(m)))[1] for m in range(M)]
    )


@functools.lru_cache(maxsize=1)
def _mapped(preset: Preset, n_steps: int):
    """(weights of all models, rows_MRT) -> last losses, models in turn in one call."""
    graphdef, params = nnx.split(Decoder(preset.decoder, rngs=nnx.Rngs(0)))
    optimizer = adamw(preset.peak_rate, n_steps, params)

    def train(one):
        params, rows_RT = one

        def step(carry, batch_BT: jax.Array):
            params, state, loss = training_step(
                graphdef, optimizer, carry[0], carry[1], batch_BT
            )
            return (params, state), loss

        rows_NBT = rows_RT.reshape(n_steps, preset.batch_rows, -1)
        _, losses_N = jax.lax.scan(step, (params, optimizer.init(params)), rows_NBT)
        return losses_N[-1]

    return jax.jit(lambda states, rows_MRT: jax.lax.map(train, (states, rows_MRT)))
