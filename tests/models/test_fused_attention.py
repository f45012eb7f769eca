"""Fused attention: which kernel when, the numbers of the blocks, lowered programs.

No GPU or TPU is at hand here: splash runs in Pallas's interpreter, and what would be
compiled for a TPU or a GPU is read as text.
"""

import dataclasses
import functools
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src.cudnn import fused_attention_stablehlo
from jax.sharding import AxisType

from jaxcontam.models import attention, fused_attention
from jaxcontam.models.attention import AttentionContext, attend
from jaxcontam.models.config import ExpertShape, gpt2_shape, llama_shape
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import (
    Hardware,
    attend_after_prefix,
    attend_splash,
    fuses_prefix,
    kernel_of,
    kernel_of_rows,
)
from jaxcontam.models.sharding import WeightSharding
from jaxcontam.scoring.kernel import score_continuations, target_scores
from train.config import Compute, Optimizer
from train.optimizer import make_optimizer
from train.step import training_step

H100 = Hardware("cuda", "NVIDIA H100", (9, 0))
A100 = Hardware("cuda", "NVIDIA A100", (8, 0))
T4 = Hardware("cuda", "Tesla T4", (7, 5))
TPU = Hardware("tpu", "TPU v4")
SHAPE = gpt2_shape(vocab_size=300, d_model=96, n_layers=2, n_heads=6, context=512)
GROUPED = dataclasses.replace(SHAPE, n_kv_heads=2)
LLAMA = llama_shape(
    vocab_size=300, d_model=96, n_layers=2, n_heads=6, d_ff=64, context=512
)
MIXTURE = dataclasses.replace(
    LLAMA, experts=ExpertShape(n=4, n_used=2, normalised=True)
)


def change(**fields):
    return dataclasses.replace(SHAPE, **fields)


def operands(config, T, dtype=jnp.float32, B=2):
    G, E = config.n_kv_heads, config.head_dim
    R = config.n_heads // G
    shapes = [(B, T, G, R, E), (B, T, G, E), (B, T, G, E), (B, T, G, R, E)]
    keys = jax.random.split(jax.random.key(T), 4)
    drawn = [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
    return [x.astype(dtype) for x in drawn]


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
    for T, kernel in ((127, "blocks"), (128, "splash")):
        assert kernel_of_rows(SHAPE, "float32", T, TPU) == kernel


def first_window(config):
    """What the decoder gives its first layer."""
    if not config.windows:
        return None
    return jnp.int32(config.windows[0] or config.context)


def blocks(q, k, v, config):
    positions_T = jnp.arange(q.shape[1])
    return attention._attend_own(q, k, v, positions_T, first_window(config), config)


@pytest.fixture
def interpreted(monkeypatch):
    """Splash as a function of the operands and the shape, on a CPU."""
    table = {"splash": functools.partial(attend_splash, interpret=True)}
    monkeypatch.setattr(fused_attention, "_FUSED", table)

    def attend(q, k, v, config):
        how = config, first_window(config)
        return fused_attention.attend_fused("splash", q, k, v, *how)

    return attend


SMALL = dataclasses.replace(SHAPE, n_heads=2, n_kv_heads=1)
small = functools.partial(dataclasses.replace, SMALL)
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def value_and_gradients(f, config, inputs, slope):
    def total(q, k, v):
        mixed = f(q, k, v, config)
        return jnp.sum(mixed * slope), mixed

    gradients = jax.grad(total, argnums=(0, 1, 2), has_aux=True)
    found, mixed = jax.jit(gradients)(*inputs)
    return mixed, *found


@pytest.mark.parametrize(
    ("config", "T"),
    [
        slow(SMALL, 128),
        slow(small(n_kv_heads=2), 384),
        slow(small(windows=(37, 37)), 150),
        # Layers with other windows choose between kernels.
        (small(windows=(37, None)), 150),
        slow(small(windows=(None, 37)), 150),
        slow(small(attention_softcap=2.0), 128),
        slow(small(head_dim=72, attention_scale=0.2), 128),
        slow(change(n_kv_heads=2, attention_softcap=2.0, windows=(200, 200)), 600),
    ],
)
def test_splash_gives_the_numbers_and_gradients_of_blocks(config, T, interpreted):
    *inputs, slope = operands(config, T)
    found = value_and_gradients(interpreted, config, inputs, slope)
    wanted = value_and_gradients(blocks, config, inputs, slope)
    # Sums of up to 600 float32 terms, in another order.
    np.testing.assert_allclose(found[0], wanted[0], atol=1e-5)
    for one, other in zip(found[1:], wanted[1:], strict=True):
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
def test_two_merged_calls_are_one_softmax_over_all(length, dtype, monkeypatch):
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
        return attention._attend_blocks(q, k, v, places_T, None, config, cache)[0]

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


def test_rows_after_a_prefix_are_fused_where_nothing_of_it_is_hidden(monkeypatch):
    for config, T, fuses in (
        (SHAPE, 128, True),
        (SHAPE, 127, False),
        (change(windows=(256, 256)), 128, True),
        (change(windows=(255, 255)), 128, False),
        (change(attention_softcap=2.0), 128, False),
    ):
        assert fuses_prefix(config, "bfloat16", T, 128, H100) == fuses
        assert not fuses_prefix(config, "float32", T, 128, H100)
        assert not fuses_prefix(config, "bfloat16", T, 128, TPU)
    # Nor where JAX keeps its calls elsewhere.
    fused_attention._cudnn_calls.cache_clear()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jax._src.cudnn", None)
        assert not fuses_prefix(SHAPE, "bfloat16", 128, 128, H100)
    fused_attention._cudnn_calls.cache_clear()


@pytest.fixture(autouse=True)
def cudnn(monkeypatch):
    """Let cuDNN's version, which decides nothing that is used here, be known."""
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91100)


def decoder_of(config, dtype, device):
    shapes = nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), on=device))
    graphdef, state = nnx.split(shapes)

    def cast(path, leaf):
        is_operand = "kernel" in jax.tree_util.keystr(path) or leaf.ndim == 2
        return jax.ShapeDtypeStruct(leaf.shape, dtype if is_operand else leaf.dtype)

    return graphdef, jax.tree.map_with_path(cast, state)


def scores(graphdef, state, inputs_BS, targets_BS):
    """As `score_tokens` computes them, in blocks of a CPU's width."""
    decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(decoder.precision):
        hidden = decoder(inputs_BS).reshape(inputs_BS.size, -1)
        return target_scores(
            hidden, decoder.head_VD, targets_BS.reshape(-1), moments=False
        ).logprobs


def lowered(f, platform, *args):
    return jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def step_of(config, device, T, *, on_mesh=False, **more):
    """A training step and the shapes that it takes."""
    graphdef, params = decoder_of(config, "float32", device)
    optimizer = make_optimizer(Optimizer(peak_rate=1e-3), 10)
    if on_mesh:
        axes = (AxisType.Auto,) * 2
        more["mesh"] = jax.make_mesh((1, 1), ("data", "fsdp"), axis_types=axes)
    step = functools.partial(training_step, graphdef, optimizer, **more)
    batch = jax.ShapeDtypeStruct((2, T), jnp.int32)
    return step, (params, jax.eval_shape(optimizer.init, params), batch)


def scorer_text(config, dtype, device, T=256):
    graphdef, state = decoder_of(config, dtype, device)
    ids = jax.ShapeDtypeStruct((2, T), jnp.int32)
    score = functools.partial(scores, graphdef)
    return lowered(score, device.platform, state, ids, ids)


def products(jaxpr):
    """Every product of a program, those of its inner programs and kernels as well."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "ragged_dot_general"):
            yield equation
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from products(inner)


# Of the block of layers four products, of its kernel two, of the head and the targets
# two; a mixture has a router.
@pytest.mark.parametrize(
    ("config", "n_products"),
    [(SHAPE, 8), (LLAMA, 8), (MIXTURE, 9)],
    ids=["gpt2", "llama", "mixture"],
)
def test_float32_scorer_on_a_tpu_is_of_highest_precision(config, n_products):
    graphdef, state = decoder_of(config, "float32", TPU)
    ids = jax.ShapeDtypeStruct((2, 256), jnp.int32)
    traced = jax.jit(functools.partial(scores, graphdef)).trace(state, ids, ids)
    found = list(products(traced.jaxpr.jaxpr))
    assert len(found) == n_products
    highest = jax.lax.Precision.HIGHEST
    assert {equation.params["precision"] for equation in found} == {(highest, highest)}
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 1
    outside = [
        line
        for line in text.splitlines()
        if re.search(r"\Wdot_general|\.ragged_dot\W", line)
    ]
    assert len(outside) == n_products - 2
    assert all(line.count("HIGHEST") == 2 for line in outside), outside


@pytest.mark.parametrize("config", [SHAPE, MIXTURE])
def test_float32_on_a_gpu_is_multiplied_in_three_passes_and_never_in_one(config):
    """JAX's default there rounds operands to 11 bits, forward and backward."""
    graphdef, params = decoder_of(config, "float32", H100)
    ids = jax.ShapeDtypeStruct((2, 65), jnp.int32)
    step, args = step_of(config, H100, 65)
    for traced in (
        jax.jit(functools.partial(scores, graphdef)).trace(params, ids, ids),
        jax.jit(step).trace(*args),
    ):
        found = {one.params["precision"] for one in products(traced.jaxpr.jaxpr)}
        assert found == {jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3}


def test_bfloat16_kernel_of_a_tpu_asks_for_one_pass():
    """At any other precision its compiler refuses operands of bfloat16."""
    inputs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands(SHAPE, 256)]
    inputs = [x.update(dtype=jnp.bfloat16) for x in inputs[:3]]

    def total(q, k, v):
        return jnp.sum(attend(q, k, v, CONTEXT, SHAPE))

    with jax.default_matmul_precision("highest"):
        traced = jax.jit(jax.grad(total, argnums=(0, 1, 2))).trace(*inputs)
    found = [equation.params["precision"] for equation in products(traced.jaxpr.jaxpr)]
    # Two forward, three for the queries, four for keys and values, and row sums.
    assert len(found) >= 9
    lowest = jax.lax.Precision.DEFAULT
    assert set(found) == {(lowest, lowest)}
    assert traced.lower(lowering_platforms=("tpu",)).as_text().count("tpu_custom") == 3


CONTEXT = AttentionContext(None, jnp.arange(256), None, None, TPU)


def custom_calls(text):
    return re.findall(r"custom_call @([^(]+)\(", text)


@pytest.mark.parametrize(
    ("windows", "length", "found"),
    [
        ((200, None), 200, [None]),
        ((200, 300), 150, [None]),
        ((200, 37, None), 150, [37, None]),
        ((200, 37, None), 300, [37, 200, None]),
        ((37, 100), 200, [37, 100]),
        ((), 8, [None]),
    ],
)
def test_windows_that_hide_nothing_are_one(windows, length, found):
    config = dataclasses.replace(SHAPE, n_layers=len(windows) or 2, windows=windows)
    assert fused_attention._windows(config, length) == found


@pytest.mark.parametrize(
    ("windows", "sizes"), [((), [0]), ((100, 100), [100]), ((100, None), [100, 0])]
)
def test_bfloat16_scorer_on_a_gpu_asks_for_cudnn(windows, sizes):
    text = scorer_text(change(windows=windows), "bfloat16", H100)
    assert custom_calls(text) == ["__cudnn$fmhaSoftmax"] * len(sizes)
    found = re.findall(r"sliding_window_length\\22: (\d+)", text)
    assert [int(size) for size in found] == sizes
    assert "256x256" not in text, "no array of all pairs of tokens"
    exact = scorer_text(change(windows=windows), "float32", H100)
    assert custom_calls(exact) == []
    assert "128x256" in exact, "a block of queries and its keys"


def test_pairs_on_a_gpu_write_no_scores_of_tokens_by_tokens():
    graphdef, state = decoder_of(SHAPE, "bfloat16", H100)
    K, P, T = 3, 192, 160
    ids = [
        jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((4, P), (4,), (4, K, T))
    ]
    pairs = functools.partial(score_continuations, graphdef, at_once=2)
    text = lowered(pairs, "cuda", state, *ids)
    # The prefix by itself, the rows by themselves, and the rows' look at the prefix.
    assert custom_calls(text) == ["__cudnn$fmhaSoftmax"] * 3
    pairs_of_tokens = [f"{T}x{T}x", f"{T}x{P}x", f"{P}x{P}x", f"{T}x{P + T}x"]
    assert not [words for words in pairs_of_tokens if words in text]


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize(
    ("device", "platform", "calls"),
    [
        (H100, "cuda", {"__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"}),
        (TPU, "tpu", {"tpu_custom_call"}),
    ],
)
def test_training_step_is_fused_forward_and_backward(device, platform, calls, remat):
    config = dataclasses.replace(GROUPED, context=256)
    compute = Compute(dtype="bfloat16", remat=remat)
    step, args = step_of(config, device, 257, on_mesh=True, compute=compute)
    text = lowered(step, platform, *args)
    # Remat reads each layer a second time.
    n = {"cuda": 2, "tpu": 3}[platform] + remat
    assert len(custom_calls(text)) == n
    assert set(custom_calls(text)) == calls
    assert "256x256" not in text
    # The head's pieces; the layers forward and backward, but on a GPU layers that save
    # what they computed stand there one by one.
    is_unrolled = platform == "cuda" and not remat
    assert text.count("stablehlo.while") == (1 if is_unrolled else 3)


def test_layers_that_are_gathered_again_stay_in_their_scan(monkeypatch):
    """Else a GPU's compiler may keep the whole weights of all layers."""
    layout = WeightSharding((("blocks.mlp.up.kernel", 1),))
    monkeypatch.setattr("train.step.mesh_sharding", lambda params, mesh: layout)
    step, args = step_of(SHAPE, H100, 65, on_mesh=True)
    assert lowered(step, "cuda", *args).count("stablehlo.while") == 3


@pytest.mark.parametrize("config", [SHAPE, LLAMA, MIXTURE])
def test_every_product_of_a_bfloat16_step_reads_bfloat16_alone(config):
    """Forward and backward: a float32 operand would widen the other one on a GPU."""
    step, args = step_of(config, H100, 65, compute=Compute(dtype="bfloat16"))
    traced = jax.jit(step).trace(*args)
    found = [{x.aval.dtype for x in one.invars} for one in products(traced.jaxpr.jaxpr)]
    # A layer has four maps, of which each is one product forward and two backward; a
    # mixture has a router, and its experts are computed again.
    assert len(found) >= 12
    assert found == [{jnp.dtype("bfloat16")}] * len(found)
