"""Fused attention: which kernel when, and the numbers of the blocks.

No GPU or TPU is at hand here: splash runs in Pallas's interpreter, and what would be
compiled for a TPU or a GPU is read as text.
"""

import dataclasses
import functools
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src.cudnn import fused_attention_stablehlo

from jaxcontam.models import attention, fused_attention
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import (
    Hardware,
    attend_after_prefix,
    attend_splash,
    fuses_prefix,
    hardware,
    kernel_of,
    kernel_of_rows,
)
from jaxcontam.scoring import local
from tests.support.attention_shapes import (
    GROUPED,
    H100,
    LLAMA,
    SHAPE,
    TPU,
    change,
    operands,
)

A100 = Hardware("cuda", "NVIDIA A100", (8, 0))
T4 = Hardware("cuda", "Tesla T4", (7, 5))


@pytest.mark.parametrize(
    ("config", "dtype", "on", "kernel"),
    [
        (SHAPE, "bfloat16", H100, "cudnn"),
        (SHAPE, "bfloat16", A100, "cudnn"),
        (SHAPE, "float32", H100, "blocks"),
        (SHAPE, "bfloat16", T4, "blocks"),
        (change(head_dim=256), "bfloat16", H100, "cudnn"),
        (change(head_dim=256), "bfloat16", A100, "blocks"),
        (change(head_dim=12), "bfloat16", H100, "blocks"),
        (change(attention_softcap=50.0), "bfloat16", H100, "blocks"),
        (change(attention_softcap=50.0), "bfloat16", TPU, "splash"),
        (SHAPE, "float32", TPU, "splash"),
        (SHAPE, "bfloat16", Hardware("tpu", "TPU v3"), "blocks"),
        (SHAPE, "bfloat16", Hardware("rocm", "MI300X"), "blocks"),
        (SHAPE, "bfloat16", Hardware("cpu", "cpu"), "blocks"),
    ],
)
def test_kernel_follows_from_device_dtype_and_shape(config, dtype, on, kernel):
    assert kernel_of(config, dtype, on) == kernel
    assert kernel_of_rows(config, dtype, 256, on) == kernel


def test_short_rows_are_computed_in_blocks():
    found = [kernel_of_rows(SHAPE, "float32", T, TPU) for T in (1, 127, 128)]
    assert found == ["blocks", "blocks", "splash"]


@pytest.mark.parametrize(
    ("windows", "T", "kernel"),
    [
        ((None, None), 256, "splash"),
        ((200, 200), 256, "splash"),
        ((200, None), 256, "blocks"),
        # No row of 200 is longer than the window, so that it hides nothing.
        ((200, None), 200, "splash"),
        ((200, 300), 201, "blocks"),
    ],
)
def test_layers_that_see_differently_far_are_computed_in_blocks(windows, T, kernel):
    assert kernel_of_rows(change(windows=windows), "float32", T, TPU) == kernel


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (SHAPE, "splash"),
        (change(windows=(200, None)), None),
        (change(context=127), None),
    ],
)
def test_report_names_the_kernel_of_rows_as_long_as_the_context(
    config, said, monkeypatch
):
    monkeypatch.setattr(local, "hardware", lambda: TPU)
    checkpoint = types.SimpleNamespace(
        config=config,
        decoder=types.SimpleNamespace(dtype="float32", precision="highest"),
        name="m",
        fingerprint="f",
        n_parameters=1,
    )
    assert local.model_info(checkpoint).attention == said


def test_hardware_here_has_no_fused_kernel():
    assert hardware().platform == jax.devices()[0].platform == "cpu"
    assert kernel_of(SHAPE, "bfloat16", hardware()) == "blocks"


def blocks(q, k, v, config):
    (window,) = fused_attention._windows(config, q.shape[1])
    window = None if window is None else jnp.int32(window)
    positions_T = jnp.arange(q.shape[1])
    return attention._attend_own(q, k, v, positions_T, window, config)


@pytest.fixture
def interpreted(monkeypatch):
    """Splash as a function of the operands and the shape, on a CPU."""
    table = {"splash": functools.partial(attend_splash, interpret=True)}
    monkeypatch.setattr(fused_attention, "_FUSED", table)
    return functools.partial(fused_attention.attend_fused, "splash")


SMALL = dataclasses.replace(SHAPE, n_heads=2, n_kv_heads=1)
CASES = {
    "plain": (SMALL, 128),
    "several blocks": (dataclasses.replace(SMALL, n_kv_heads=2), 384),
    "padded, window": (dataclasses.replace(SMALL, windows=(37, 37)), 150),
    "softcap": (dataclasses.replace(SMALL, attention_softcap=2.0), 128),
    "own scale, wide": (
        dataclasses.replace(SMALL, head_dim=72, attention_scale=0.2),
        128,
    ),
    "all at once": (
        dataclasses.replace(GROUPED, attention_softcap=2.0, windows=(200, 200)),
        600,
    ),
}
"""What is special, a shape, and tokens of a row."""
QUICK = ("padded, window",)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
    ],
)
def test_splash_gives_the_numbers_and_gradients_of_blocks(case, interpreted):
    config, T = CASES[case]
    *inputs, slope = operands(config, T)

    def with_gradients(f):
        def total(q, k, v):
            mixed = f(q, k, v, config)
            return jnp.sum(mixed * slope), mixed

        return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*inputs)

    found, mixed = with_gradients(interpreted)
    wanted, expected = with_gradients(blocks)
    # Sums of up to 600 float32 terms, in another order.
    np.testing.assert_allclose(mixed, expected, atol=1e-5)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(other).max())


# Compiles two decoders; its attention has this law alone.
@pytest.mark.slow
def test_a_whole_decoder_gives_the_same_hidden_states(interpreted):
    config = dataclasses.replace(LLAMA, n_heads=2, n_kv_heads=1)
    tokens_BT = jax.random.randint(jax.random.key(1), (2, 140), 0, 300)
    wanted = Decoder(config, rngs=nnx.Rngs(0))(tokens_BT)
    found = Decoder(config, rngs=nnx.Rngs(0), on=TPU)(tokens_BT)
    assert np.abs(found - wanted).max() > 0, "another kernel"
    # Two layers of sums in another order, normalised to a size of 1.
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.slow
def test_splash_of_bfloat16_is_as_near_the_exact_numbers_as_blocks(interpreted):
    *inputs, slope = operands(SMALL, 128, jnp.bfloat16)
    exact = [x.astype(jnp.float32) for x in inputs]

    def gradients(f, inputs):
        def total(q, k, v):
            return jnp.sum(f(q, k, v, SMALL) * slope.astype(jnp.float32))

        return jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs)

    with jax.default_matmul_precision("highest"):
        found = gradients(interpreted, inputs)
    near, wanted = gradients(blocks, inputs), gradients(blocks, exact)
    for one, other, truth in zip(found, near, wanted, strict=True):
        errors = [
            np.abs(np.asarray(x, np.float32) - truth).mean() for x in (one, other)
        ]
        # Splash rounds more often: the scaled queries, and the mixed values.
        assert errors[0] < 2 * errors[1]
        # bfloat16 keeps 8 bits.
        assert errors[0] < 2**-7 * np.abs(truth).mean()


@pytest.mark.slow
def test_a_change_of_a_later_token_moves_no_earlier_one(interpreted):
    q, k, v, _ = operands(SMALL, 200, B=1)
    mixed = jax.jit(functools.partial(interpreted, config=SMALL))
    before, after = (
        np.asarray(mixed(q, k.at[:, 150:].add(x), v.at[:, 150:].add(x)))
        for x in (0.0, 3.0)
    )
    np.testing.assert_array_equal(after[:, :150], before[:, :150])
    assert np.abs(after - before)[:, 150:].max(axis=(0, 2, 3, 4)).min() > 1e-3


def cudnn_in_xla(q, k, v, *, scale, mask_type, return_residual, **lengths):
    """cuDNN's function: values in the operands' dtype, float32 log-sums `[B, H, T]`."""
    T, S = q.shape[1], k.shape[1]
    seen_TS = jnp.tri(T, S, dtype=bool)
    if mask_type == fused_attention_stablehlo.MaskType.PADDING:
        assert lengths["q_seqlen"].tolist() == [T]
        there_S = jnp.arange(S) < lengths["kv_seqlen"][0]
        seen_TS = jnp.broadcast_to(there_S[None], (T, S))
    n_served = q.shape[2] // k.shape[2]
    q, k, v_BSHE = (
        x.astype(jnp.float32) for x in (q, *(x.repeat(n_served, 2) for x in (k, v)))
    )
    raw = jnp.einsum("bthe,bshe->bhts", q, k)
    scores = jnp.where(seen_TS[None, None], scale * raw, -jnp.inf)
    mixed = jnp.einsum("bhts,bshe->bthe", jax.nn.softmax(scores, axis=-1), v_BSHE)
    assert return_residual
    return mixed.astype(v.dtype), jax.nn.logsumexp(scores, axis=-1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("length", [1, 37, 48])
def test_two_merged_calls_give_the_numbers_of_one_softmax_over_prefix_and_row(
    length, dtype, monkeypatch
):
    monkeypatch.setattr(
        fused_attention_stablehlo, "dot_product_attention", cudnn_in_xla
    )
    config, P, T = GROUPED, 48, 130
    q, k, v, _ = operands(config, T)
    _, keys, values, _ = operands(config, P, B=1)
    # Away from 0 scores are large, as those of a text's first token are.
    away = 3.0
    rounded = [x.astype(dtype) for x in (q + away, k + away, v, keys + away, values)]
    exact = [x.astype(jnp.float32) for x in rounded]

    def blocks_after(q, k, v, keys, values):
        cache = attention.KVCache(keys[0], values[0], jnp.int32(length))
        places_T = length + jnp.arange(T)
        return attention._attend_blocks(q, k, v, places_T, None, config, cache)

    q, k, v, keys, values = rounded
    found = attend_after_prefix(q, k, v, keys[0], values[0], jnp.int32(length), config)
    wanted = blocks_after(*exact)
    if dtype == jnp.float32:
        # Sums of 178 float32 terms of about 1, whose scores of some 40 step by 4e-6.
        np.testing.assert_allclose(found, wanted, atol=4e-5)
        return
    errors = [
        np.square(x - wanted).mean() ** 0.5 for x in (found, blocks_after(*rounded))
    ]
    # Both calls round their values; the blocks round the weights.
    assert 0 < errors[0] < 3 * errors[1]


@pytest.mark.parametrize(
    ("config", "T", "P", "fuses"),
    [
        (SHAPE, 128, 128, True),
        (SHAPE, 127, 128, False),
        (change(windows=(256, 256)), 128, 128, True),
        (change(windows=(255, 255)), 128, 128, False),
        (change(attention_softcap=2.0), 128, 128, False),
    ],
)
def test_rows_after_a_prefix_are_fused_where_nothing_of_it_is_hidden(
    config, T, P, fuses
):
    assert fuses_prefix(config, "bfloat16", T, P, H100) == fuses
    assert not fuses_prefix(config, "float32", T, P, H100)
    assert not fuses_prefix(config, "bfloat16", T, P, TPU)


def test_rows_after_a_prefix_take_blocks_where_jax_keeps_its_calls_elsewhere(
    monkeypatch,
):
    fused_attention._cudnn_calls.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jax._src.cudnn", None)
        assert not fuses_prefix(SHAPE, "bfloat16", 128, 128, H100)
    fused_attention._cudnn_calls.cache_clear()
    assert fuses_prefix(SHAPE, "bfloat16", 128, 128, H100)
