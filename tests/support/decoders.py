"""Decoders whose every weight is drawn anew, and what they hold."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.config import llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.sharding import weight_name
from jaxcontam.models.weights import is_operand

# Odd sizes, and three layers, so that no axis can be taken for another.
LLAMA = llama_shape(
    vocab_size=300, d_model=36, n_layers=3, n_heads=6, d_ff=53, context=24
)
MORE = {"qkv_bias": True, "output_bias": True, "mlp_bias": True, "norm_eps": 1e-2}
FULL = {"n_kv_heads": 2, "head_dim": 10, "rope_theta": 500_000.0, "tied": False}
LLAMA_FULL = dataclasses.replace(LLAMA, activation="gelu_tanh", **FULL, **MORE)
OLDER = {"positions": "learned", "norm": "layer", "activation": "gelu", "gated": False}
GPT2 = dataclasses.replace(LLAMA, **OLDER, **MORE)
# Names start with the model_type.
SHAPES = {
    "llama": LLAMA,
    "llama_full": LLAMA_FULL,
    "gpt2": GPT2,
    "gpt2_untied": dataclasses.replace(GPT2, tied=False),
}


def spread(config, *, seed=0, loc=1.0, scale=0.3, dtype="float32"):
    """A decoder whose every weight, biases and norms too, is far from its start."""
    decoder = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def drawn(path, leaf):
        name = weight_name(path)
        middle = loc * (1.0 - config.norm_offset) if "scale" in name else 0.0
        kind = dtype if is_operand(name) else "float32"
        return jnp.asarray(rng.normal(middle, scale, leaf.shape), kind)

    nnx.update(decoder, jax.tree.map_with_path(drawn, nnx.state(decoder)))
    return decoder


def weights(decoder):
    found = jax.tree.leaves_with_path(nnx.state(decoder))
    return {weight_name(path): np.asarray(leaf) for path, leaf in found}


def assert_same_weights(found, expected):
    found, expected = weights(found), weights(expected)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
