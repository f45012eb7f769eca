"""Progress and metrics of a run: rates without compilation, logs that resume."""

import json
import sys
import types

import numpy as np
import pytest

from jaxcontam.errors import InputError
from jaxcontam.models.config import llama_shape
from train.flops import forward_flops
from train.presets import Preset
from train.run_log import TrainingProgress
from train.step_log import MetricsLog, cut_rows, read_rows, smoothed

_CONFIG = llama_shape(
    vocab_size=64, d_model=8, n_layers=1, n_heads=2, d_ff=16, context=32
)


class Clock:
    """Time that a test spends by saying so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds


def _append(log, steps, losses=None, seconds=1.0):
    losses = [float(step) for step in steps] if losses is None else losses
    rates = [1e-3 * step for step in steps]
    log.append(steps[-1], losses, rates=rates, tokens_a_step=32, seconds=seconds)


def test_training_costs_three_forward_passes_of_full_rows():
    preset = Preset(name="x", decoder=_CONFIG, batch_rows=5, row_tokens=24, peak_rate=1)
    assert preset.step_flops == 3 * forward_flops(_CONFIG, [24] * 5)


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


def test_mfu_is_the_share_of_the_stated_peak():
    clock = Clock()
    progress = TrainingProgress(
        n_steps=10, tokens_a_step=1, flops_a_step=3e12, peak_tflops=24, clock=clock
    )
    progress.update(1, [1.0])
    clock.spend(2)
    # Four steps in 2 s are 6e12 operations a second, of 24e12.
    assert progress.update(5, [1.0] * 4).mfu == pytest.approx(0.25, rel=1e-12)


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


def test_smoothed_losses_in_blocks_are_those_of_one_call():
    losses = np.random.default_rng(0).normal(5, 1, size=90).tolist()
    whole, _ = smoothed(losses)
    parts, carry = [], (0.0, 0.0)
    for block in np.array_split(losses, 7):
        means, carry = smoothed(block.tolist(), carry)
        parts += means
    assert parts == whole


def test_smoothed_passes_over_losses_that_are_no_number():
    assert smoothed([None, 2.0, float("nan"), 2.0])[0] == [None, 2.0, 2.0, 2.0]


def test_metrics_are_one_row_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        _append(log, [1, 2], [6.5, float("nan")], seconds=0.5)
        _append(log, [3], [5.5], seconds=0.75)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 6.5, "tokens": 32, "rate": 1e-3, "seconds": 0.5},
        {"step": 2, "loss": None, "tokens": 64, "rate": 2e-3, "seconds": 0.5},
        {"step": 3, "loss": 5.5, "tokens": 96, "rate": 3e-3, "seconds": 0.75},
    ]


def test_losses_are_written_to_the_bit(tmp_path):
    losses = np.random.default_rng(1).normal(5, 1, size=40).astype(np.float32)
    with MetricsLog(tmp_path / "m.jsonl") as log:
        _append(log, range(1, 41), losses)
    found = [row["loss"] for row in read_rows(tmp_path / "m.jsonl")]
    np.testing.assert_array_equal(np.array(found, np.float32), losses)


def test_metrics_from_the_start_forget_an_earlier_run(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        _append(log, [1, 2, 3])
    with MetricsLog(path) as log:
        _append(log, [1])
    assert [row["step"] for row in read_rows(path)] == [1]


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
        cut_rows(path, last_step=9)
    assert path.read_text() == text


class Writer:
    """Stands in for tensorboardX's."""

    made: tuple = ()

    def __init__(self, folder, purge_step, filename_suffix):
        Writer.made = (folder, purge_step, filename_suffix)
        Writer.scalars = []

    def add_scalar(self, name, value, step):
        Writer.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        pass


def test_tensorboard_gets_the_same_numbers(tmp_path, monkeypatch):
    module = types.ModuleType("tensorboardX")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    board = tmp_path / "board"
    with MetricsLog(tmp_path / "m.jsonl", last_step=1, tensorboard=board) as log:
        _append(log, [2, 3], [6.5, float("inf")])
    assert Writer.made == (str(board), 2, ".from-1")
    assert Writer.scalars == [
        ("train/loss", 6.5, 2),
        ("train/rate", 2e-3, 2),
        ("train/rate", 3e-3, 3),
    ]
