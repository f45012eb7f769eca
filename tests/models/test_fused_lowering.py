"""Which kernel the programs of each device hold, from what they are lowered to."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax._src.cudnn import fused_attention_stablehlo
from jax.sharding import AxisType

from jaxcontam.models.attention import AttentionContext, attend
from jaxcontam.models.decoder import Decoder
from jaxcontam.models.fused_attention import attend_cudnn
from jaxcontam.models.sharding import WeightSharding
from jaxcontam.scoring.gradients import _mean_loss
from jaxcontam.scoring.kernel import score_continuations, target_scores
from tests.support.attention_shapes import (
    GROUPED,
    H100,
    LLAMA,
    MIXTURE,
    SHAPE,
    TPU,
    change,
    operands,
)
from train.step import Compute, adamw, training_step


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
def test_float32_scorer_on_a_tpu_multiplies_at_the_highest_precision(
    config, n_products
):
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
    optimizer = adamw(1e-3, 10, params)
    step = functools.partial(training_step, graphdef, optimizer)
    moments = jax.eval_shape(optimizer.init, params)
    for traced in (
        jax.jit(functools.partial(scores, graphdef)).trace(params, ids, ids),
        jax.jit(step).trace(params, moments, ids),
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


@pytest.mark.parametrize("windows", [(), (100, 100)])
def test_bfloat16_scorer_on_a_gpu_asks_for_cudnn(windows):
    text = scorer_text(change(windows=windows), "bfloat16", H100)
    assert custom_calls(text) == ["__cudnn$fmhaSoftmax"]
    (size,) = re.findall(r"sliding_window_length\\22: (\d+)", text)
    assert int(size) == (100 if windows else 0)
    assert "256x256" not in text, "no array of all pairs of tokens"


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


def test_float32_scorer_on_a_gpu_asks_for_no_library():
    text = scorer_text(SHAPE, "float32", H100)
    assert custom_calls(text) == []
    assert "256x256" in text, "a block of queries and its keys"


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
    graphdef, params = decoder_of(config, "float32", device)
    optimizer = adamw(1e-3, 10, params)
    step = functools.partial(
        training_step,
        graphdef,
        optimizer,
        compute=Compute(dtype="bfloat16", remat=remat),
        mesh=jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2),
    )
    batch = jax.ShapeDtypeStruct((2, 257), jnp.int32)
    opt_state = jax.eval_shape(optimizer.init, params)
    text = lowered(step, platform, params, opt_state, batch)
    # Remat reads each layer a second time.
    n = {"cuda": 2, "tpu": 3}[platform] + remat
    assert len(custom_calls(text)) == n
    assert set(custom_calls(text)) == calls
    assert "256x256" not in text
    # The head's pieces; the layers forward and backward, but on a GPU layers that save
    # what they computed stand there one by one.
    is_unrolled = platform == "cuda" and not remat
    assert text.count("stablehlo.while") == (1 if is_unrolled else 3)


def test_layers_that_are_gathered_again_stay_in_their_scan():
    """Else a GPU's compiler may keep the whole weights of all layers."""
    graphdef, params = decoder_of(SHAPE, "float32", H100)
    optimizer = adamw(1e-3, 10, params)
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    step = functools.partial(
        training_step,
        graphdef,
        optimizer,
        mesh=mesh,
        layout=WeightSharding((("blocks.mlp.up.kernel", 1),)),
    )
    batch = jax.ShapeDtypeStruct((2, 65), jnp.int32)
    opt_state = jax.eval_shape(optimizer.init, params)
    text = lowered(step, "cuda", params, opt_state, batch)
    assert text.count("stablehlo.while") == 3


@pytest.mark.parametrize("config", [SHAPE, LLAMA, MIXTURE])
def test_every_product_of_a_bfloat16_step_reads_bfloat16_alone(config):
    """Forward and backward: a float32 operand would widen the other one on a GPU."""
    graphdef, params = decoder_of(config, "float32", H100)
    optimizer = adamw(1e-3, 10, params)
    step = functools.partial(
        training_step, graphdef, optimizer, compute=Compute(dtype="bfloat16")
    )
    batch = jax.ShapeDtypeStruct((2, 65), jnp.int32)
    opt_state = jax.eval_shape(optimizer.init, params)
    traced = jax.jit(step).trace(params, opt_state, batch)
    found = [{x.aval.dtype for x in one.invars} for one in products(traced.jaxpr.jaxpr)]
    # A layer has four maps, of which each is one product forward and two backward; a
    # mixture has a router, and its experts are computed again.
    assert len(found) >= 12
    assert found == [{jnp.dtype("bfloat16")}] * len(found)


def test_gradient_norms_of_rows_side_by_side_are_fused():
    graphdef, state = decoder_of(SHAPE, "bfloat16", H100)

    def norms(state, inputs_BS, lengths_B):
        def one(row):
            ids_S, length = row
            gradients = jax.grad(_mean_loss, argnums=1)(
                graphdef, state, ids_S, ids_S, length, WeightSharding()
            )
            return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(gradients))

        return jax.lax.map(one, (inputs_BS, lengths_B), batch_size=2)

    ids = jax.ShapeDtypeStruct((4, 256), jnp.int32)
    lengths = jax.ShapeDtypeStruct((4,), jnp.int32)
    calls = custom_calls(lowered(norms, "cuda", state, ids, lengths))
    assert set(calls) == {"__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"}


def test_cudnn_refuses_a_soft_cap():
    x_BTHE = jnp.zeros((1, 128, 2, 16), jnp.bfloat16)
    with pytest.raises(ValueError, match="no soft cap"):
        attend_cudnn(x_BTHE, x_BTHE, x_BTHE, scale=1.0, softcap=3.0, window=None)
