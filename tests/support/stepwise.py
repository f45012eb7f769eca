"""A decoder that the training loop makes of rows in memory, one call a step."""

import numpy as np

from train.data import Rows, row_batches
from train.loop import Watch, train
from train.step import fresh_decoder


def train_decoder(config, rows_RT, *, seed):
    """Train from scratch on each row once; the decoder and the loss of each step."""
    R, width = rows_RT.shape
    n_steps = R // config.batch_rows
    found = []
    # Rows side by side are a stream in which each starts after the one before it.
    rows = Rows(rows_RT.reshape(-1), np.arange(R) * width, width - 1)
    trained = train(
        config,
        fresh_decoder(config.decoder, seed=seed, mesh=None),
        row_batches(rows, batch_rows=config.batch_rows, n_steps=n_steps),
        n_steps=n_steps,
        watch=Watch(steps=lambda _, metrics: found.append(metrics["loss"])),
    )
    return trained.decoder, np.concatenate(found)
