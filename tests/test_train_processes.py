"""Training on several processes: SIGTERM to one of them saves and ends all."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from train.checkpoints import saved_steps

ROOT = Path(__file__).resolve().parent.parent


def start(folder, port, process, n_processes):
    words = [str(folder), str(port), str(process), str(n_processes)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.train_process", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def losses(folder, name):
    return np.load(folder / f"losses-{name}.npy")


# Three processes that compile: a minute of both cores.
@pytest.mark.slow
def test_sigterm_to_one_process_saves_all_and_another_number_goes_on(tmp_path):
    pair, alone = tmp_path / "pair", tmp_path / "alone"
    pair.mkdir()
    alone.mkdir()
    port = free_port()
    both = [start(pair, port, process, 2) for process in range(2)]
    for line in both[1].stdout:
        if line.startswith("steps"):
            break
    both[1].send_signal(signal.SIGTERM)
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    (step,) = saved_steps(pair)
    assert 0 < step < 60
    assert all(f"done {step} False" in words for words in said)

    for folder in (pair, alone):
        words = start(folder, 0, 0, 1).communicate()[0]
        assert "done 60 True" in words
    whole = losses(alone, "1-0")
    for process in range(2):
        # Each process sums its own rows first; 60 steps of rounding.
        found = np.concatenate([losses(pair, f"2-{process}"), losses(pair, "1-0")])
        np.testing.assert_array_equal(found[:, 0], whole[:, 0])
        np.testing.assert_allclose(found[:, 1], whole[:, 1], rtol=1e-5)
