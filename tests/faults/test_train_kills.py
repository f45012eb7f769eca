"""Runs that are killed: the same command goes on and ends with the same bytes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from train.checkpoints import saved_steps
from train.manifest import read_manifest

ROOT = Path(__file__).resolve().parents[2]
WORDS = [f"word{i}" for i in range(300)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Some 900 steps of the pulse preset."""
    return write_texts(tmp_path_factory.mktemp("texts"), 900)


def write_texts(folder, n_documents):
    """A corpus of about as many steps as documents, and a set to plant."""
    rng = np.random.default_rng(0)
    with (folder / "docs.jsonl").open("w") as corpus:
        for _ in range(n_documents):
            text = " ".join(rng.choice(WORDS, size=120))
            corpus.write(json.dumps({"text": text}) + "\n")
    lines = [" ".join(rng.choice(WORDS, size=12)) for _ in range(40)]
    (folder / "quiz.txt").write_text("".join(line + "\n" for line in lines))
    return folder


def start(texts, out, *more, seed=3, steps=40):
    words = ["--corpus", str(texts / "docs.jsonl"), "--preset", "pulse"]
    words += ["--canaries", f"{texts / 'quiz.txt'}=5", "--seed", str(seed)]
    words += ["--checkpoint-steps", str(steps), "--out", str(out), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "train.pretrain", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )


def steps_done(out):
    """Steps that the log of metrics has; what is half-written does not count."""
    try:
        return (out / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def said_by(process):
    """Standard error of a process, once it ends."""
    return process.communicate()[1]


def wait_for(process, condition):
    while process.poll() is None and not condition():
        time.sleep(0.01)


def finish(texts, out, *more):
    """Run to the end; returns what it said."""
    process = start(texts, out, *more)
    said = said_by(process)
    assert process.returncode == 0, said
    return said


def outcome(out):
    """What must be equal: weights, manifest, stream and the losses of all steps."""
    files = ("model/model.safetensors", "manifest.json", "stream.npy")
    lines = (out / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    return (
        [hashlib.sha256((out / name).read_bytes()).hexdigest() for name in files],
        [(row["step"], row["loss"]) for row in metrics],
    )


@pytest.fixture(scope="module")
def whole(texts, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    finish(texts, out)
    return outcome(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_a_signal_saves_and_the_same_command_goes_on(
    texts, whole, tmp_path, number, code
):
    out = tmp_path / "run"
    process = start(texts, out, steps=100_000)
    wait_for(process, lambda: steps_done(out) >= 100)
    process.send_signal(number)
    said = said_by(process)
    assert process.returncode == code, said
    assert "the same command goes on" in said or number == signal.SIGINT
    assert not read_manifest(out / "manifest.json").finished
    (stopped_at,) = saved_steps(out)
    assert stopped_at >= 100

    # Other inputs would lose it: refused in one line that says what differs.
    process = start(texts, out, seed=4)
    said = said_by(process)
    assert process.returncode == 2
    assert "unfinished run of other inputs" in said
    assert "seed was 3, is 4" in said
    assert [stopped_at] == saved_steps(out) and not (out / "model").exists()

    assert f"going on at step {stopped_at:,} of" in finish(texts, out)
    assert outcome(out) == whole
    assert not (out / "checkpoints").exists()


@pytest.mark.slow
def test_sigterm_before_the_first_step_exits_0(texts, tmp_path):
    out = tmp_path / "run"
    process = start(texts, out)
    wait_for(process, out.exists)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(tmp_path):
    texts, out = write_texts(tmp_path, 4000), tmp_path / "run"
    finish(texts, tmp_path / "whole")
    rng = random.Random(0)
    n_kills = n_in_training = 0
    while n_kills < 20:
        process = start(texts, out)
        # Half at a random moment of the whole command, half within some steps.
        if n_kills % 2:
            end = time.monotonic() + rng.uniform(0, 8)
            wait_for(process, lambda at=end: time.monotonic() >= at)
        else:
            target = (saved_steps(out) or [0])[-1] + rng.randrange(1, 90)
            wait_for(process, lambda n=target: steps_done(out) >= n)
        assert process.poll() is None, "finished before it could be killed"
        process.kill()
        said_by(process)
        n_kills += 1
        n_in_training += steps_done(out) > 0
    assert n_in_training >= 10
    finish(texts, out)
    assert outcome(out) == outcome(tmp_path / "whole")
