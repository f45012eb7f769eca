"""Training beside torch's: weights, schedule, decay and clipping alike."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from eval.speed.subjects import torch_model
from eval.torch_curve import decay_groups, rows_of
from jaxcontam.models.config import gpt2_shape
from jaxcontam.models.decoder import Decoder
from train.config import PRESETS
from train.optimizer import make_optimizer


def test_thirty_steps_lose_what_torchs_lose(study):
    for row in study("torch_curve").document["rows"]:
        # Adam divides by the root of its second moment: roundings grow.
        assert row["largest"] < 1e-3, row
        assert row["deviation"] > 0


@pytest.mark.parametrize("name", ["llama", "untied llama", "gpt2"])
def test_the_weights_that_decay_here_decay_in_torch(name):
    torch = pytest.importorskip("torch")
    config = PRESETS["pulse"].decoder
    if name == "untied llama":
        config = dataclasses.replace(config, tied=False)
    if name == "gpt2":
        config = gpt2_shape(
            vocab_size=99, d_model=32, n_layers=2, n_heads=4, context=64
        )
    params = nnx.state(Decoder(config, rngs=nnx.Rngs(0)), nnx.Param)
    # With gradients of zero, what changes has decayed.
    optimizer = make_optimizer(PRESETS["pulse"].optimizer, 1)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = optimizer.init(params)
    for _ in range(2):
        updates, state = optimizer.update(zeros, state, params)
    ours = sum(int((u != 0).sum()) for u in jax.tree.leaves(updates))
    groups = decay_groups(torch_model(config, "cpu", torch.float32))
    assert sum(weight.numel() for weight in groups[True]) == ours
    assert groups[False]


def test_fewer_steps_than_windows_have_a_window_each():
    curves = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.5], [2.0, 2.0, 2.0], [3.0, 2.0, 1.0]]
    found = rows_of(curves)
    assert [row["steps"] for row in found] == [1, 2, 3]
    assert [row["largest"] for row in found] == [0, 0, 0.5]
