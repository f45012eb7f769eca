"""What a device's own compiler makes of scoring and training, without the device."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import SingleDeviceSharding

from eval.accelerator.subjects import random_decoder, subject
from eval.study import say, write_json
from jaxcontam.models.fused_attention import hardware_of
from jaxcontam.scoring.kernel import score_tokens
from jaxcontam.scoring.pairs import score_continuations
from train.hardware import absent_devices, compiled_for, machine
from train.program import program_lines, read_program
from train.step import Compute, adamw, training_step

# As users get them: 16,384 tokens of a batch, and pairs with K continuations of L ids.
_BATCH_TOKENS, K, L = 16_384, 8, 128
_ROUNDED = ("score_124m", "score_1.4b", "pairs_1.4b", "train_124m", "train_1.4b")
CASES = (*_ROUNDED, *(f"{name}_float32" for name in _ROUNDED))


def compile_cases(names: Sequence[str], chip: str, out: Path) -> dict[str, Any]:
    """Compile for one chip, print, write to compiled-CHIP.json; counts by case."""
    device, found = absent_devices(machine(f"{chip}-1"))[0], {}
    for name in names:
        compiled = compiled_case(name, device)
        n_bytes = compiled.memory_analysis().temp_size_in_bytes
        program = read_program(compiled.as_text())
        found[name] = {"temporary_bytes": n_bytes, **dataclasses.asdict(program)}
        write_json(out / f"compiled-{chip}.json", found)
        say(f"{name} on {chip}, temporaries {1e-9 * n_bytes:.2f} GB")
        n_layers = subject(name.split("_")[1], tiny=False).config.n_layers
        say("\n".join(program_lines(program, n_layers)))
    return found


def compiled_case(name: str, device: Any) -> Any:
    """Compile a case for a device that is absent."""
    work, size, *_ = name.split("_")
    chosen = subject(size, tiny=False)
    dtype = "float32" if name.endswith("_float32") else "bfloat16"
    of_weights, on = "float32" if work == "train" else dtype, hardware_of(device)
    decoder = functools.partial(random_decoder, chosen.config, dtype=of_weights, on=on)
    graphdef, state = nnx.split(nnx.eval_shape(decoder))
    T = chosen.config.context
    ids = functools.partial(jax.ShapeDtypeStruct, dtype="int32")
    if work == "score":
        step = functools.partial(score_tokens, graphdef, moments=False)
        given = (state, *[ids((_BATCH_TOKENS // T, T))] * 2)
    elif work == "pairs":
        n = _BATCH_TOKENS // (L * (1 + K))
        step = functools.partial(score_continuations, graphdef, at_once=n)
        given = (state, ids((4 * n, L)), ids((4 * n,)), ids((4 * n, K, L)))
    else:
        optimizer = adamw(1e-3, 1000, state)
        compute = Compute(dtype=dtype, remat=chosen.remat, n_micro=chosen.n_micro)
        step = functools.partial(training_step, graphdef, optimizer, compute=compute)
        moments = jax.eval_shape(optimizer.init, state)
        given = (state, moments, ids((chosen.n_rows, T + 1)))
    placed = SingleDeviceSharding(device)
    there = jax.tree.map(lambda leaf: leaf.update(sharding=placed), given)
    jitted = jax.jit(step, donate_argnums=(0, 1) if work == "train" else ())
    return compiled_for(jitted.trace(*there).lower(), device)
