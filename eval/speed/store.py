"""What does the store of scores add to scoring, for texts of many lengths?

The store is timed under a forward function that costs nothing, since its share of the
real one's time is smaller than that time's noise.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np

from eval.speed.measure import interleaved
from eval.speed.subjects import decoder_of, n_parameters, random_ids
from jaxcontam.scoring.identity import ScoreIdentity, cpu_name

_N_TEXTS = 32


def measure_store(rounds: int, *, tiny: bool) -> dict:
    """Time of looking for missing rows and writing them, beside a 30 M model's.

    Returns:
        Seconds of each way in each round, microseconds a batch, and the share of the
        scoring time that a look for missing rows and their write take together.
    """
    from jaxcontam.scoring.local import local_scorer
    from jaxcontam.scoring.scorer import Scorer
    from jaxcontam.scoring.store import ScoreStore

    decoder = decoder_of("30m", tiny=tiny)
    real, rng = local_scorer(decoder), np.random.default_rng(0)
    lengths = rng.integers(16, 513, 4 if tiny else _N_TEXTS).tolist()
    texts = random_ids(decoder.config.vocab_size, lengths, seed=0)
    n_batches = len(real.plan(texts)[1])

    def free(inputs_BS: np.ndarray, targets_BS: np.ndarray) -> list[np.ndarray]:
        return [np.zeros(inputs_BS.shape, np.float32)]

    with tempfile.TemporaryDirectory() as directory:
        folders = (Path(directory) / str(i) for i in itertools.count())

        def score(folder: Path | None) -> None:
            store = None if folder is None else ScoreStore(folder, _stub_identity())
            Scorer(
                free,
                context=decoder.config.context,
                batch_tokens=real.batch_tokens,
                store=store,
            ).sums(texts)

        full = next(folders)
        score(full)
        timed = interleaved(
            {
                "scoring": lambda: real.sums(texts),
                "nothing": lambda: score(None),
                "write": lambda: score(next(folders)),
                "read": lambda: score(full),
            },
            rounds,
        )
    write = timed.median("write") - timed.median("nothing")
    return {
        "n_parameters": n_parameters(decoder),
        "n_batches": n_batches,
        "seconds": timed.seconds,
        "write_us": 1e6 * write / n_batches,
        "read_us": 1e6 * timed.median("read") / n_batches,
        "batch_us": 1e6 * timed.median("scoring") / n_batches,
        "share": write / timed.median("scoring"),
    }


def _stub_identity() -> ScoreIdentity:
    """Of scores that stand for nothing."""
    return ScoreIdentity(
        model="",
        prefix_id=None,
        context=1024,
        moments=False,
        dtype="float32",
        precision="highest",
        attention="blocks",
        kernel=0,
        code="",
        platform="cpu",
        device=cpu_name(),
        n_devices=1,
        n_model=1,
        cpu_threads=1,
        compiler="",
    )
