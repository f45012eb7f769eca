"""A stub run of the scorer with a store, in processes that tests kill. No JAX here.

`python tests/support/store_process.py TASK FOLDER LOG SEED` does a task; see the
functions below. LOG gets a line for each batch that the forward function is asked for.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from jaxcontam.scoring.identity import ScoreIdentity
from jaxcontam.scoring.rows import SUMS, fill
from jaxcontam.scoring.scorer import Scorer, batch_keys
from jaxcontam.scoring.store import ScoreStore

V, CONTEXT, BATCH_TOKENS = 50, 32, 64
TABLE = -np.random.default_rng(0).gamma(1.0, size=(V, V)).astype(np.float32)
N_KILLS = 20

IDENTITY = ScoreIdentity(
    model="sha256:0",
    prefix_id=None,
    context=CONTEXT,
    moments=False,
    dtype="float32",
    precision="highest",
    attention="blocks",
    kernel=1,
    code="",
    platform="cpu",
    device="stub",
    n_devices=1,
    n_model=1,
    cpu_threads=1,
    compiler="numpy",
)


def drawn_sequences(n=1000, longest=80, seed=0):
    """Sequences of 1 to `longest` ids; the longer ones have several windows."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(1, V, size, dtype=np.int32)
        for size in rng.integers(1, longest + 1, n)
    ]


def batch_name(inputs_BS):
    return hashlib.sha256(
        repr(inputs_BS.shape).encode() + inputs_BS.tobytes()
    ).hexdigest()


def scorer_with(folder, log=None, *, pause=0.0):
    """A scorer of random bigrams; `log` gets the name of each batch it is asked for."""

    def forward(inputs_BS, targets_BS):
        if log is not None:
            with log.open("ab", buffering=0) as file:
                file.write(f"{batch_name(inputs_BS)}\n".encode())
        time.sleep(pause)
        return TABLE[inputs_BS, targets_BS], None, None

    store = None if folder is None else ScoreStore(folder, IDENTITY)
    return Scorer(forward, context=CONTEXT, batch_tokens=BATCH_TOKENS, store=store)


def forked(run):
    """Pid of a process that runs a function and exits."""
    if pid := os.fork():
        return pid
    try:
        run()
    finally:
        os._exit(0)


def held_batches(folder, n=1000):
    """Names of the planned batches whose rows are all in the store."""
    scorer, sequences = scorer_with(folder), drawn_sequences(n)
    rows, batches = scorer.plan(sequences)
    return {
        batch_name(fill(batch, rows, sequences)[0])
        for batch in batches
        if scorer.store.holds(batch_keys(scorer.store, batch, rows, sequences, SUMS))
    }


def kill_at_random_moments(folder, log, seed):
    """For each of N_KILLS killed runs: batches held before it, asked for, and both."""
    rng, found = np.random.default_rng(seed), []
    for i in range(N_KILLS):
        held = held_batches(folder)
        log.unlink(missing_ok=True)
        pid = forked(
            lambda: scorer_with(folder, log, pause=2e-3).sums(drawn_sequences())
        )
        # Every other run is sure to score, however slow the machine is.
        while i % 2 and not log.exists():
            time.sleep(1e-3)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the run ended before it could be killed"
        asked = log.read_text().split() if log.exists() else []
        found.append([len(held), len(asked), len(held & set(asked))])
    print(json.dumps(found))


def run_once(folder, log, seed):
    """One run of a second or two."""
    scorer_with(folder, log, pause=1e-3).sums(drawn_sequences())


def two_at_once(folder, log, seed):
    """Two runs with half of their sequences in common write into one folder."""
    pids = [
        forked(lambda part=part: scorer_with(folder, log).tokens(part))
        for part in (drawn_sequences()[:600], drawn_sequences()[400:])
    ]
    for pid in pids:
        os.waitpid(pid, 0)


def process(name, folder, log, seed=0):
    """A process of this file that does a task, running."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(
        [sys.executable, __file__, name, folder, log, str(seed)],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_by(name, folder, log, seed=0):
    """What a task printed, as JSON."""
    out, err = process(name, folder, log, seed).communicate(timeout=60)
    assert err == ""
    return json.loads(out or "null")


TASKS = {
    task.__name__: task for task in (kill_at_random_moments, run_once, two_at_once)
}

if __name__ == "__main__":
    name, *words = sys.argv[1:]
    assert "jax" not in sys.modules, "the scorer and the store need no JAX"
    TASKS[name](Path(words[0]), Path(words[1]), int(words[2]))
