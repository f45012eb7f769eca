"""Processes that score together with a stub model: started by tests. No JAX here.

`python -m tests.host_process SCENARIO FOLDER` forks the processes of a scenario and
prints what each found, as JSON.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from jaxcontam import hosts
from jaxcontam.errors import InputError, LostProcessError
from jaxcontam.hosts.meeting import accept, connect
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.shares import ALONE, Share
from jaxcontam.scoring.store import ScoreStore
from jaxcontam.scoring.stored import NonFiniteScoreError
from tests.store_process import (
    BATCH_TOKENS,
    CONTEXT,
    IDENTITY,
    TABLE,
    batch_name,
    drawn_sequences,
)

# So many that neither two nor three processes share the batches evenly.
N_SEQUENCES = 399


def free_port():
    """A port that nobody listens at now."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def together(n, run):
    """What `run(process)` returns in each of n forked processes; None of a killed."""
    port, pipes, children = free_port(), [], []
    for process in range(n):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                found = joined_run(run, port, process, n)
            except (InputError, LostProcessError, NonFiniteScoreError) as e:
                found = {"error": type(e).__name__, "message": str(e)}
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
        children.append(child)
    found = []
    for pipe, child in zip(pipes, children, strict=True):
        with os.fdopen(pipe, "rb") as file:
            words = file.read()
        os.waitpid(child, 0)
        found.append(json.loads(words) if words else None)
    return found


def joined_run(run, port, process, n):
    """`run(process)`, linked to the others as `hosts.joined` does it, without JAX."""
    if process == 0:
        link = accept(port, n, "1", 30.0)
    else:
        link = connect("127.0.0.1", port, process, n, "1", 30.0)
    hosts._link = link
    try:
        found = run(process)
        link.finish()
        link.leave()
        return found
    except BaseException as e:
        hosts._explain(link, e)
        raise
    finally:
        link.close()


def scored(folder, share, *, sequences=None, pause=0.0, die_after=None, bad=None):
    """Sums and tokens of sequences, what was asked of the model, what was stored."""
    asked = []

    def forward(inputs_BS, targets_BS):
        asked.append(batch_name(inputs_BS))
        if die_after is not None and len(asked) > die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(pause)
        logprobs_BS = TABLE[inputs_BS, targets_BS]
        if bad is not None and asked[-1] == bad:
            logprobs_BS = np.full_like(logprobs_BS, np.nan)
        return (logprobs_BS,)

    store = None if folder is None else ScoreStore(folder, IDENTITY)
    scorer = Scorer(
        forward, context=CONTEXT, batch_tokens=BATCH_TOKENS, store=store, share=share
    )
    sequences = drawn_sequences(N_SEQUENCES) if sequences is None else sequences
    steps = []
    sums = scorer.sums(sequences, lambda done, _: steps.append(done))
    table = scorer.token_table(sequences)
    return {
        "loglik": [value.hex() for value in sums.loglik.tolist()],
        "tokens": [scores.tobytes().hex() for scores in table.scores],
        "n_cached": [sums.n_cached, table.n_cached],
        "steps": steps,
        "asked": asked,
    }


def shared(folder):
    """One process, three that share a disk, then two that do not."""
    folder = Path(folder)
    one = scored(folder / "one", ALONE)
    three = together(3, lambda p: scored(folder / "three", Share(p, 3)))
    again = together(2, lambda p: scored(folder / "three", Share(p, 2)))
    # Each has what it scored itself alone, as on hosts without a shared disk.
    apart = together(2, lambda p: scored(folder / f"apart{p}", Share(p, 2)))
    apart_again = together(2, lambda p: scored(folder / f"apart{p}", Share(p, 2)))
    nowhere = together(2, lambda p: scored(None, Share(p, 2)))
    return {
        "one": one,
        "three": three,
        "again": again,
        "apart": apart,
        "apart_again": apart_again,
        "nowhere": nowhere,
    }


def groups(folder):
    """Four processes in two groups: those of a group score the same batches."""
    folder = Path(folder)
    one = scored(None, ALONE)
    four = together(
        4,
        lambda p: scored(folder / f"{p}", Share(p // 2, 2, leads=p % 2 == 0)),
    )
    return {"one": one, "four": four, "stored": sorted(os.listdir(folder))}


def killed(folder):
    """One of three is killed; the rest is scored by two."""
    folder = Path(folder)
    before = time.monotonic()
    three = together(
        3, lambda p: scored(folder, Share(p, 3), die_after=40 if p == 1 else None)
    )
    seconds = time.monotonic() - before
    two = together(2, lambda p: scored(folder, Share(p, 2)))
    return {"one": scored(None, ALONE), "three": three, "two": two, "seconds": seconds}


def different(folder):
    """Process 1 has one other id; then it has fewer sequences."""
    del folder
    whole = drawn_sequences(60)
    other = [ids.copy() for ids in whole]
    other[30][0] += 1
    return {
        name: together(
            2,
            lambda p, sets=sets: scored(None, Share(p, 2), sequences=sets[p]),
        )
        for name, sets in {
            "changed": (whole, other),
            "fewer": (whole, whole[:-20]),
            "none": (whole, []),
        }.items()
    }


def not_finite(folder):
    """A batch of one process is not finite."""
    del folder
    name = scored(None, ALONE)["asked"][3]
    return together(2, lambda p: scored(None, Share(p, 2), bad=name))


SCENARIOS = (shared, groups, killed, different, not_finite)

if __name__ == "__main__":
    (scenario,) = (one for one in SCENARIOS if one.__name__ == sys.argv[1])
    print(json.dumps(scenario(sys.argv[2])))
