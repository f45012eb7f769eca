"""`python -m train.dry_run`: what a user reads before paying; the table of hardware."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import pytest

from jaxcontam.cli.main import parse
from jaxcontam.scoring.shares import MeshShape, parse_mesh
from train import dry_run as command
from train.config import PRESETS, Compute
from train.dry_run import CHIPS, DryRun, Estimate, machine, main, search, state_bytes
from train.pretrain import Pretrain


def _estimate_of(*words):
    return parse(DryRun, ["--no-compile", *words], prog="dry_run").run()


def test_the_papers_model_fits_a_v4_8_and_a_v5e_64():
    for on, n_chips in (("v4-8", 4), ("v5e-64", 64)):
        found = _estimate_of("--preset", "1.4b", "--on", on)
        assert found.fits and found.machine.n_chips == n_chips
        assert found.shape.data * found.shape.fsdp == n_chips
        # Its weights, moments and gradients alone are more than a v5e chip has.
        assert found.shape.fsdp > 1 or on == "v4-8"


def test_whole_copies_that_no_chip_holds_do_not_fit_and_it_says_so(capsys):
    found = _estimate_of("--preset", "1.4b", "--on", "v5e-8", "--mesh", "fsdp=1")
    assert not found.fits and found.needed > found.usable
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_chip_hours_are_chips_times_hours_and_cost_follows(monkeypatch, capsys):
    words = ["--no-compile", "--preset", "124m", "--on", "h100-8", "--tokens", "1e9"]
    monkeypatch.setattr(sys, "argv", ["", *words, "--price-per-chip-hour", "250"])
    assert main() == 0
    said = capsys.readouterr().out
    found = _estimate_of(*words[1:])
    hours = 1e9 / found.config.step_tokens * found.seconds / 3600
    assert found.hours(1e9) == pytest.approx(hours)
    assert f"{found.flops:.3g} operations" in said
    assert f"{8 * hours:,.0f} chip-hours, {8 * hours * 250:,.0f} in all" in said


@pytest.mark.parametrize(
    "words",
    [
        "--preset pulse --on h100-1 --batch-rows 16",
        "--preset 124m --on v5e-8 --row-tokens 512 --dtype float32 --remat False",
        "--preset 124m --on v5e-8 --remat True --mesh fsdp=4",
    ],
)
def test_flags_of_the_answer_train_what_was_estimated(capsys, words):
    answer = _estimate_of(*words.split())
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "flags" in one)
    _, _, flags = line.partition("train.pretrain: ")
    asked = parse(Pretrain, ["--corpus", "docs", *flags.split()], prog="pretrain")
    assert asked.configured() == answer.config
    assert parse_mesh(asked.mesh) == answer.shape


def test_weights_are_counted_as_the_presets_are_named():
    # GPT-2's own count of its smallest model; 1.1 B is TinyLlama's. 16 bytes each.
    assert state_bytes(PRESETS["124m"], 1) == 16 * 124_439_808
    assert state_bytes(PRESETS["llama-1b"], 1) == 16 * 1_100_048_384
    # Norms, biases and positions stay whole: half a per cent of the weights.
    parts = [state_bytes(PRESETS["1.4b"], model) for model in (2, 8)]
    assert parts[1] == pytest.approx(parts[0] / 4, rel=0.02)


def test_half_of_the_chips_take_twice_the_time_and_remat_a_quarter_more_at_most():
    preset = dataclasses.replace(PRESETS["124m"], compute=Compute())
    again = dataclasses.replace(preset, compute=Compute(remat=True))
    plain, fast, remat = (
        Estimate(
            config=one, machine=machine(on), shape=MeshShape(), efficiency=0.4, state=0
        )
        for one, on in ((preset, "v5e-8"), (preset, "v5e-16"), (again, "v5e-8"))
    )
    assert plain.seconds == pytest.approx(2 * fast.seconds)
    assert plain.mfu == 0.4 and 0.75 * 0.4 < remat.mfu < 0.4
    assert remat.seconds * remat.mfu == pytest.approx(plain.seconds * 0.4)


def test_the_fewest_micro_batches_that_the_compiler_accepts_are_chosen(monkeypatch):
    asked = []

    def compiled(found):
        micro_batches = found.config.compute.micro_batches
        asked.append((found.machine.name, micro_batches))
        return dataclasses.replace(
            found,
            compiler="cpu",
            peak=(5 << 30) + (32 << 30) // micro_batches,
            refused="too large" if micro_batches == 1 else None,
        )

    monkeypatch.setattr(command, "compiled_estimate", compiled)
    parts = [1, 2, 4, 8, 16, 32, 64]
    for on, n in (("a100-80-1", 2), ("v4-8", 2), ("v5e-4", 4), ("v5e-8", 4)):
        found = search(
            PRESETS["124m"], machine(on), [MeshShape()], parts, efficiency=0.5
        )
        assert found.config.compute.micro_batches == n and found.fits
    # No question after the first answer that fits, and none twice.
    assert len(asked) == len(set(asked)) == 2 + 2 + 3 + 3


_ASK = """
import json
from tests.train.test_dry_run import small_preset
from train.dry_run import Estimate, _use_virtual_devices, compiled_estimate, machine
from jaxcontam.scoring.shares import MeshShape
on = machine("h100-4")
_use_virtual_devices(on)
print(json.dumps([
    compiled_estimate(Estimate(
        config=small_preset(n), machine=on, shape=MeshShape(2, 2), efficiency=1, state=0
    )).peak
    for n in (1, 4)
]))
"""


def small_preset(micro_batches):
    compute = Compute(remat=True, micro_batches=micro_batches)
    return dataclasses.replace(PRESETS["5m"], batch_rows=32, compute=compute)


def test_the_compiler_counts_the_state_and_needs_less_for_fewer_rows_at_once():
    # The number of devices is fixed when JAX is first used.
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True
    )
    whole, parts = json.loads(done.stdout.splitlines()[-1])
    assert state_bytes(small_preset(1), 2) < parts < whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "compiler"),
    [
        ("h100-4", "the CPU compiler's analysis, an upper bound"),
        pytest.param(
            *("v5e-8", "the TPU compiler's analysis"),
            marks=pytest.mark.skipif(
                not importlib.util.find_spec("libtpu"), reason="pip install '.[tpu]'"
            ),
        ),
    ],
)
def test_the_step_is_compiled_for_devices_that_are_not_here(on, compiler):
    words = ["--preset", "pulse", "--on", on, "--mesh", "fsdp=2"]
    done = subprocess.run(
        [sys.executable, "-m", "train.dry_run", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{on} (" in done.stdout and "): fits" in done.stdout
    assert compiler in done.stdout


@pytest.mark.parametrize(
    ("name", "n_chips", "as_xla_has_it"),
    [
        # v4 and v5p count cores, and the others chips.
        ("v4-8", 4, "v4:2x2x1"),
        ("v4-512", 256, "v4:4x8x8"),
        ("v5p-16", 8, "v5p:2x2x2"),
        ("v5e-64", 64, "v5e:8x8"),
        ("v5litepod-64", 64, "v5e:8x8"),
        ("v6e-8", 8, "v6e:2x4"),
        ("a100-40-8", 8, None),
    ],
)
def test_a_slice_is_named_by_the_sides_that_its_chips_make(
    name, n_chips, as_xla_has_it
):
    found = machine(name)
    assert (found.n_chips, found.slice_name) == (n_chips, as_xla_has_it)


@pytest.mark.parametrize(
    # What Google Cloud's pages say of a whole pod, in 10^15 operations a second.
    ("name", "pod_chips", "pod_petaflops"),
    [("v4", 4096, 1100), ("v5e", 256, 50.63), ("v6e", 256, 234.9)],
)
def test_a_pods_peak_is_that_of_its_chips(name, pod_chips, pod_petaflops):
    # Published to two digits for v4, and to a half per cent for v5e.
    of_chips = CHIPS[name].peak_tflops * pod_chips / 1000
    assert of_chips == pytest.approx(pod_petaflops, rel=0.03)
