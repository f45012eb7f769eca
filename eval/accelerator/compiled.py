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
from train.dry_run.absent import absent_devices, compiled_for
from train.dry_run.estimate import program_lines
from train.dry_run.hardware import Machine
from train.dry_run.program import read_program
from train.step import Compute, adamw, training_step

# As users get them: tokens of a batch, of which pairs take prefixes with this many
# continuations of this length.
_BATCH_TOKENS = 16_384
_N_CONTINUATIONS, _LENGTH = 8, 128
_ROUNDED = ("score_124m", "score_1.4b", "pairs_1.4b", "train_124m", "train_1.4b")
CASES = (*_ROUNDED, *(f"{name}_float32" for name in _ROUNDED))


def compile_cases(names: Sequence[str], on: Machine, out: Path) -> dict[str, Any]:
    """Compile for one chip, print, write to compiled-CHIP.json; counts by case."""
    device, found = absent_devices(on)[0], {}
    for name in names:
        compiled = compiled_case(name, device)
        memory, program = compiled.memory_analysis(), read_program(compiled.as_text())
        n_bytes = memory.temp_size_in_bytes
        found[name] = {"temporary_bytes": n_bytes, **dataclasses.asdict(program)}
        write_json(out / f"compiled-{on.chip.name}.json", found)
        say(f"{name} on {on.chip.name}, temporaries {1e-9 * n_bytes:.2f} GB")
        for line in program_lines(program, subject_of(name).config.n_layers):
            say(line)
    return found


def compiled_case(name: str, device: Any) -> Any:
    """Compile a case for a device that is absent."""
    chosen, work = subject_of(name), name.split("_")[0]
    dtype = "float32" if name.endswith("_float32") else "bfloat16"
    decoder = functools.partial(
        random_decoder,
        chosen.config,
        dtype="float32" if work == "train" else dtype,
        on=hardware_of(device),
    )
    graphdef, state = nnx.split(nnx.eval_shape(decoder))
    T = chosen.config.context
    if work == "score":
        step = functools.partial(score_tokens, graphdef, moments=False)
        given = (state, *[_ids(_BATCH_TOKENS // T, T)] * 2)
    elif work == "pairs":
        K, L = _N_CONTINUATIONS, _LENGTH
        n = _BATCH_TOKENS // (L * (1 + K))
        step = functools.partial(score_continuations, graphdef, at_once=n)
        given = (state, _ids(4 * n, L), _ids(4 * n), _ids(4 * n, K, L))
    else:
        optimizer = adamw(1e-3, 1000, state)
        compute = Compute(dtype=dtype, remat=chosen.remat, n_micro=chosen.n_micro)
        step = functools.partial(training_step, graphdef, optimizer, compute=compute)
        moments = jax.eval_shape(optimizer.init, state)
        given = (state, moments, _ids(chosen.n_rows, T + 1))
    there = jax.tree.map(
        lambda leaf: leaf.update(sharding=SingleDeviceSharding(device)), given
    )
    jitted = jax.jit(step, donate_argnums=(0, 1) if work == "train" else ())
    return compiled_for(jitted.trace(*there).lower(), device)


def subject_of(name: str) -> Any:
    """The shape that a case is of."""
    return subject(name.split("_")[1], tiny=False)


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "int32")
