"""Training in one call: the same models as one call a step."""

import jax
import numpy as np
import pytest
from flax import nnx

from train.loop import train_decoder
from train.population import _compiled, train_scanned
from train.presets import PRESETS

PULSE = PRESETS["pulse"]


def random_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 512, (n, 65), dtype=np.int32)


def test_scanned_training_gives_the_weights_of_one_call_a_step():
    rows = random_rows(4 * 30 + 3)
    stepped, losses = train_decoder(PULSE, rows, seed=5)
    scanned, scanned_losses = train_scanned(PULSE, rows, seed=5)
    # Equal to the bit on the CPUs that were tried; a compiler may round a step within
    # a loop otherwise, by 1e-7 a weight and step.
    np.testing.assert_allclose(losses, scanned_losses, rtol=1e-5)
    for one, other in zip(
        jax.tree.leaves(nnx.state(stepped)),
        jax.tree.leaves(nnx.state(scanned)),
        strict=True,
    ):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=1e-5)


def test_models_of_one_shape_share_what_is_compiled():
    before = _compiled.cache_info()
    decoders = [train_scanned(PULSE, random_rows(24, s), seed=s)[0] for s in (1, 2)]
    after = _compiled.cache_info()
    assert after.misses - before.misses == 1
    embeddings = [np.asarray(decoder.embedding[...]) for decoder in decoders]
    assert not np.array_equal(*embeddings)


def test_fewer_rows_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="fill a batch of 4, got 3"):
        train_scanned(PULSE, random_rows(3), seed=0)
