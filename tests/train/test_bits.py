"""Training as users compile it: equal bits of equal seeds, and of both forms.

No mark of `unoptimised` belongs here: what the optimiser of XLA makes of a step is what
these laws are about.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from tests.support.compile_mode import compiles_plainly
from tests.support.stepwise import train_decoder
from train.config import PRESETS
from train.population_device import _compiled_scan, train_scanned

ROOT = Path(__file__).resolve().parents[2]
PULSE = PRESETS["pulse"]


def random_rows(n, seed=0):
    return np.random.default_rng(seed).integers(0, 512, (n, 65), dtype=np.int32)


def assert_same_weights(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), **tolerance)


def test_same_seed_gives_the_same_weights_and_another_seed_others():
    assert not compiles_plainly()
    # Thirty steps, and rows that do not fill one.
    rows = random_rows(4 * 30 + 3)
    runs = [train_decoder(PULSE, rows, seed=seed) for seed in (5, 5, 4)]
    one, again, other = (nnx.state(decoder) for decoder, _ in runs)
    assert_same_weights(one, again, rtol=0, atol=0)
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert not np.array_equal(one["embedding"][...], other["embedding"][...])

    scanned, losses = train_scanned(PULSE, rows, seed=5)
    # Equal to the bit on the CPUs that were tried; a compiler may round a step within
    # a loop otherwise, by 1e-7 a weight and step.
    np.testing.assert_allclose(runs[0][1], losses, rtol=1e-5)
    assert_same_weights(one, nnx.state(scanned), rtol=0, atol=1e-5)
    # Models of one shape share what is compiled, and not their weights.
    before = _compiled_scan.cache_info().misses
    second, _ = train_scanned(PULSE, random_rows(120, 2), seed=2)
    assert _compiled_scan.cache_info().misses == before
    assert not np.array_equal(second.embedding[...], scanned.embedding[...])


# In a process of its own, since the number of devices is fixed at the first use.
TWO_DEVICES = """
import jax, numpy as np
from flax import nnx
from tests.train import test_bits as bits, test_population_device as one
from train.population_device import score_population, train_scanned, train_together
assert len(jax.devices()) == 2
decoders, graphdef, states = one.population(range(4))
groups = [one.draw_groups(9, seed) for seed in range(4)]
found = score_population(
    graphdef, states, groups, context=one.CONTEXT, side_by_side=True
)
one.assert_as_single(decoders, groups, found)
rows = np.stack([bits.random_rows(4 * 4, seed) for seed in range(3)])
seeds = (7, 8, 2**31)
_, states, losses = train_together(bits.PULSE, rows, seeds=seeds)
assert losses.shape == (3, 4)
for m, seed in enumerate(seeds):
    alone, alone_losses = train_scanned(bits.PULSE, rows[m], seed=seed)
    np.testing.assert_allclose(losses[m], alone_losses, rtol=1e-5)
    own = jax.tree.map(lambda x: x[m], states)
    # Sums in another order, 4 steps of at most 5e-3: Adam divides by the size of a
    # gradient, so a gradient near 0 turns rounding into a share of a step.
    bits.assert_same_weights(own, nnx.state(alone), rtol=0, atol=1e-4)
"""


# A process with devices of its own, which compiles everything again.
@pytest.mark.slow
def test_models_split_over_two_devices_train_and_score_as_on_one():
    own = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    own |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
