"""Laws of the decoder; test_family_parity.py has its numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.config import GateClip, LatentShape
from jaxcontam.models.decoder import Decoder
from tests.support.decoders import LLAMA_FULL, spread

pytestmark = pytest.mark.unoptimised


def ids(T, *, B=2, seed=0):
    return np.random.default_rng(seed).integers(0, 31, size=(B, T), dtype=np.int32)


@nnx.jit
def forward(decoder, tokens_BT):
    return decoder(tokens_BT)


def test_later_tokens_do_not_change_earlier_hidden_states():
    decoder = spread(dataclasses.replace(LLAMA_FULL, context=300))
    tokens_BT = ids(300)
    changed_BT = tokens_BT.copy()
    changed_BT[:, 200:] = (changed_BT[:, 200:] + 1) % 31
    before, after = (forward(decoder, jnp.asarray(x)) for x in (tokens_BT, changed_BT))
    np.testing.assert_array_equal(before[:, :200], after[:, :200])
    assert (before[:, 200:] != after[:, 200:]).any(axis=-1).all()


def test_input_above_the_context_is_refused():
    decoder = spread(dataclasses.replace(LLAMA_FULL, context=8))
    assert nnx.eval_shape(forward, decoder, ids(8)).shape == (2, 8, 36)
    with pytest.raises(ValueError, match="T must be at most 8, got 9"):
        forward(decoder, jnp.asarray(ids(9)))


def test_weights_follow_from_the_seed_and_are_each_layers_own():
    decoders = [Decoder(LLAMA_FULL, rngs=nnx.Rngs(seed)) for seed in (3, 3, 4)]
    kernel_LFD = np.asarray(decoders[0].blocks.mlp.down.kernel[...])
    assert (kernel_LFD[0] != kernel_LFD[1]).all()
    first, again, other = (jax.tree.leaves(nnx.state(one)) for one in decoders)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert any((one != two).any() for one, two in zip(first, other, strict=True))


LATENT = LatentShape(d_values=3, rank=5, query_rank=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_kv_heads": 4}, "n_kv_heads must divide n_heads, got 4 and 6"),
        ({"head_dim": 7}, "rotated dimensions must be even, got 7"),
        ({"shared_norm": True}, "shared_norm must be of parallel blocks"),
        ({"parallel": True, "pre_norms": False}, "must have norms before them"),
        ({"parallel": True, "residual_scale": 0.5}, "blocks that are not parallel"),
        ({"gated": False, "gate_clip": GateClip(limit=7.0, slope=1.0)}, "a gated lay"),
        ({"rotated_layers": (True,) * 3, "local_rope_theta": 9.0}, "must have one ba"),
        ({"latent": LATENT}, "must be n_heads = 6 where keys are .* vector, got 2"),
        ({"n_dense": 1}, "before blocks with experts, got 1 of 3"),
    ],
)
def test_shapes_that_cannot_be_built_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LLAMA_FULL, **change)
