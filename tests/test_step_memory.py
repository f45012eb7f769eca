"""A step's memory and messages by formula, against compilers and each other."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxcontam.errors import InputError
from jaxcontam.models.config import gpt2_shape, llama_shape
from train.dry_run import compiled as compiling
from train.dry_run.compiled import compile_elsewhere, has_tpu_compiler
from train.dry_run.hardware import machine
from train.dry_run.memory import step_memory, weight_counts
from train.dry_run.step_time import expected_collectives, step_time
from train.presets import PRESETS, Preset
from train.step import Compute

ROOT = Path(__file__).resolve().parent.parent

_GPT2 = gpt2_shape(vocab_size=5003, d_model=256, n_layers=5, n_heads=4, context=256)
_LLAMA = dataclasses.replace(
    llama_shape(
        vocab_size=4096, d_model=256, n_layers=4, n_heads=8, d_ff=704, context=256
    ),
    n_kv_heads=2,
    tied=False,
)


def _preset(shape, **changes) -> Preset:
    rows = changes.pop("rows", 32)
    return Preset(
        name="test",
        decoder=shape,
        batch_rows=rows,
        peak_rate=1e-3,
        compute=Compute(**changes),
    )


# Preset and devices along `model`, of four in all.
CASES = {
    "gpt2": (_preset(_GPT2, remat=True, rows=64), 2),
    "llama-bf16": (_preset(_LLAMA, dtype="bfloat16", n_micro=2), 4),
}
SLOW_CASES = {
    "copies": (_preset(_GPT2, rows=64), 1),
    "copies-remat": (_preset(_GPT2, remat=True, n_micro=4, rows=64), 1),
    "llama-remat": (_preset(_LLAMA, remat=True, rows=128), 4),
    "llama-keeps": (_preset(_LLAMA, rows=64), 2),
    "gpt2-bf16": (_preset(_GPT2, dtype="bfloat16", remat=True, rows=128), 4),
}

# In a process of its own, since the number of devices is fixed at the first use.
_COMPILE = """
import dataclasses, json, sys
import jax
from tests.test_step_memory import CASES, SLOW_CASES
from train.dry_run.compiled import compile_here
cases = CASES | SLOW_CASES
found = {name: compile_here(cases[name][0], jax.devices(), cases[name][1])
         for name in sys.argv[1:]}
print(json.dumps({k: dataclasses.asdict(v) for k, v in found.items()}))
"""


def _compiled(names):
    from train.dry_run.compiled import environment

    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, *names],
        env={**os.environ, **environment(4), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def compiled():
    return _compiled(CASES)


def _check_memory(name, found):
    preset, model = (CASES | SLOW_CASES)[name]
    ours = step_memory(preset, data=4 // model, model=model)
    rows = 4 * (preset.context + 1) * preset.batch_rows // 4
    # All but two counters of steps, of which there is one each on every device.
    assert ours.state + rows + 8 == found["state_bytes"]
    # What a compiler keeps alive at once is its own choice: within 15 %.
    assert ours.total == pytest.approx(found["peak_bytes"], rel=0.15), name


@pytest.mark.parametrize("name", CASES)
def test_memory_is_what_the_compiler_says(compiled, name):
    _check_memory(name, compiled[name])


@pytest.mark.slow
def test_memory_is_what_the_compiler_says_at_more_shapes():
    for name, found in _compiled(SLOW_CASES).items():
        _check_memory(name, found)


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_is_what_the_program_asks_for(compiled, name):
    preset, model = CASES[name]
    asked = {
        (one["kind"], tuple(one["axes"])): (one["count"], one["bytes"], one["group"])
        for one in compiled[name]["traced"]
    }
    ours = expected_collectives(preset, data=4 // model, model=model)
    assert {(one.kind, one.axes) for one in ours} == set(asked)
    for one in ours:
        count, n_bytes, group = asked[one.kind, one.axes]
        assert (one.bytes, one.group) == (n_bytes, group), one
        # Each weight is summed by itself, until a compiler joins them.
        assert one.count == (1 if one.kind == "all-reduce" else count), one


def test_the_compiled_step_gathers_and_scatters_as_often_as_the_program_asks(compiled):
    for name, found in compiled.items():
        asked = _by_kind(found["traced"], name)
        made = _by_kind(found["compiled"], name)
        for kind in ("all-gather", "reduce-scatter"):
            assert made[kind][0] == asked[kind][0], (name, kind)
    asked, made = (
        _by_kind(compiled["gpt2"][key], "") for key in ("traced", "compiled")
    )
    # Float32 is sent as it is; bfloat16 is widened on a CPU.
    assert made["all-gather"] == asked["all-gather"]
    assert made["reduce-scatter"] == asked["reduce-scatter"]


def _by_kind(found, _):
    return {one["kind"]: (one["count"], one["bytes"]) for one in found}


def test_weights_are_counted_as_the_presets_are_named():
    # GPT-2's own count of its smallest model; 1.1 B is TinyLlama's.
    assert weight_counts(PRESETS["124m"].decoder, 1).total == 124_439_808
    assert weight_counts(PRESETS["llama-1b"].decoder, 1).total == 1_100_048_384


def test_dividing_a_model_divides_its_state_and_leaves_what_is_kept_of_rows():
    preset = dataclasses.replace(PRESETS["1.4b"], batch_rows=1024)
    two, eight = (
        step_memory(preset, data=64 // m, model=m, platform="tpu") for m in (2, 8)
    )
    assert two.moment == eight.moment == "block"
    # Norms, biases and positions stay whole: half a per cent of the weights.
    assert eight.state == pytest.approx(two.state / 4, rel=0.02)
    assert eight.activations == two.activations


def test_half_of_the_chips_take_twice_the_time_for_products():
    preset = PRESETS["1.4b"]
    slow, fast = (
        step_time(preset, machine(name), (), model=4, efficiency=0.5)
        for name in ("v5e-8", "v5e-16")
    )
    assert slow.compute == pytest.approx(2 * fast.compute)
    assert fast.best == max(fast.compute, fast.memory) <= fast.worst


def test_blocks_computed_twice_lower_the_mfu_by_a_quarter_at_most():
    times = [
        step_time(
            dataclasses.replace(PRESETS["1.4b"], compute=Compute(remat=remat)),
            machine("v4-8"),
            (),
            model=1,
            efficiency=0.4,
        )
        for remat in (False, True)
    ]
    assert times[0].mfu == 0.4
    assert 0.75 * 0.4 < times[1].mfu < 0.4
    assert times[1].compute * times[1].mfu == pytest.approx(times[0].compute * 0.4)


def test_a_ring_of_two_sends_half_of_what_it_gathers():
    preset, on = CASES["gpt2"][0], machine("v4-8")
    gather, scatter, *_ = expected_collectives(preset, data=2, model=2)
    assert (gather.kind, scatter.kind) == ("all-gather", "reduce-scatter")
    time = step_time(preset, on, [gather], model=2, efficiency=0.5)
    assert time.network == pytest.approx(gather.bytes / 2 / 100e9)


def test_the_other_process_reads_the_code_of_this_checkout(monkeypatch):
    asked = {}

    def run(words, **settings):
        asked.update(settings, words=words)
        return subprocess.CompletedProcess(words, 1, "", "enough was seen")

    monkeypatch.setattr(compiling.subprocess, "run", run)
    with pytest.raises(InputError, match="enough was seen"):
        compile_elsewhere(CASES["gpt2"][0], 1, 1)
    *_, module = asked["words"]
    # Python looks for the module in the folder that it is started in first.
    found = asked["cwd"] / Path(*module.split(".")).with_suffix(".py")
    assert found == Path(compiling.__file__)


@pytest.mark.slow
@pytest.mark.skipif(not has_tpu_compiler(), reason="no libtpu: pip install '.[tpu]'")
def test_a_tpus_own_compiler_agrees_with_the_formula():
    shape = gpt2_shape(
        vocab_size=50257, d_model=1536, n_layers=6, n_heads=24, context=1024
    )
    preset = _preset(shape, dtype="bfloat16", remat=True, rows=64)
    found = compile_elsewhere(preset, 2, 8, slice_name="v5e:2x4")
    ours = step_memory(preset, data=4, model=2, platform="tpu")
    assert ours.total == pytest.approx(found.peak_bytes, rel=0.15)
