"""Processes that are killed at random moments: they go on to the same results."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.faults.folders import OF_HERE, ROOT
from tests.support.train_corpus import write_corpus
from train.checkpoints import saved_steps
from train.manifest import read_manifest
from train.report import read_rows

pytestmark = pytest.mark.unoptimised

# What differs between two runs that agree: times, what was found in a store, and the
# digests of these.
_OF_A_RUN = {"started", "wall_seconds", "digest", "cached_tokens", "tokens_scored"}
# Made of report.json; where a file was written is part of it.
_DERIVED = ("report.html", "results.csv", "SHA256SUMS", ".lock")
_KILLS = 3

COMMANDS = {
    "overlap": "overlap {sets} {known}",
    "audit": "audit {model} {known} {new}",
    "membership": "membership {model} --members {known} --nonmembers {new}",
    "replicate": "replicate {model} {known} --task plain",
    "canary": "canary {model} --secret {known} --held-out {new}",
    "score": "score {model} {known}",
    "prove": "prove {matrix}",
}


def start(module, *words):
    """A process of a command."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=ROOT,
        env={**OF_HERE, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(words, out, limit=None):
    """Exit status of a command, killed after `limit` seconds."""
    child = start("jaxcontam", *words, "--out", out)
    try:
        child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
    return child.returncode


def results(out):
    """What each file under a folder holds, without what differs from run to run."""

    def settled(fields):
        return {name: fields[name] for name in fields if name not in _OF_A_RUN}

    found = {}
    for path in [out, *out.rglob("*")]:
        of_store = path.is_relative_to(out / "store") or path.name.endswith(_DERIVED)
        if path.is_file() and not of_store:
            name, data = str(path.relative_to(out)), path.read_bytes()
            if path.suffix == ".json":
                text = data.decode().replace(json.dumps(str(out)), '"OUT"')
                data = json.loads(text, object_hook=settled)
            found[name] = data
    return found


@pytest.mark.parametrize(
    "name",
    [
        name if name == "overlap" else pytest.param(name, marks=pytest.mark.slow)
        for name in COMMANDS
    ],
)
def test_a_command_that_is_killed_goes_on(name, pulse, tmp_path):
    matrix = tmp_path / "matrix.csv"
    matrix.write_text("".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(999)))
    sets = pulse / "sets"
    at = {"known": sets / "pydocs-10.txt", "new": sets / "pydocs-0a.txt"}
    at |= {"model": pulse / "model", "sets": sets, "matrix": matrix}
    words = COMMANDS[name].format(**at).split()

    begun = time.monotonic()
    assert run(words, tmp_path / "untouched") == 0
    seconds = time.monotonic() - begun
    rng, killed = random.Random(0), tmp_path / "killed"
    for _ in range(_KILLS):
        assert run(words, killed, seconds * rng.random()) in (0, -signal.SIGKILL)
    assert run(words, killed) == 0
    assert results(killed) == results(tmp_path / "untouched") != {}


def train(corpus, out, *, seed=3, steps=40):
    """A process of training on about a step for two documents."""
    docs, quiz = corpus
    words = ["--corpus", docs, "--preset", "pulse", "--canaries", f"{quiz}=5"]
    words += ["--seed", seed, "--checkpoint-steps", steps, "--out", out]
    return start("train.pretrain", *words)


def ended(process, code=0):
    """Standard error of a process, once it ends with this code."""
    said = process.communicate()[1]
    assert process.returncode == code, said
    return said


def steps_done(out):
    """Steps that the log of metrics has; what is half-written does not count."""
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(process, condition):
    while process.poll() is None and not condition():
        time.sleep(0.01)


def outcome(out):
    """What must be equal: weights, manifest, stream and the losses of all steps."""
    files = ("model/model.safetensors", "manifest.json", "stream.npy")
    rows = read_rows(out / "metrics.jsonl")
    losses = [(row["step"], row["loss"]) for row in rows]
    return [(out / name).read_bytes() for name in files], losses


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Some 900 steps of the pulse preset."""
    return write_corpus(tmp_path_factory.mktemp("texts"), 1800)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    ended(train(corpus, out))
    return outcome(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_a_signal_saves_and_the_same_command_goes_on(
    corpus, whole, tmp_path, number, code
):
    out = tmp_path / "run"
    process = train(corpus, out, steps=100_000)
    wait_for(process, lambda: steps_done(out) >= 100)
    process.send_signal(number)
    said = ended(process, code)
    assert "the same command goes on" in said or number == signal.SIGINT
    assert not read_manifest(out / "manifest.json").finished
    (stopped_at,) = saved_steps(out)
    assert stopped_at >= 100

    # Other inputs would lose it: refused in one line that says what differs.
    said = ended(train(corpus, out, seed=4), 2)
    assert "unfinished run of other inputs" in said
    assert "seed was 3, is 4" in said
    assert [stopped_at] == saved_steps(out) and not (out / "model").exists()

    assert f"going on at step {stopped_at:,} of" in ended(train(corpus, out))
    assert outcome(out) == whole
    assert not (out / "checkpoints").exists()


@pytest.mark.slow
def test_sigterm_before_the_first_step_exits_0(corpus, tmp_path):
    process = train(corpus, tmp_path / "run")
    wait_for(process, (tmp_path / "run").exists)
    process.send_signal(signal.SIGTERM)
    ended(process)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(tmp_path):
    corpus, out = write_corpus(tmp_path, 8000), tmp_path / "run"
    ended(train(corpus, tmp_path / "whole"))
    rng = random.Random(0)
    n_in_training = 0
    for i in range(20):
        process = train(corpus, out)
        # Half at a random moment of the whole command, half within some steps.
        if i % 2 == 0:
            target = (saved_steps(out) or [0])[-1] + rng.randrange(1, 90)
            wait_for(process, lambda n=target: steps_done(out) >= n)
        else:
            end = time.monotonic() + rng.uniform(0, 8)
            wait_for(process, lambda at=end: time.monotonic() >= at)
        assert process.poll() is None, "finished before it could be killed"
        process.kill()
        ended(process, -signal.SIGKILL)
        n_in_training += steps_done(out) > 0
    assert n_in_training >= 10
    ended(train(corpus, out))
    assert outcome(out) == outcome(tmp_path / "whole")
