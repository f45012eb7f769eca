"""One process of a run on several: started by tests, not collected by pytest."""

import sys
import time
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from jaxcontam.models.decoder import Decoder
from train.checkpoints import Checkpoints
from train.loop import Watch, train
from train.presets import PRESETS
from train.rows import Rows, row_batches

N_STEPS = 60
PULSE = PRESETS["pulse"]


def main(folder: Path, port: int, process: int, n_processes: int) -> None:
    """Train from where the folder's checkpoints stand; say how far, keep the losses."""
    jax.config.update("jax_platforms", "cpu")
    if n_processes > 1:
        jax.distributed.initialize(
            f"127.0.0.1:{port}", num_processes=n_processes, process_id=process
        )
    ids = np.random.default_rng(0).integers(0, 512, 20_000, dtype=np.int32)
    starts = np.random.default_rng(1).permutation(312)[: 4 * N_STEPS] * 64
    losses = {}

    def keep(before, found):
        losses.update(enumerate(found.tolist(), before + 1))
        print("steps", before + len(found), flush=True)
        if n_processes > 1:
            time.sleep(0.5)  # for a signal to come between two steps

    with Checkpoints(folder, preset=PULSE) as checkpoints:
        trained = train(
            PULSE,
            Decoder(PULSE.decoder, rngs=nnx.Rngs(7)),
            row_batches(
                Rows(ids, starts, 64),
                batch_rows=4,
                n_steps=N_STEPS,
                process=process,
                n_processes=n_processes,
            ),
            n_steps=N_STEPS,
            checkpoints=checkpoints,
            watch=Watch(losses=keep),
        )
    print("done", trained.step, trained.finished, flush=True)
    np.save(folder / f"losses-{n_processes}-{process}.npy", sorted(losses.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
