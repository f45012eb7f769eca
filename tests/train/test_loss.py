"""The fused head: the loss and gradients of full logits, without full logits."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import train.loss
from jaxcontam.models.attention import softcapped
from train.loss import head_loss


def inputs(n, v, d=16, seed=0):
    keys = jax.random.split(jax.random.key(seed), 3)
    hidden = jax.random.normal(keys[0], (n, d))
    head = 0.3 * jax.random.normal(keys[1], (v, d))
    return hidden, head, jax.random.randint(keys[2], (n,), 0, v)


def full_loss(hidden, head, targets, softcap=None):
    logits = softcapped(jnp.einsum("nd,vd->nv", hidden, head), softcap)
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, targets)
    return losses.mean()


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize(
    ("platform", "piece_bytes"),
    [("cpu", 4 * 50), ("cpu", 4 * 50 * 7), ("cpu", 1 << 20), ("cuda", 1 << 20)],
)
def test_loss_and_gradients_are_those_of_full_logits(
    monkeypatch, softcap, platform, piece_bytes
):
    # 23 positions in pieces of 1, of 6 and of all: with and without padding. On a GPU
    # they are padded to 128, and so are 50 words.
    monkeypatch.setattr(train.loss, "PIECE_BYTES_CPU", piece_bytes)
    hidden, head, targets = inputs(23, 50)

    def ours(hidden, head):
        return 2.5 * head_loss(hidden, head, targets, softcap, platform)

    def theirs(hidden, head):
        return 2.5 * full_loss(hidden, head, targets, softcap)

    found, wanted = (
        jax.value_and_grad(f, argnums=(0, 1))(hidden, head) for f in (ours, theirs)
    )
    # Sums of 50 float32 terms.
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(ours(hidden, head), wanted[0], rtol=1e-6)


def test_huge_logits_neither_overflow_nor_lose_the_gradient():
    hidden, head, targets = inputs(6, 30)
    loss, (slope, _) = jax.value_and_grad(head_loss, argnums=(0, 1))(
        1e4 * hidden, head, targets
    )
    assert np.isfinite(loss) and loss > 100
    assert np.isfinite(slope).all() and np.abs(slope).max() > 0


def array_sizes(jaxpr):
    """Elements of every array of a program, those of its inner programs as well."""
    for equation in jaxpr.eqns:
        yield from (np.prod(var.aval.shape, dtype=int) for var in equation.outvars)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from array_sizes(inner)


def test_no_array_holds_all_logits(monkeypatch):
    n, v = 64, 1000
    monkeypatch.setattr(train.loss, "PIECE_BYTES_CPU", 4 * v * 8)
    hidden, head, targets = inputs(n, v)
    graph = jax.make_jaxpr(jax.value_and_grad(head_loss, argnums=(0, 1)))(
        hidden, head, targets
    )
    sizes = list(array_sizes(graph.jaxpr))
    assert max(sizes) == v * 16, "the head and its gradient are the largest"
    assert 8 * v in sizes, "pieces of logits are there"


def test_bfloat16_operands_give_a_float32_loss_and_gradients_of_their_dtype():
    hidden, head, targets = inputs(32, 100)
    rounded = hidden.astype(jnp.bfloat16), head.astype(jnp.bfloat16)
    loss, slopes = jax.value_and_grad(head_loss, argnums=(0, 1))(*rounded, targets)
    assert loss.dtype == jnp.float32
    assert [slope.dtype for slope in slopes] == [jnp.bfloat16] * 2
    wanted = full_loss(*(one.astype(jnp.float32) for one in rounded), targets)
    # The products are exact in float32; only their sums round.
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)


def test_products_of_the_head_on_a_gpu_have_whole_tiles():
    hidden, head, targets = inputs(200, 300, d=64)
    slopes = jax.grad(
        lambda *both: head_loss(*both, targets, None, "cuda"), argnums=(0, 1)
    )
    text = jax.jit(slopes).trace(hidden, head).lower(lowering_platforms=("cuda",))
    found = [line for line in text.as_text().splitlines() if "dot_general" in line]
    assert len(found) == 3
    sides = {int(n) for line in found for n in re.findall(r"(\d+)x", line)}
    assert sides == {64, 256, 384}
