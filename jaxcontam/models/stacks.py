"""Stacks of blocks: layers of one kind have their weights on a common first axis."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxcontam.models.config import DecoderConfig

REUSED = {"reusing_blocks": "blocks", "local_reusing_blocks": "local_blocks"}
"""Stacks whose layers make no keys and values, and that whose last layer's they use."""

STACKS = ("blocks", "delta_blocks", "first_blocks", "local_blocks", *REUSED)
"""Every stack that a decoder may have, in the order in which weights are drawn."""


def layer_stacks(config: DecoderConfig) -> tuple[str, ...]:
    """Name of the stack that each layer is in, the first layer first."""
    if config.delta_layers:
        kinds = {True: "delta_blocks", False: "blocks"}
        return tuple(kinds[is_delta] for is_delta in config.delta_layers)
    if config.local is not None:
        n_own = config.n_layers - config.n_reusing
        return tuple(
            ("local_" if size else "") + ("blocks" if i < n_own else "reusing_blocks")
            for i, size in enumerate(config.windows)
        )
    n_others = config.n_layers - config.n_dense
    return ("first_blocks",) * config.n_dense + ("blocks",) * n_others


def stack_config(config: DecoderConfig, stack: str) -> DecoderConfig:
    """Shape of the blocks of a stack."""
    if stack == "first_blocks":
        return dataclasses.replace(
            config, experts=None, n_dense=0, d_ff=config.d_dense, d_dense=0
        )
    if stack == "blocks" and config.delta is not None:
        return dataclasses.replace(config, delta=None, delta_layers=())
    if (local := config.local) is None:
        return config
    of_all = {"local": None, "local_rope_theta": None, "n_reusing": 0, "d_reusing": 0}
    if stack in REUSED:
        of_all["d_ff"] = config.d_reusing
    if not stack.startswith("local_"):
        return dataclasses.replace(config, windows=(), **of_all)
    return dataclasses.replace(
        config,
        n_kv_heads=local.n_kv_heads,
        head_dim=local.head_dim,
        values_are_keys=False,
        rope_theta=config.local_rope_theta,
        rope_scaling=None,
        windows=(max(size or 0 for size in config.windows),) * config.n_layers,
        **of_all,
    )


def runs(stacks: tuple[str, ...]) -> list[tuple[tuple[str, ...], int]]:
    """Patterns of layers and how often each is repeated, in order.

        a b b b c b b b c    ->    (a) once, (b b b c) twice

    Each run is the shortest pattern of those that reach furthest; a pattern of several
    layers is one that is repeated.
    """
    found = []
    while stacks:
        reach = {1: _repeats(stacks, 1)}
        for period in range(2, len(stacks) // 2 + 1):
            if (n := _repeats(stacks, period)) > 1:
                reach[period] = n * period
        period = max(reach, key=reach.__getitem__)
        found.append((stacks[:period], reach[period] // period))
        stacks = stacks[reach[period] :]
    return found


def _repeats(stacks: tuple[str, ...], period: int) -> int:
    """Number of times that the first `period` layers repeat at the start."""
    n = 1
    while stacks[n * period : (n + 1) * period] == stacks[:period]:
        n += 1
    return n


def scan_runs(
    layers: Mapping[str, Callable[[Any, Any], tuple[Any, Any]]],
    carry: Any,
    inputs: Mapping[str, Any],
    stacks: tuple[str, ...],
    *,
    unroll: bool,
) -> tuple[Any, dict[str, Any]]:
    """Compute all layers in order, with one scan for each of `runs`.

    `layers` are of each stack (carry, inputs of one layer) -> carry, and what it keeps;
    `inputs` its weights and others, layers first. Gives the carry, and what the layers
    of each stack keep. With `unroll` each layer is compiled alone.
    """
    kept: dict[str, list[Any]] = {stack: [] for stack in inputs}
    done = dict.fromkeys(inputs, 0)

    for pattern, n in runs(stacks):
        scanned = {}
        for stack in dict.fromkeys(pattern):
            first, done[stack] = done[stack], done[stack] + n * pattern.count(stack)
            shape = (n, pattern.count(stack)) if len(pattern) > 1 else (n,)
            part = slice(first, done[stack])

            def cut(x: jax.Array, part=part, shape=shape) -> jax.Array:
                x = x if len(x) == part.stop - part.start else x[part]
                return x.reshape(*shape, *x.shape[1:])

            scanned[stack] = jax.tree.map(cut, inputs[stack])

        def step(carry, scanned, pattern=pattern):
            if len(pattern) == 1:
                carry, made = layers[pattern[0]](carry, scanned[pattern[0]])
                return carry, {pattern[0]: made}
            made = {stack: [] for stack in scanned}
            for stack in pattern:
                place = len(made[stack])
                layer = jax.tree.map(lambda x, place=place: x[place], scanned[stack])
                carry, one = layers[stack](carry, layer)
                made[stack].append(one)
            stacked = {
                stack: jax.tree.map(lambda *xs: jnp.stack(xs), *ones)
                for stack, ones in made.items()
            }
            return carry, stacked

        carry, made = jax.lax.scan(step, carry, scanned, unroll=unroll)
        for stack, ones in made.items():
            n_axes = min(2, len(pattern))
            flat = jax.tree.map(lambda x, k=n_axes: x.reshape(-1, *x.shape[k:]), ones)
            kept[stack].append(flat)
    joined = {
        stack: parts[0]
        if len(parts) == 1
        else jax.tree.map(lambda *xs: jnp.concatenate(xs), *parts)
        for stack, parts in kept.items()
    }
    return carry, joined
