"""CPU seconds of two checkouts, side by side in one run: training and scoring.

    python .ci/compare_speed.py OLD NEW [ROUNDS]

Each checkout has a process of its own on the last core; they take turns, and each
prints what its own clock of CPU time says, so that other work on the machine moves
both. A ratio above 1 says that NEW is faster. Some ten minutes.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

WAYS = ("train", "score 256", "score real")


def ways(folder: Path) -> dict[str, Callable[[], object]]:
    """A step of four rows, and two files, by the checkout that is imported."""
    import numpy as np

    from eval.speed.measure import decoder_of, random_ids, shape_of
    from eval.speed.train import _our_steps
    from jaxcontam.models.checkpoint import load_decoder, save_checkpoint
    from jaxcontam.scoring.local import local_scorer

    save_checkpoint(decoder_of("30m", tiny=False), None, folder, model_type="gpt2")
    V = shape_of("30m", tiny=False).vocab_size
    rows = random_ids(V, [257] * 4, seed=1)
    lengths = np.random.default_rng(0).integers(20, 200, size=24).tolist()
    real = random_ids(V, lengths, seed=2)
    scorer = local_scorer(load_decoder(folder))
    made = (
        _our_steps(folder, np.stack(rows)),
        lambda: scorer.tokens(rows),
        lambda: scorer.tokens(real),
    )
    return dict(zip(WAYS, made, strict=True))


def serve() -> None:
    """Do what each line of stdin names, and print its CPU seconds."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with TemporaryDirectory() as folder:
        known = ways(Path(folder))
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
