"""`python -m train.dry_run`: what a user reads before paying."""

import json
import sys

import pytest

from jaxcontam.cli import parse
from jaxcontam.errors import InputError
from jaxcontam.scoring.mesh_shape import parse_mesh
from train.dry_run.__main__ import DryRun, main
from train.pretrain import Pretrain


def _said(capsys, *words: str) -> str:
    """Standard output of the command, run by formulas alone."""
    return _run(capsys, 0, *words)[0]


def _run(capsys, code, *words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dry_run", "--no-compile", *words])
        assert main() == code
    out, err = capsys.readouterr()
    return out, err


def _json(capsys, *words):
    return json.loads(_said(capsys, *words, "--json"))


def test_the_papers_model_fits_a_v4_8_and_a_v5e_64(capsys):
    for on, n_chips in (("v4-8", 4), ("v5e-64", 64)):
        found = _json(capsys, "--preset", "1.4b", "--on", on)
        assert found["fits"] and found["n_chips"] == n_chips
        assert found["mesh"]["data"] * found["mesh"]["model"] == n_chips
        # Its weights, averages and gradients alone are more than one chip has.
        assert found["mesh"]["model"] > 1 or on == "v4-8"


def test_all_rows_at_once_on_whole_copies_do_not_fit_and_it_says_so(capsys):
    words = ("--preset", "1.4b", "--on", "v5e-8", "--mesh", "model=1")
    found = _json(capsys, *words, "--micro-batches", "1")
    assert not found["fits"] and found["needed_bytes"] > found["usable_bytes"]
    assert "DOES NOT FIT" in _said(capsys, *words, "--micro-batches", "1")


def test_chip_hours_are_chips_times_hours_and_cost_follows(capsys):
    words = ("--preset", "124m", "--on", "h100-8", "--tokens", "1e9")
    found = _json(capsys, *words, "--price-per-chip-hour", "2.5")
    steps = 1e9 / (found["batch_rows"] * found["row_tokens"])
    seconds = found["step_seconds"]
    for i, name in enumerate(("overlapping", "one_after_another")):
        hours = steps * seconds[name] / 3600
        assert found["hours"][i] == pytest.approx(hours)
        assert found["chip_hours"][i] == pytest.approx(8 * hours)
        assert found["cost"][i] == pytest.approx(8 * hours * 2.5)
    assert seconds["overlapping"] <= seconds["one_after_another"]


def test_fewer_tokens_at_once_take_less_memory(capsys):
    words = ("--preset", "1.4b", "--on", "v4-8", "--mesh", "model=4")
    needs = [
        _json(capsys, *words, "--micro-batches", n)["needed_bytes"]
        for n in ("2", "4", "8")
    ]
    assert needs[0] > needs[1] > needs[2]


@pytest.mark.parametrize(
    "words",
    [
        ("--preset", "1.4b", "--on", "v4-8"),
        ("--preset", "pulse", "--on", "h100-1", "--batch-rows", "16"),
        (
            *("--preset", "124m", "--on", "v5e-8", "--row-tokens", "512"),
            *("--dtype", "float32", "--remat", "False"),
        ),
        ("--preset", "124m", "--on", "v5e-8", "--remat", "True", "--mesh", "model=4"),
    ],
)
def test_flags_of_the_answer_train_what_was_reckoned(capsys, words):
    parsed = parse(DryRun, ["--no-compile", *words], prog="dry_run")
    answer = parsed.run()
    (line,) = (one for one in capsys.readouterr().out.splitlines() if "flags" in one)
    _, _, flags = line.partition("train.pretrain: ")
    asked = parse(Pretrain, ["--corpus", "docs", *flags.split()], prog="pretrain")
    assert asked._preset(None, None) == answer.preset
    assert parse_mesh(asked.mesh) == answer.shape


def test_assumptions_are_printed(capsys):
    said = _said(capsys, "--preset", "1.4b", "--on", "v5e-64", "--efficiency", "0.4")
    assert "assumed: 40% of the peak of 197 TFLOP/s" in said
    assert "15% are left free" in said and "nothing was measured" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--preset", "1.4x", "--on", "v4-8"), "unknown preset '1.4x'"),
        (("--preset", "1.4b", "--on", "v5e-9"), "v5e-9: no such size"),
        (("--preset", "1.4b", "--on", "tpu-8"), "unknown hardware 'tpu-8'"),
        (("--preset", "1.4b", "--on", "v4-8", "--mesh", "data=3"), "v4-8 has 4 chips"),
        (("--preset", "pulse", "--on", "v5e-8", "--batch-rows", "12"), "12 rows"),
        (
            ("--preset", "1.4b", "--on", "v5e-4", "--tokens", "0"),
            "--tokens must be above 0",
        ),
        (("--preset", "124m", "--on", "h100-7", "--mesh", "model=7"), "divides by 7"),
        (("--preset", "pulse", "--on", "v4-8", "--efficiency", "2"), "at most 1"),
        (("--preset", "pulse", "--on", "v4-8", "--row-tokens", "65"), "context of 64"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_compiled(capsys, words, says):
    out, err = _run(capsys, 2, *words)
    assert out == ""
    line, *hint = err.splitlines()
    assert line.startswith("train.dry_run: error: ") and says in line
    assert len(hint) <= 1


def test_a_mesh_must_make_the_number_of_chips():
    with pytest.raises(InputError, match="v4-8 has 4 chips"):
        DryRun(preset="pulse", on="v4-8", mesh="data=8", compile=False).run()


@pytest.mark.slow
def test_the_step_is_compiled_for_devices_that_are_not_here(capsys):
    with pytest.MonkeyPatch.context() as patch:
        words = ["--preset", "pulse", "--on", "h100-4", "--mesh", "model=2", "--json"]
        patch.setattr(sys, "argv", ["dry_run", *words])
        assert main() == 0
    found = json.loads(capsys.readouterr().out)
    (step,) = found["compiled"]
    assert step["compiler"] == "cpu" and step["refused"] is None
    kinds = {one["kind"] for one in step["compiled"]}
    assert kinds == {"all-gather", "reduce-scatter", "all-reduce"}
