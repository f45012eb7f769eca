"""CPU seconds of two checkouts, side by side in one run: training and scoring.

    python .ci/compare_speed.py OLD NEW [ROUNDS]

Each checkout has a process of its own on the last core; they take turns, and each
prints what its own clock of CPU time says, so that other work on the machine moves
both. A ratio above 1 says that NEW is faster. Some ten minutes.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

WAYS = ("train", "score 256", "score real")


def ways() -> dict[str, Callable[[], object]]:
    """A step of four rows, and two files, by the checkout that is imported."""
    import jax
    import numpy as np
    import optax
    from flax import nnx

    from jaxcontam.models.config import gpt2_shape
    from jaxcontam.models.decoder import Decoder
    from jaxcontam.scoring.local import local_scorer
    from train.step import training_step

    try:
        from jaxcontam.processes import keep_freed_memory
    except ImportError:  # an older checkout
        from train.population_workers import keep_freed_memory
    keep_freed_memory()
    sizes = {"d_model": 384, "n_layers": 6, "n_heads": 6, "context": 1024}
    shape = gpt2_shape(vocab_size=50257, **sizes)
    rng = np.random.default_rng(0)
    rows = list(rng.integers(50257, size=(4, 257), dtype=np.int32))
    lengths = rng.integers(20, 200, size=24)
    real = [rng.integers(50257, size=n, dtype=np.int32) for n in lengths]
    graphdef, params = nnx.split(Decoder(shape, rngs=nnx.Rngs(0)))
    optimizer = optax.adamw(1e-3)
    state = [params, optimizer.init(params)]
    step = functools.partial(training_step, graphdef, optimizer)
    update = jax.jit(step, donate_argnums=(0, 1))
    # Of its own: a step gives away the weights that it was given.
    scorer = local_scorer(Decoder(shape, rngs=nnx.Rngs(0)))

    def train() -> None:
        *state[:], told = update(*state, np.stack(rows))
        jax.block_until_ready(told)

    made = (train, lambda: scorer.tokens(rows), lambda: scorer.tokens(real))
    return dict(zip(WAYS, made, strict=True))


def serve() -> None:
    """Do what each line of stdin names, and print its CPU seconds."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    known = ways()
    for way in known.values():  # the first calls compile
        way()
        way()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.process_time()
        known[line.strip()]()
        print(time.process_time() - start, flush=True)


def started(tree: str) -> subprocess.Popen[str]:
    """A process of a checkout that has compiled all it needs."""
    made = subprocess.Popen(
        [sys.executable, __file__],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": tree},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert made.stdout
    for line in made.stdout:
        if line.strip() == "ready":
            return made
    raise SystemExit(f"{tree}: could not be measured")


def seconds(process: subprocess.Popen[str], way: str) -> float:
    """CPU seconds of one call."""
    assert process.stdin and process.stdout
    process.stdin.write(way + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Measure, a line a way."""
    old, new = (started(str(Path(word).resolve())) for word in sys.argv[1:3])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    for way in WAYS:
        ratios: list[float] = []
        for i in range(rounds):
            order = (old, new) if i % 2 else (new, old)
            found = {process: seconds(process, way) for process in order}
            ratios.append(found[old] / found[new])
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{way}: old / new {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else serve()
