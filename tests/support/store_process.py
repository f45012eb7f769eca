"""A stub of a model, and a scorer of it with a store."""

import hashlib

import numpy as np

from jaxcontam.scoring.identity import ScoreIdentity
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.store import ScoreStore

V, CONTEXT, BATCH_TOKENS = 50, 32, 64
TABLE = -np.random.default_rng(0).gamma(1.0, size=(V, V)).astype(np.float32)

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


def scorer_with(folder, log=None):
    """A scorer of random bigrams; `log` gets the name of each batch it is asked for."""

    def forward(inputs_BS, targets_BS):
        if log is not None:
            with log.open("ab", buffering=0) as file:
                file.write(f"{batch_name(inputs_BS)}\n".encode())
        return bigrams(inputs_BS, targets_BS)

    return counted(folder, forward=forward)[0]
