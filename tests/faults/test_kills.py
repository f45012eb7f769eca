"""Processes that are killed at random moments: run again, they leave the same results.

Training is killed by `test_train_kills.py`.
"""

import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.store_process import N_KILLS, drawn_sequences, said_by, scorer_with

pytestmark = pytest.mark.unoptimised

ROOT = Path(__file__).resolve().parents[2]
# What differs between two runs that agree: times, what was found in a store, and the
# digests of these.
_OF_A_RUN = {"started", "wall_seconds", "digest", "cached_tokens", "tokens_scored"}
# Made of report.json; where a file was written is part of it.
_DERIVED = ("report.html", "results.csv", "SHA256SUMS")
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

    start = time.monotonic()
    assert run(words, tmp_path / "untouched") == 0
    seconds = time.monotonic() - start
    rng, killed = random.Random(0), tmp_path / "killed"
    for _ in range(_KILLS):
        assert run(words, killed, seconds * rng.random()) in (0, -signal.SIGKILL)
    assert run(words, killed) == 0
    assert results(killed) == results(tmp_path / "untouched")


def test_scorers_that_are_killed_never_repeat_a_committed_batch(tmp_path):
    folder, log = tmp_path / "store", tmp_path / "log"
    found = said_by("kill_at_random_moments", folder, log)
    held = [row[0] for row in found]
    assert len(held) == N_KILLS and held == sorted(held)
    # The kills fell into the scoring, not all before or after it.
    assert len(set(held)) > N_KILLS / 4
    assert [repeated for _, _, repeated in found] == [0] * N_KILLS
    # Only what was in flight is lost: one batch on the device, one before it.
    for (before, asked, _), (after, _, _) in itertools.pairwise(found):
        assert after - before >= asked - 2
    log.unlink(missing_ok=True)
    sums = scorer_with(folder, log).sums(drawn_sequences())
    whole = scorer_with(None).sums(drawn_sequences())
    assert sums.loglik.tobytes() == whole.loglik.tobytes()
    assert sums.first.tobytes() == whole.first.tobytes()
    assert len(log.read_text().split()) > 0 and sums.n_cached > 0


def run(words, out, limit=None):
    """Exit status of a command, killed after `limit` seconds."""
    child = subprocess.Popen(
        [sys.executable, "-m", "jaxcontam", *words, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def results(out):
    """Digest of every file under a folder, without what differs from run to run."""
    found = {}
    for path in sorted(out.rglob("*") if out.is_dir() else [out]):
        of_store = path.is_relative_to(out / "store") or path.suffix == ".lock"
        if not path.is_file() or of_store or path.name in _DERIVED:
            continue
        data = path.read_bytes()
        if path.suffix == ".json":
            data = json.dumps(_settled(json.loads(data), str(out))).encode()
        found[str(path.relative_to(out))] = hashlib.sha256(data).hexdigest()
    return found


def _settled(value, out):
    """A report without what belongs to one run."""
    if isinstance(value, dict):
        return {k: _settled(v, out) for k, v in value.items() if k not in _OF_A_RUN}
    if isinstance(value, list):
        return [_settled(one, out) for one in value]
    return "OUT" if value == out else value
