"""Training as users compile it: equal bits of equal seeds.

No mark of `unoptimised` belongs here: what the optimiser of XLA makes of a step is what
these laws are about.
"""

import numpy as np

from tests.support.compile_mode import compiles_plainly
from tests.support.stepwise import train_decoder
from tests.train.test_loop import N_STEPS, PULSE


def test_same_seed_gives_the_same_weights_and_another_seed_others():
    assert not compiles_plainly()
    # As many steps of as many rows as below: compiled once for both.
    rows = np.random.default_rng(0).integers(
        0, 512, size=(PULSE.batch_rows * N_STEPS, PULSE.context + 1), dtype=np.int32
    )
    runs = [train_decoder(PULSE, rows, seed=seed) for seed in (3, 3, 4)]
    embeddings = [np.asarray(decoder.embedding[...]) for decoder, _ in runs]
    np.testing.assert_array_equal(embeddings[0], embeddings[1])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert not np.array_equal(embeddings[0], embeddings[2])
