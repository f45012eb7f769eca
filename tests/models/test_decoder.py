"""The decoder against a dense one in float64 NumPy, and its laws."""

import ast
import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

from jaxcontam.models import attention, delta, layers, rope, self_attention, stacks
from jaxcontam.models import decoder as decoder_module
from jaxcontam.models.config import GateClip, LatentShape, gpt2_shape, llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from tests.support.decoders import spread

pytestmark = pytest.mark.unoptimised

# Queries attend in blocks of 256: one whole block and a rest.
LONG = 300

LLAMA = dataclasses.replace(
    llama_shape(
        vocab_size=31, d_model=24, n_layers=2, n_heads=6, d_ff=14, context=LONG
    ),
    n_kv_heads=2,
    head_dim=8,
    rope_theta=500.0,
    tied=False,
)
GPT2 = dataclasses.replace(
    gpt2_shape(vocab_size=31, d_model=20, n_layers=2, n_heads=4, context=LONG), d_ff=14
)


def ids(T, *, B=2, seed=0):
    return np.random.default_rng(seed).integers(0, 31, size=(B, T), dtype=np.int32)


def numpy_weights(module):
    """Nested dicts of float64 arrays."""
    pure = nnx.to_pure_dict(nnx.state(module))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), pure)


def dense_norm(x_TD, weights, config):
    if config.norm == "layer":
        x_TD = x_TD - x_TD.mean(axis=-1, keepdims=True)
    size_T1 = np.sqrt((x_TD**2).mean(axis=-1, keepdims=True) + config.norm_eps)
    return x_TD / size_T1 * weights["scale"] + weights.get("bias", 0.0)


def turned(x_TE, config):
    """Pairs (e, e + E/2) as complex numbers, turned by their position's angle."""
    if config.positions == "learned":
        return x_TE
    T, E = x_TE.shape
    speeds = config.rope_theta ** (-np.arange(0, E, 2) / E)
    turns = np.exp(1j * np.arange(T)[:, None] * speeds)
    z = (x_TE[:, : E // 2] + 1j * x_TE[:, E // 2 :]) * turns
    return np.concatenate([z.real, z.imag], axis=-1)


def affine(x_TD, weights):
    return x_TD @ weights["kernel"] + weights.get("bias", 0.0)


def dense_attention(x_TD, weights, config):
    """One head at a time over the whole triangle."""
    H, G, E, T = config.n_heads, config.n_kv_heads, config.head_dim, len(x_TD)
    heads = np.split(affine(x_TD, weights["qkv"]), H + 2 * G, axis=-1)
    q, k, v = heads[:H], heads[H : H + G], heads[H + G :]
    mixed = []
    for h in range(H):
        g = h // (H // G)
        scores_TT = turned(q[h], config) @ turned(k[g], config).T / np.sqrt(E)
        scores_TT[np.triu_indices(T, 1)] = -np.inf
        mixed.append(scipy.special.softmax(scores_TT, axis=-1) @ v[g])
    return affine(np.concatenate(mixed, axis=-1), weights["out"])


def dense_mlp(x_TD, weights, config):
    wide = affine(x_TD, weights["up"])
    if config.gated:
        gate, up = np.split(wide, 2, axis=-1)
        return affine(gate * scipy.special.expit(gate) * up, weights["down"])
    if config.activation == "gelu":
        active = wide * scipy.special.ndtr(wide)
    else:
        cubic = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
        active = 0.5 * wide * (1 + np.tanh(cubic))
    return affine(active, weights["down"])


def dense_decoder(tokens_T, decoder):
    config, weights = decoder.config, numpy_weights(decoder)
    x_TD = weights["embedding"][tokens_T]
    if config.positions == "learned":
        x_TD = x_TD + weights["position_embedding"][: len(tokens_T)]
    for i in range(config.n_layers):
        block = jax.tree.map(lambda leaf, i=i: leaf[i], weights["blocks"])
        for part, layer in [("attention", dense_attention), ("mlp", dense_mlp)]:
            normed_TD = dense_norm(x_TD, block[f"{part}_norm"], config)
            x_TD = x_TD + layer(normed_TD, block[part], config)
    return dense_norm(x_TD, weights["final_norm"], config)


@nnx.jit
def forward(decoder, tokens_BT):
    return decoder(tokens_BT)


ERF = dataclasses.replace(GPT2, activation="gelu")


@pytest.mark.parametrize(
    ("config", "T"),
    [(LLAMA, 1), (LLAMA, 257), (LLAMA, LONG), (GPT2, 256), (GPT2, LONG), (ERF, 9)],
    ids=lambda value: getattr(value, "activation", value),
)
def test_hidden_states_equal_a_dense_float64_decoder(config, T):
    decoder = spread(config)
    tokens_BT = ids(T)
    found_BTD = forward(decoder, jnp.asarray(tokens_BT))
    expected_BTD = np.stack([dense_decoder(row_T, decoder) for row_T in tokens_BT])
    # Two layers of float32 at a stream of size 10, and angles up to 300 that are
    # stored to 3e-5.
    np.testing.assert_allclose(found_BTD, expected_BTD, atol=5e-5)


def test_later_tokens_do_not_change_earlier_hidden_states():
    decoder = spread(LLAMA)
    tokens_BT = ids(LONG)
    changed_BT = tokens_BT.copy()
    changed_BT[:, 200:] = (changed_BT[:, 200:] + 1) % 31
    before, after = (forward(decoder, jnp.asarray(x)) for x in (tokens_BT, changed_BT))
    np.testing.assert_array_equal(before[:, :200], after[:, :200])
    assert (before[:, 200:] != after[:, 200:]).any(axis=-1).all()


def test_input_above_the_context_is_refused():
    decoder = spread(dataclasses.replace(LLAMA, context=8))
    assert nnx.eval_shape(forward, decoder, ids(8)).shape == (2, 8, 24)
    with pytest.raises(ValueError, match="T must be at most 8, got 9"):
        forward(decoder, jnp.asarray(ids(9)))


def test_weights_follow_from_the_seed_and_are_each_layers_own():
    decoders = [Decoder(LLAMA, rngs=nnx.Rngs(seed)) for seed in (3, 3, 4)]
    kernel_LFD = np.asarray(decoders[0].blocks.mlp.down.kernel[...])
    assert (kernel_LFD[0] != kernel_LFD[1]).all()
    first, again, other = (jax.tree.leaves(nnx.state(one)) for one in decoders)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert any((one != two).any() for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_kv_heads": 4}, "n_kv_heads must divide n_heads, got 4 and 6"),
        ({"head_dim": 7}, "rotated dimensions must be even, got 7"),
        ({"shared_norm": True}, "shared_norm must be of parallel blocks"),
        ({"parallel": True, "pre_norms": False}, "must have norms before them"),
        ({"parallel": True, "residual_scale": 0.5}, "blocks that are not parallel"),
        (
            {"gated": False, "gate_clip": GateClip(limit=7.0, slope=1.0)},
            "a gated layer",
        ),
        (
            {"rotated_layers": (True, False), "local_rope_theta": 9.0},
            "must have one base",
        ),
        (
            {"latent": LatentShape(d_values=3, rank=5, query_rank=None)},
            "must be n_heads = 6 where keys are made of a narrow vector, got 2",
        ),
        ({"n_dense": 1}, "before blocks with experts, got 1 of 2"),
    ],
)
def test_shapes_that_cannot_be_built_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LLAMA, **change)


MODULES = (decoder_module, layers, attention, rope, delta, stacks, self_attention)


@pytest.mark.parametrize("module", MODULES)
def test_computation_knows_shapes_and_no_family(module):
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert not {name for name in names if "family" in name or "model_type" in name}
    assert not {word for word in words if isinstance(word, str)} & FAMILIES.keys()
