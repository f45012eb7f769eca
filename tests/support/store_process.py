"""A stub of a model, a scorer of it with a store, and runs of it that tests kill.

No JAX here. `python tests/support/store_process.py TASK FOLDER LOG` does a task; LOG
gets a line for each batch that the model is asked for.
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
    sizes = rng.integers(1, longest + 1, n)
    return [rng.integers(1, V, size, dtype=np.int32) for size in sizes]


def batch_name(inputs_BS):
    data = repr(inputs_BS.shape).encode() + inputs_BS.tobytes()
    return hashlib.sha256(data).hexdigest()


def bigrams(inputs_BS, targets_BS):
    return (TABLE[inputs_BS, targets_BS],)


def counted(folder, *, forward=bigrams, identity=IDENTITY, division=None):
    """A scorer with a store, if any, and names of the batches that it asks for."""
    asked = []

    def count(inputs_BS, targets_BS):
        asked.append(batch_name(inputs_BS))
        return forward(inputs_BS, targets_BS)

    store = None if folder is None else ScoreStore(folder, identity)
    shape = {"context": CONTEXT, "batch_tokens": BATCH_TOKENS}
    return Scorer(count, **shape, store=store, division=division), asked


def scorer_with(folder, log=None, *, pause=0.0):
    """A scorer of random bigrams; `log` gets the name of each batch it is asked for."""

    def forward(inputs_BS, targets_BS):
        if log is not None:
            with log.open("ab", buffering=0) as file:
                file.write(f"{batch_name(inputs_BS)}\n".encode())
        time.sleep(pause)
        return bigrams(inputs_BS, targets_BS)

    return counted(folder, forward=forward)[0]


def held_batches(folder):
    """Names of the planned batches whose rows are all in the store."""
    scorer, sequences = scorer_with(folder), drawn_sequences()
    rows, batches = scorer.plan(sequences)
    return {
        batch_name(fill(batch, rows, sequences)[0])
        for batch in batches
        if scorer.store.holds(batch_keys(scorer.store, batch, rows, sequences, SUMS))
    }


def killed_run(folder, log, seconds, *, once_it_scores):
    """A forked run that is killed after some seconds."""
    pid = os.fork()
    if not pid:
        try:
            scorer_with(folder, log, pause=2e-3).sums(drawn_sequences())
        finally:
            os._exit(0)
    while once_it_scores and not log.exists():
        time.sleep(1e-3)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the run ended before it could be killed"


def kill_at_random_moments(folder, log):
    """For each of N_KILLS killed runs: batches held before it, asked for, and both."""
    rng, found = np.random.default_rng(0), []
    for i in range(N_KILLS):
        held = held_batches(folder)
        log.unlink(missing_ok=True)
        # Every other run is sure to score, however slow the machine is.
        killed_run(folder, log, rng.uniform(0, 0.1), once_it_scores=i % 2)
        asked = log.read_text().split() if log.exists() else []
        found.append([len(held), len(asked), len(held & set(asked))])
    print(json.dumps(found))


def said_by(name, folder, log):
    """What a task of this file printed, as JSON."""
    words = [sys.executable, __file__, name, folder, log]
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    how = {"capture_output": True, "timeout": 60, "text": True}
    done = subprocess.run(words, env=env, **how)
    assert done.stderr == ""
    return json.loads(done.stdout)


if __name__ == "__main__":
    assert "jax" not in sys.modules, "the scorer and the store need no JAX"
    tasks = {"kill_at_random_moments": kill_at_random_moments}
    tasks[sys.argv[1]](*map(Path, sys.argv[2:]))
