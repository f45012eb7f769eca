"""Laws of experts and of weights divided among devices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxcontam.models.config import ExpertShape, GateClip
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.families import FAMILIES
from jaxcontam.models.layers import Experts, Linear
from jaxcontam.models.sharding import divided_axis, weight_name, weight_sharding
from tests.support.decoders import LLAMA
from tests.support.family_files import RAW, raw_config

PLAIN = dataclasses.replace(LLAMA, d_model=12, d_ff=10)


def with_experts(**shape):
    wanted = {"n": 4, "n_used": 2, "normalised": True} | shape
    return dataclasses.replace(PLAIN, experts=ExpertShape(**wanted))


def experts(config, seed=0):
    """A block's experts with weights far from their start."""
    made = nnx.eval_shape(lambda: Experts(config, rngs=nnx.Rngs(0)))
    rng = np.random.default_rng(seed)

    def values(leaf):
        return jnp.asarray(rng.normal(0, 0.6, leaf.shape).astype(np.float32))

    nnx.update(made, jax.tree.map(values, nnx.state(made)))
    return made


def hidden(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(made, hidden_BTD):
    """The layer's output, compiled once as a whole."""
    graphdef, state = nnx.split(made)
    call = jax.jit(lambda state, hidden_BTD: nnx.merge(graphdef, state)(hidden_BTD))
    return np.asarray(call(state, hidden_BTD))


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(
    ("is_even", "biased"), [(True, False), (False, False), (True, True)]
)
def test_chosen_experts_give_the_sums_of_all(platform, is_even, biased):
    config = with_experts(n=5, biased=biased, has_preference=biased)
    if biased:
        clip = GateClip(limit=1.0, slope=1.7)
        config = dataclasses.replace(config, gate_clip=clip)
    made = experts(config)
    # Tokens that are alike choose the same two experts, and three have no token.
    hidden_BTD = hidden(2, 97, 12) if is_even else np.full((2, 97, 12), 0.3, np.float32)
    slope_BTD = hidden(2, 97, 12, seed=1)
    graphdef, state = nnx.split(made)

    def weighted(state, hidden_BTD, platform):
        out_BTD = nnx.merge(graphdef, state)(hidden_BTD, platform)
        return jnp.sum(out_BTD * slope_BTD), out_BTD

    both = jax.jit(
        jax.value_and_grad(weighted, argnums=(0, 1), has_aux=True),
        static_argnames="platform",
    )
    found, wanted = (both(state, hidden_BTD, platform=p) for p in (platform, "cuda"))
    text = str(jax.make_jaxpr(weighted, static_argnums=2)(state, hidden_BTD, platform))
    assert {"cpu": "cond[", "tpu": "ragged_dot"}[platform] in text
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        # Sums of 194 tokens and 10 inputs of about 1, in another order.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
def test_a_row_has_the_same_bits_at_any_place_among_any_mates(platform):
    graphdef, state = nnx.split(experts(with_experts(n=5)))
    call = jax.jit(lambda x_BTD: nnx.merge(graphdef, state)(x_BTD, platform))
    own_TD, found = hidden(40, 12), []
    # Mates that are all alike fill the blocks of two experts.
    alike = np.broadcast_to(hidden(12, seed=3), (4, 40, 12))
    for place, mates in [(0, hidden(4, 40, 12, seed=1)), (3, alike), (2, -alike)]:
        batch = np.array(mates)
        batch[place] = own_TD
        found.append(np.asarray(call(batch))[place])
    np.testing.assert_array_equal(found[1:], [found[0]] * 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_heads_as_axes_of_a_product_are_those_that_are_cut(dtype):
    """Values and gradients, of a map to groups of heads and of one from them."""
    made = Linear(12, 20, bias=True, rngs=nnx.Rngs(0), rounds=True)
    back = Linear(20, 12, bias=True, rngs=nnx.Rngs(1))
    for one in (made, back):
        one.kernel[...] = one.kernel[...].astype(dtype)
        one.bias[...] = hidden(*one.bias[...].shape, seed=2)
    graphdef, state = nnx.split((made, back))

    def total(state, x_BTI, at_once):
        made, back = nnx.merge(graphdef, state)
        parts = made.to_heads(x_BTI, [2, 1, 2], at_once=at_once)
        assert [part.shape for part in parts] == [(2, 7, n, 4) for n in (2, 1, 2)]
        y_BTO = back.of_heads(jnp.concatenate(parts[::-1], axis=2), at_once=at_once)
        return jnp.sum(jnp.sin(y_BTO.astype(jnp.float32)))

    found, wanted = (
        jax.value_and_grad(total, argnums=(0, 1))(state, hidden(2, 7, 12), at_once)
        for at_once in (True, False)
    )
    # Sums of 12 to 20 terms; bfloat16 has 8 bits, and gradients here are about 1.
    atol = 1e-5 if dtype == "float32" else 2e-2
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        one, other = (np.asarray(x, np.float32) for x in (one, other))
        np.testing.assert_allclose(one, other, atol=atol)


def test_experts_of_groups_may_be_mapped_over():
    """A TPU's kernel has no batch axis, and pairs are scored side by side."""
    graphdef, state = nnx.split(experts(with_experts(n=5, biased=True)))

    def call(x_BTD):
        return nnx.merge(graphdef, state)(x_BTD, "tpu")

    x_MBTD = hidden(3, 2, 97, 12)
    assert "ragged_dot" in str(jax.make_jaxpr(jax.vmap(call))(x_MBTD))
    found = jax.jit(jax.vmap(call))(x_MBTD)
    alone = [jax.jit(call)(x_BTD) for x_BTD in x_MBTD]
    np.testing.assert_array_equal(found, alone)


# Few tokens take all experts, many the chosen ones.
@pytest.mark.parametrize("n_tokens", [16, 200])
def test_expert_that_overflows_reaches_only_the_tokens_that_chose_it(n_tokens):
    made = experts(with_experts(n_used=1))
    hidden_BTD = hidden(1, n_tokens, 12)
    choice_T = (hidden_BTD @ np.asarray(made.router.kernel[...]))[0].argmax(-1)
    assert set(choice_T) == {0, 1, 2, 3}
    before_TD = run(made, hidden_BTD)[0]
    made.down.kernel[...] = made.down.kernel[...].at[2].set(jnp.inf)
    after_TD = run(made, hidden_BTD)[0]
    assert not np.isfinite(after_TD[choice_T == 2]).any()
    np.testing.assert_array_equal(after_TD[choice_T != 2], before_TD[choice_T != 2])


@pytest.mark.parametrize("model_type", RAW)
def test_every_large_weight_of_every_family_is_divided(model_type):
    raw = raw_config(model_type)
    decoder = nnx.eval_shape(
        lambda: Decoder(FAMILIES[model_type].read_config(raw), rngs=nnx.Rngs(0))
    )
    axes = dict(weight_sharding(nnx.state(decoder), 2).axes)
    found = jax.tree.leaves_with_path(nnx.state(decoder))
    sizes = {weight_name(path): leaf.shape for path, leaf in found}
    wide = [name for name, shape in sizes.items() if len(shape) > 1]
    kept = {name for name in wide if name not in axes}
    # Norms and biases of layers, and learned positions, are whole on each device.
    assert not {name for name in kept if name.endswith("kernel")}
    assert {"embedding"} <= axes.keys()
    assert all(sizes[name][axis] % 2 == 0 for name, axis in axes.items())


def test_experts_are_divided_by_their_inputs():
    assert divided_axis("blocks.mlp.up.kernel", (2, 3, 20, 28), 4) == 2
    assert divided_axis("blocks.mlp.router.kernel", (2, 20, 3), 4) == 1
    assert divided_axis("head_bias", (20,), 4) is None
