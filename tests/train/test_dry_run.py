"""`python -m train.dry_run`: what a user reads before paying; datasheets of chips."""

import dataclasses
import json
import shlex
import subprocess
import sys

import jax
import optax
import pytest

from jaxcontam.cli.main import parse
from jaxcontam.scoring.parts import MeshShape, parse_mesh
from train import dry_run
from train.config import PRESETS, Compute
from train.dry_run import CHIPS, DryRun, machine, main, state_bytes
from train.pretrain import Pretrain


def told(capsys, *words):
    """What a dry run that compiles nothing prints, and its flags of train.pretrain."""
    parse(DryRun, ["--no-compile", *words], prog="dry_run").run()
    said = capsys.readouterr().out
    (line,) = (one for one in said.splitlines() if "flags of" in one)
    flags = shlex.split(line.partition("train.pretrain: ")[2])
    return said, parse(Pretrain, ["--corpus", "docs", *flags], prog="pretrain")


def test_the_papers_model_fits_a_v4_8_and_a_v5e_64(capsys):
    for on, n_chips in (("v4-8", 4), ("v5e-64", 64)):
        said, asked = told(capsys, "--preset", "1.4b", "--on", on)
        assert f"1.4b on {on}, {n_chips} chips" in said and ": fits\n" in said
        mesh = parse_mesh(asked.mesh)
        assert mesh.data is not None and mesh.data * mesh.fsdp == n_chips
        # Its weights, moments and gradients alone are more than a v5e chip has.
        assert mesh.fsdp > 1 or on == "v4-8"


def test_whole_copies_that_no_chip_holds_do_not_fit_and_it_says_so(capsys):
    words = ["--preset", "1.4b", "--on", "v5e-8", "--mesh", "fsdp=1"]
    assert "DOES NOT FIT" in told(capsys, *words)[0]


def test_chip_hours_are_chips_times_hours(monkeypatch, capsys):
    words = ["--no-compile", "--preset", "124m", "--on", "h100-8", "--tokens", "1e9"]
    monkeypatch.setattr(sys, "argv", ["", *words])
    assert main() == 0
    config = PRESETS["124m"]
    # At 40 % of 989 TFLOP/s on each of eight chips.
    seconds = config.step_flops / (0.4 * 8 * 989e12)
    hours = 1e9 / config.step_tokens * seconds / 3600
    said = capsys.readouterr().out
    assert f"{config.step_flops:.3g} operations and {seconds:.3f} s a step" in said
    assert f"{8 * hours:,.0f} chip-hours\n" in said


@pytest.mark.parametrize(
    "words",
    [
        "--preset pulse --on h100-1 --batch-rows 16",
        "--preset 124m --on v5e-8 --row-tokens 512 --dtype float32 --remat False",
        "--preset 124m --on v5e-8 --remat True --mesh fsdp=4 --micro-batches 2",
        r"--preset pulse --on h100-1 --separator ' \n\n'",
    ],
)
def test_flags_of_the_answer_train_what_was_estimated(capsys, words):
    command = parse(DryRun, ["--no-compile", *shlex.split(words)], prog="dry_run")
    _, asked = told(capsys, *shlex.split(words))
    assert asked.configured() == command.configured()
    if command.mesh is not None:
        assert parse_mesh(asked.mesh) == MeshShape(2, 4)


def test_weights_are_counted_as_the_presets_are_named(capsys):
    # The optimiser counts steps twice, for its moments and for the rate.
    counters = 8
    # GPT-2's own count of its smallest model; 1.1 B is TinyLlama's. 16 bytes each.
    assert sum(state_bytes(PRESETS["124m"], 1)) == 16 * 124_439_808 + counters
    assert sum(state_bytes(PRESETS["llama-1b"], 1)) == 16 * 1_100_048_384 + counters
    # Norms, biases and positions stay whole: half a per cent of the weights.
    parts = [sum(state_bytes(PRESETS["1.4b"], model)) for model in (2, 8)]
    assert parts[1] == pytest.approx(parts[0] / 4, rel=0.02)
    # A checkpoint has no gradients.
    said, _ = told(capsys, "--preset", "llama-1b", "--on", "h100-8")
    assert f"{12 * 1_100_048_384 / 2**30:.1f} GiB a checkpoint" in said


def test_the_state_of_the_optimizer_is_counted_whatever_it_keeps(monkeypatch):
    for keeps, rule in ((0, optax.sgd(0.1)), (1, optax.sgd(0.1, momentum=0.9))):
        monkeypatch.setattr(dry_run, "make_optimizer", lambda *_, rule=rule: rule)
        kept, weights = state_bytes(PRESETS["tiny"], 1)
        assert kept == (1 + keeps) * weights


def test_the_first_mesh_with_the_fewest_micro_batches_that_fits_is_chosen(
    monkeypatch, capsys
):
    asked = []

    def compiled(config, mesh):
        n = config.compute.micro_batches
        asked.append((mesh.fsdp, n))
        return (5 << 30) + (32 << 30) // (n * mesh.fsdp)

    monkeypatch.setattr(dry_run, "compiled", compiled)
    monkeypatch.setattr(dry_run, "peak_bytes", int)
    # This process has its devices already.
    monkeypatch.setattr(type(jax.config), "update", lambda *_: None)
    monkeypatch.setenv("XLA_FLAGS", "")
    for on, n in (("a100-80-1", 1), ("v4-8", 2), ("v5e-8", 4)):
        asked.clear()
        DryRun(preset="124m", on=on).run()
        assert asked == [(1, 2**i) for i in range(n.bit_length())]
        assert (f"--micro-batches {n}\n" in capsys.readouterr().out) == (n > 1)
    asked.clear()
    DryRun(preset="124m", on="v5e-8", micro_batches=2).run()
    assert asked == [(1, 2), (2, 2)]
    assert "--mesh data=4,fsdp=2 --micro-batches 2\n" in capsys.readouterr().out


_ASK = """
import json
from tests.train.test_dry_run import one_layer, small_preset
from train.dry_run import MeshShape, compiled, jax, peak_bytes
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
found = [peak_bytes(compiled(small_preset(n), MeshShape(2, 2))) for n in (1, 4)]
found.append(compiled(one_layer(), MeshShape(4, 1)).cost_analysis()["flops"])
print(json.dumps(found))
"""


def small_preset(micro_batches):
    compute = Compute(remat=True, micro_batches=micro_batches)
    return dataclasses.replace(PRESETS["5m"], batch_rows=32, compute=compute)


def one_layer():
    tiny = PRESETS["tiny"]
    return dataclasses.replace(
        tiny, decoder=dataclasses.replace(tiny.decoder, n_layers=1)
    )


def test_the_compiler_counts_the_state_fewer_rows_at_once_and_the_formulas_operations():
    # The number of devices is fixed when JAX is first used.
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True
    )
    whole, parts, counted = json.loads(done.stdout.splitlines()[-1])
    assert sum(state_bytes(small_preset(1), 2)) < parts < whole
    # With one layer no loop hides work. The formula leaves out norms, activations, the
    # softmax and half of attention's square, and is the least that a step takes.
    assert 1 < 4 * counted / one_layer().step_flops < 1.1


@pytest.mark.slow
def test_the_step_is_compiled_for_devices_that_are_not_here():
    words = ["--preset", "pulse", "--on", "h100-4", "--mesh", "fsdp=2"]
    words += ["--isolate-documents", "True"]
    done = subprocess.run(
        [sys.executable, "-m", "train.dry_run", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pulse on h100-4, 4 chips of 80 GiB: fits" in done.stdout
    assert "(an upper bound)" in done.stdout


@pytest.mark.parametrize(
    ("name", "n_chips"),
    # v4 and v5p count cores, and the others chips.
    [("v4-8", 4), ("v5p-16", 8), ("v5litepod-64", 64), ("v6e-8", 8), ("a100-40-8", 8)],
)
def test_a_machines_name_says_its_chips(name, n_chips):
    assert machine(name)[1] == n_chips


@pytest.mark.parametrize(
    # What Google Cloud's pages say of a whole pod, in 10^15 operations a second.
    ("name", "pod_chips", "pod_petaflops"),
    [("v4", 4096, 1100), ("v5e", 256, 50.63), ("v6e", 256, 234.9)],
)
def test_a_pods_peak_is_that_of_its_chips(name, pod_chips, pod_petaflops):
    # Published to two digits for v4, and to a half per cent for v5e.
    of_chips = CHIPS[name].tflops * pod_chips / 1000
    assert of_chips == pytest.approx(pod_petaflops, rel=0.03)
