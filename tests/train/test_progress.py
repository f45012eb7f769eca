"""Progress and logs of a run: rates, rows that resume, audits."""

import dataclasses
import json
import resource

import numpy as np
import pytest
from flax import nnx

from jaxcontam.errors import InputError
from jaxcontam.models.decoder import Decoder
from train.config import RunOptions
from train.flops import forward_flops
from train.manifest import write_manifest
from train.prepare import Run
from train.report import (
    RunningMean,
    StepLog,
    TrainingProgress,
    metric_rows,
    read_rows,
)
from train.run import RunLog, step_rates

pytestmark = pytest.mark.unoptimised

_N_STEPS = 24


class Clock:
    """Time that a test spends by saying so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds


def _log(audited, out, n_steps, *, last_step=0, plan=None, **options):
    """The log of a run of so many steps."""
    run = Run(
        sets=(),
        config=audited.config,
        seed=0,
        out=out,
        options=RunOptions(**options),
    )
    manifest = dataclasses.replace(audited.manifest, n_steps=n_steps)
    return RunLog(run, manifest, last_step=last_step, plan=plan)


def _numbers(losses):
    """Those of steps with these losses."""
    return {
        "loss": losses,
        "gradient_norm": np.full_like(losses, 0.5),
        "parameter_norm": np.full_like(losses, 2.0),
    }


def test_rates_leave_out_compilation_and_pauses():
    clock = Clock()
    with TrainingProgress(n_steps=100, tokens_a_step=32, clock=clock) as progress:
        clock.spend(500)  # compiles
        assert progress.update(1, [4.0]).tokens_per_second is None
        clock.spend(10)
        with progress.paused("auditing"):
            clock.spend(1000)
        state = progress.update(21, [4.0] * 20)
    assert state.tokens_per_second == pytest.approx(2 * 32, rel=1e-12)
    assert state.seconds_left == pytest.approx(79 / 2, rel=1e-12)


def test_shown_rate_is_of_the_last_minute():
    clock = Clock()
    with TrainingProgress(n_steps=1000, tokens_a_step=1, clock=clock) as progress:
        progress.update(1, [1.0])
        for step in range(2, 102):  # one step a second, then ten
            clock.spend(1)
            progress.update(step, [1.0])
        for step in range(111, 811, 10):
            clock.spend(1)
            state = progress.update(step, [1.0])
    assert state.tokens_per_second == pytest.approx(10, rel=1e-12)


def test_mfu_is_the_share_of_the_stated_peak(audited, tmp_path):
    clock = Clock()
    progress = TrainingProgress(
        n_steps=10, tokens_a_step=1, flops_a_step=3e12, peak_tflops=24, clock=clock
    )
    progress.update(1, [1.0])
    clock.spend(2)
    # Four steps in 2 s are 6e12 operations a second, of 24e12.
    assert progress.update(5, [1.0] * 4).mfu == pytest.approx(0.25, rel=1e-12)
    # A run's configuration knows its own: three forward passes of full rows.
    config = audited.config
    assert config.step_flops == 3 * forward_flops(config.decoder, [48] * 4)
    with _log(audited, tmp_path, 10, peak_tflops=1e-6) as log:
        assert log.progress.update(1, [3.0]).mfu is None
        assert log.progress.update(2, [3.0]).mfu > 0


def test_a_log_gets_a_line_a_minute(capsys):
    clock = Clock()
    with TrainingProgress(n_steps=200, tokens_a_step=32, clock=clock) as progress:
        for step in range(1, 151):
            clock.spend(1)
            progress.update(step, [2.0])
    assert capsys.readouterr().err.splitlines() == [
        "training: 30%, step 60 of 200, loss 2.000, 32 tok/s, 2 min left",
        "training: 60%, step 120 of 200, loss 2.000, 32 tok/s, 80 s left",
    ]


def test_a_mean_of_losses_in_blocks_is_that_of_one_call():
    losses = np.random.default_rng(0).normal(5, 1, size=90).tolist()
    whole, parts = RunningMean(), RunningMean()
    for block in np.array_split(losses, 7):
        found = parts.after(block.tolist())
    assert found == whole.after(losses)
    mean = RunningMean()
    assert mean.after([None]) is None
    assert mean.after([2.0, float("nan")]) == mean.after([2.0]) == 2.0


def test_metrics_are_one_row_a_step_and_time_goes_on(audited, tmp_path):
    numbers = {"loss": np.float32([6.5, float("nan")]), "rate": np.float32([2e-3] * 2)}
    assert metric_rows(3, numbers, 32, seconds=0.5) == [
        {"step": 2, "tokens": 64, "loss": 6.5, "rate": 2e-3, "seconds": 0.5},
        {"step": 3, "tokens": 96, "loss": None, "rate": 2e-3, "seconds": 0.5},
    ]
    before = {"step": 3, "tokens": 96, "seconds": 1000.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(before) + "\n")
    with _log(audited, tmp_path, 4, last_step=3) as log:
        log.steps(3, _numbers(np.float32([5.5])))
    first, last = read_rows(tmp_path / "metrics.jsonl")
    assert first == before and last["step"] == 4
    assert 1000 <= last["seconds"] < 1060


def test_reading_leaves_a_running_log_as_it_is(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"ste')
    assert read_rows(path) == [{"step": 1}, {"step": 2}]
    assert path.read_bytes().endswith(b'{"ste')
    assert read_rows(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 1}\nnonsense\n', ":2: not a row with a step"),
        ('{"step": "1"}\n', ":1: not a row with a step"),
        ("[1]\n", ":1: not a row with a step"),
        ('{"step": 3}\n{"step": 2}\n', ":2: step 2 after step 3"),
    ],
)
def test_damaged_logs_are_named_and_kept(tmp_path, text, message):
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        StepLog(path, last_step=9)
    assert path.read_text() == text


def test_a_full_disk_leaves_whole_rows_alone(tmp_path):
    path = tmp_path / "m.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with StepLog(path) as log:
        log.append([{"step": 1}])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
            with pytest.raises(OSError, match="too large"):
                log.append([{"step": 2}])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        log.append([{"step": 3}])
    assert path.read_bytes() == b'{"step": 1}\n{"step": 3}\n'


def _decoder(audited, step):
    """Stands for the weights after a step."""
    return Decoder(audited.config.decoder, rngs=nnx.Rngs(step))


def test_rows_carry_the_rates_of_the_schedule_and_targets_so_far(audited, tmp_path):
    losses = np.random.default_rng(1).normal(5, 1, _N_STEPS).astype(np.float32)
    with _log(audited, tmp_path, _N_STEPS) as log:
        log.steps(0, _numbers(losses[:10]))
        log.steps(10, _numbers(losses[10:]))
        # Without a plan nothing is audited.
        log.audit(_N_STEPS, _decoder(audited, 0))
    rates = step_rates(audited.config, _N_STEPS)
    # One step of warm-up from zero, then the peak.
    assert rates[:2].tolist() == [0, pytest.approx(5e-3, rel=1e-6)]
    rows = read_rows(tmp_path / "metrics.jsonl")
    for name, numbers in (("loss", losses), ("rate", rates)):
        # To the bit.
        np.testing.assert_array_equal(np.float32([row[name] for row in rows]), numbers)
    assert {row["gradient_norm"] for row in rows} == {0.5}
    assert {row["parameter_norm"] for row in rows} == {2.0}
    assert rows[-1]["tokens"] == _N_STEPS * 4 * 48
    assert read_rows(tmp_path / "audits.jsonl") == []
    assert not (tmp_path / "training.html").exists()


@pytest.mark.parametrize(("last_step", "kept"), [(0, []), (15, [0, 0, 10])])
def test_audits_after_the_step_that_a_run_resumes_from_are_forgotten(
    tmp_path, audited, last_step, kept
):
    path = tmp_path / "audits.jsonl"
    lines = [json.dumps({"step": step}) for step in (0, 0, 10, 20)]
    path.write_text("\n".join([*lines, '{"step": 30, "tok']))
    with _log(audited, tmp_path, 24, last_step=last_step):
        assert [row["step"] for row in read_rows(path)] == kept


def test_audits_are_written_and_not_counted_as_training(tmp_path, audited, capsys):
    write_manifest(audited.manifest, tmp_path / "manifest.json")
    ticks = iter(range(100))
    losses = np.array([6, 5], np.float32)
    with _log(audited, tmp_path, 4, plan=audited.plan) as log:
        log.progress = TrainingProgress(
            n_steps=4, tokens_a_step=192, clock=lambda: 10.0 * next(ticks)
        )
        log.steps(0, _numbers(losses))
        log.audit(2, _decoder(audited, 2))
        log.steps(2, _numbers(losses))
        state = log.progress.update(4, [])
    # Calls of the clock: 0 to begin, 1, 2 and 3 around the audit, 4, 5.
    assert state.tokens_per_second == pytest.approx(2 * 192 / (40 - 10), rel=1e-12)
    assert capsys.readouterr().err.startswith("audit at step 2: adjacency p <= 0.001")
    rows = read_rows(tmp_path / "audits.jsonl")
    assert [(row["step"], row["set"]) for row in rows] == [
        *((2, "planted"), (2, "control"), (2, "planted"))
    ]
    assert (rows[0]["auc"], rows[0]["reference"]) == (None, [])
