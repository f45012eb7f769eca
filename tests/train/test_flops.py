"""Floating-point operations against counts by hand and against real weights."""

import dataclasses

import jax
import pytest
from flax import nnx

from jaxcontam.models.config import (
    DecoderConfig,
    DeltaShape,
    ExpertShape,
    LatentShape,
    LocalShape,
    gpt2_shape,
    llama_shape,
)
from jaxcontam.models.decoder import Decoder
from train.flops import forward_flops, product_weights

_LLAMA = llama_shape(
    vocab_size=50, d_model=8, n_layers=3, n_heads=2, d_ff=20, context=16
)
_GPT2 = gpt2_shape(vocab_size=50, d_model=8, n_layers=2, n_heads=4, context=16)
_GROUPED = dataclasses.replace(_LLAMA, n_kv_heads=1, head_dim=6, tied=False)
_EXPERTS = dataclasses.replace(
    _LLAMA, experts=ExpertShape(n=3, n_used=3, normalised=True, d_shared=7)
)
# A dense block, then two with experts; keys and values of narrow vectors.
_LATENT = dataclasses.replace(
    _LLAMA,
    head_dim=6,
    rotary_dim=2,
    latent=LatentShape(d_values=3, rank=5, query_rank=None),
    experts=ExpertShape(n=3, n_used=3, normalised=True, d_shared=7, shared_gated=False),
    n_dense=1,
    d_dense=11,
)
_NARROW_QUERIES = dataclasses.replace(
    _LATENT, latent=LatentShape(d_values=3, rank=5, query_rank=4)
)
# Two layers with a delta rule, one with gated attention.
_DELTA = dataclasses.replace(
    _LLAMA,
    attention_gate=True,
    delta=DeltaShape(n_keys=2, n_values=4, d_keys=3, d_values=5, window=4),
    delta_layers=(True, True, False),
)
# Layers with a window have wider heads; the last two reuse keys and values.
_LOCAL = dataclasses.replace(
    _LLAMA,
    n_layers=4,
    n_kv_heads=1,
    windows=(3, None, 3, None),
    local=LocalShape(n_kv_heads=2, head_dim=6),
    local_rope_theta=700.0,
    query_key_norm="head",
    values_are_keys=True,
    n_reusing=2,
    d_reusing=30,
    d_layer_input=5,
)


@pytest.mark.parametrize(
    "config",
    [_LLAMA, _GPT2, _GROUPED, _EXPERTS, _LATENT, _NARROW_QUERIES, _DELTA, _LOCAL],
)
def test_weights_of_products_are_the_decoders_kernels(config: DecoderConfig):
    state = nnx.eval_shape(lambda: nnx.state(Decoder(config, rngs=nnx.Rngs(0))))
    kernels = [
        leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if any(getattr(part, "key", None) == "kernel" for part in path)
    ]
    assert product_weights(config) == sum(kernels)


def test_flops_are_two_a_weight_and_half_of_the_attention_square():
    # Two layers of 12 D^2 weights, a head of 50 x 8, and in each layer two products of
    # 2 * 8 * 5 * 5, halved.
    by_hand = 5 * 2 * (2 * 12 * 64 + 50 * 8) + 2 * (2 * 2 * 8 * 5 * 5) / 2
    assert forward_flops(_GPT2, [5]) == by_hand
    # Those of sequences add up.
    assert forward_flops(_GPT2, [5, 7]) == by_hand + forward_flops(_GPT2, [7])


def test_experts_that_a_token_does_not_take_cost_nothing():
    two = dataclasses.replace(_EXPERTS.experts, n_used=2)
    fewer = dataclasses.replace(_EXPERTS, experts=two)
    # An expert of three 8 x 20 products in each of three layers.
    assert product_weights(_EXPERTS) - product_weights(fewer) == 3 * 3 * 8 * 20


def test_attention_counts_the_width_of_keys_and_that_of_values():
    # Latent values are 3 wide where heads are 6: of three layers with 2 heads.
    wide = dataclasses.replace(
        _LATENT, latent=LatentShape(d_values=6, rank=5, query_rank=None)
    )
    weights = 2 * (product_weights(wide) - product_weights(_LATENT)) * 4
    more = forward_flops(wide, [4]) - forward_flops(_LATENT, [4])
    assert more - weights == 3 * 2 * 2 * 3 * (4 * 4 / 2)


def test_a_delta_rule_costs_alike_for_every_token():
    # One layer's attention to 4 * 4 / 2 keys, 2 heads of 4 and 4; two layers' states of
    # 4 heads by 3 by 5, read twice and written once, 2 each.
    found = forward_flops(_DELTA, [4]) - 2 * 4 * (product_weights(_DELTA) + 50 * 8)
    assert found == 2 * 2 * (4 + 4) * 8 + 4 * 2 * 3 * 2 * (4 * 3 * 5)


def test_attention_counts_heads_of_each_layer():
    # Two layers with heads of 6 see 3 * 4 - 3 * 3 / 2 keys, two with 4 see 4 * 4 / 2.
    found = forward_flops(_LOCAL, [4]) - 2 * 4 * (product_weights(_LOCAL) + 50 * 8)
    assert found == 2 * 2 * 2 * ((6 + 6) * 7.5 + (4 + 4) * 8)


def test_a_window_as_long_as_the_sequence_saves_nothing_and_a_shorter_one_does():
    wide, narrow = (
        dataclasses.replace(_LLAMA, windows=(size,) * 3) for size in (16, 4)
    )
    assert forward_flops(wide, [16]) == forward_flops(_LLAMA, [16])
    # 16 * 16 / 2 keys become 4 * 16 - 4 * 4 / 2; 4 E = 16 each, 2 heads, 3 layers.
    saved = forward_flops(_LLAMA, [16]) - forward_flops(narrow, [16])
    assert saved == (128 - 56) * 16 * 2 * 3
