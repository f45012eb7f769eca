"""Both forms of training populations give the models of one call a step."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from tests.support.stepwise import train_decoder
from train.population_device import _compiled_scan, train_scanned
from train.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
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


# In a process of its own, since the number of devices is fixed at the first use.
TWO_DEVICES = """
import jax, numpy as np
from flax import nnx
from tests.train.test_population import PULSE, assert_same_weights, random_rows
from train.population_device import train_scanned, train_together
assert len(jax.devices()) == 2
from tests.train import test_population_scorer as scorer
from train.population_device import score_population
decoders, graphdef, states = scorer.population(range(4))
groups = [scorer.draw_groups(9, seed) for seed in range(4)]
found = score_population(
    graphdef, states, groups, context=scorer.CONTEXT, side_by_side=True
)
scorer.assert_as_single(decoders, groups, found)
rows = np.stack([random_rows(4 * 4, seed) for seed in range(3)])
seeds = (7, 8, 2**31)
_, states, losses = train_together(PULSE, rows, seeds=seeds)
assert losses.shape == (3, 4)
for m, seed in enumerate(seeds):
    alone, alone_losses = train_scanned(PULSE, rows[m], seed=seed)
    np.testing.assert_allclose(losses[m], alone_losses, rtol=1e-5)
    own = jax.tree.map(lambda x: x[m], states)
    # Sums in another order, 4 steps of at most 5e-3: Adam divides by the size of a
    # gradient, so a gradient near 0 turns rounding into a share of a step.
    assert_same_weights(own, nnx.state(alone), rtol=0, atol=1e-4)
"""


# A process with devices of its own, which compiles everything again.
@pytest.mark.slow
def test_models_split_over_two_devices_train_and_score_as_on_one():
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=ROOT,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
