"""Loading a model takes little more memory than the model."""

import multiprocessing
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.checkpoint import load_decoder, save_checkpoint
from jaxcontam.models.config import gpt2_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.mesh import device_mesh, parse_mesh

STATUS = Path("/proc/self/status")
# 16 M parameters in a few large stacks: a second copy of one would be seen.
SHAPE = gpt2_shape(vocab_size=4000, d_model=384, n_layers=8, n_heads=4, context=64)


def memory_mb(field):
    line = next(row for row in STATUS.read_text().splitlines() if row.startswith(field))
    return int(line.split()[1]) * 1.024e-3


def growth_and_size(folder, word):
    """Peak of resident memory while loading over that before, and the model's size."""
    mesh = device_mesh(parse_mesh(word))
    nothing = np.zeros(1, np.float32)
    jax.block_until_ready(jax.device_put(nothing))
    load_decoder(folder / "warm", mesh=mesh)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    decoder = load_decoder(folder / "model", mesh=mesh)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(decoder))) * 1e-6
    return memory_mb("VmHWM") - before, size


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    ("n_devices", "word"), [(1, None), (8, "fsdp=8"), (8, "data=2,fsdp=4")]
)
def test_host_holds_little_beside_the_model(n_devices, word, tmp_path, monkeypatch):
    small = gpt2_shape(vocab_size=40, d_model=8, n_layers=1, n_heads=1, context=8)
    for name, shape in {"warm": small, "model": SHAPE}.items():
        decoder = Decoder(shape, rngs=nnx.Rngs(0))
        save_checkpoint(decoder, None, tmp_path / name, model_type="gpt2")
    # Virtual devices share the host's memory, as their copies of one part do.
    flags = f"--xla_force_host_platform_device_count={n_devices}"
    monkeypatch.setenv("XLA_FLAGS", flags)
    with multiprocessing.get_context("spawn").Pool(1) as fresh_process:
        growth, size = fresh_process.apply(growth_and_size, (tmp_path, word))
    assert size > 60
    assert growth < 1.2 * size
