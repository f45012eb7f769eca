"""The kernel on eight devices: the numbers of one, and no device talks to another."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import local_scorer

ROOT = Path(__file__).resolve().parent.parent

# Run in a process of its own, since the number of devices is fixed at the first use.
EIGHT_DEVICES = """
import sys
import jax, numpy as np
from flax import nnx
from tests.test_mesh import decoder, sequences
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.mesh import data_mesh, sharded_forward
assert len(jax.devices()) == 8
model = decoder()
tokens = local_scorer(model, moments=True).tokens(sequences())
np.savez(sys.argv[1], *tokens)
graphdef, state = nnx.split(model)
forward = sharded_forward(graphdef, state, data_mesh(), moments=True)
rows = np.zeros((16, 32), np.int32)
text = jax.jit(forward).lower(rows, rows).compile().as_text()
assert "sharding" in text or "num_partitions=8" in text, "not partitioned"
words = ["all-reduce", "all-gather", "all-to-all", "reduce-scatter"]
words += ["collective-permute", "collective-broadcast"]
found = [word for word in words if word in text]
assert not found, found
print("no collective")
"""


def decoder():
    shape = llama_shape(
        vocab_size=1500, d_model=32, n_layers=2, n_heads=4, d_ff=64, context=64
    )
    return Decoder(shape, rngs=nnx.Rngs(0))


def sequences():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 64, size=37)
    return [rng.integers(0, 1500, size=n).astype(np.int32) for n in lengths]


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    out = tmp_path_factory.mktemp("mesh") / "tokens.npz"
    done = subprocess.run(
        [sys.executable, "-c", EIGHT_DEVICES, str(out)],
        env={
            **os.environ,
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with out.open("rb") as file, np.load(file) as archive:
        return done.stdout, [archive[f"arr_{i}"] for i in range(len(archive.files))]


def test_eight_devices_give_the_numbers_of_one(eight):
    one = local_scorer(decoder(), moments=True).tokens(sequences())
    for a, b in zip(eight[1], one, strict=True):
        # Rows of another batch shape: float32 rounding over 1,500 logits.
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_compiled_kernel_has_no_collective(eight):
    assert eight[0].strip() == "no collective"


def test_batches_divide_evenly_among_devices():
    from jaxcontam.scoring.batching import plan_batches

    batches = plan_batches([5, 9, 30] * 11, context=64, batch_tokens=64, n_devices=8)
    assert all(batch.n_rows % 8 == 0 for batch in batches)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(33))


def test_kernel_scores_on_every_local_device():
    assert local_scorer(decoder()).n_devices == len(jax.devices())
