"""A scan over the steps gives the model of one call a step."""

import jax
import numpy as np
import pytest
from flax import nnx

from tests.stepwise import train_decoder
from train.presets import PRESETS
from train.scan import _compiled_scan, train_scanned

PULSE = PRESETS["pulse"]


def random_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 512, (n, 65), dtype=np.int32)


def assert_same_weights(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), **tolerance)


def test_scanned_training_gives_the_weights_of_one_call_a_step():
    rows = random_rows(4 * 30 + 3)
    stepped, losses = train_decoder(PULSE, rows, seed=5)
    scanned, scanned_losses = train_scanned(PULSE, rows, seed=5)
    # Equal to the bit on the CPUs that were tried; a compiler may round a step within
    # a loop otherwise, by 1e-7 a weight and step.
    np.testing.assert_allclose(losses, scanned_losses, rtol=1e-5)
    assert_same_weights(nnx.state(stepped), nnx.state(scanned), rtol=0, atol=1e-5)


def test_models_of_one_shape_share_what_is_compiled():
    before = _compiled_scan.cache_info()
    # As many steps as above, so that at most one of the tests compiles.
    decoders = [train_scanned(PULSE, random_rows(120, s), seed=s)[0] for s in (1, 2)]
    after = _compiled_scan.cache_info()
    assert after.misses - before.misses <= 1 <= after.hits - before.hits
    embeddings = [np.asarray(decoder.embedding[...]) for decoder in decoders]
    assert not np.array_equal(*embeddings)


def test_fewer_rows_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="fill a batch of 4, got 3"):
        train_scanned(PULSE, random_rows(3), seed=0)
