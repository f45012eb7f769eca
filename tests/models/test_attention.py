"""Attention's own gradients: those of the plain computation, in every form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontam.models import attention
from jaxcontam.models.attention import AttentionContext, attend
from jaxcontam.models.config import gpt2_shape

pytestmark = pytest.mark.unoptimised

B, G, R, E = 2, 2, 3, 16
SHAPE = dataclasses.replace(
    gpt2_shape(vocab_size=64, d_model=96, n_layers=1, n_heads=6, context=512),
    head_dim=E,
    n_kv_heads=G,
)


def operands(T):
    keys = jax.random.split(jax.random.key(T), 4)
    shapes = [(B, T, G, R, E), (B, T, G, E), (B, T, G, E), (B, T, G, R, E)]
    return [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]


def gradients(f, config, window, T):
    *inputs, slope = operands(T)
    view = AttentionContext(None, jnp.arange(T), window, None)

    def total(q, k, v):
        return jnp.sum(f(q, k, v, view, config) * slope)

    # One program compiles sooner than its pieces.
    return jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs)


def plain(q, k, v, view, config):
    """The computation whose gradient JAX derives."""
    own = (q, k, v, view.positions, view.window, config)
    return attention._attend_blocks(*own)[0]


@pytest.mark.parametrize(
    ("T", "softcap", "window"),
    [
        (5, 4.0, 37),
        (128, None, None),
        (128, 4.0, None),
        (128, None, 37),
        pytest.param(300, 4.0, 37, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_the_plain_computation(T, softcap, window):
    config = dataclasses.replace(SHAPE, attention_softcap=softcap)
    window = None if window is None else jnp.int32(window)
    found = gradients(attend, config, window, T)
    wanted = gradients(plain, config, window, T)
    for one, other in zip(found, wanted, strict=True):
        # Sums of up to 300 float32 terms, in another order.
        np.testing.assert_allclose(one, other, atol=2e-6 * np.abs(other).max())


def test_scores_do_not_depend_on_whether_gradients_are_asked_for():
    *inputs, _ = operands(300)
    view = AttentionContext(None, jnp.arange(300), None, None)

    def mixed(q):
        return attend(q, *inputs[1:], view, SHAPE)

    def taped(q):
        return jax.vjp(mixed, q)[0]

    plain, taken = (jax.jit(f)(inputs[0]) for f in (mixed, taped))
    np.testing.assert_allclose(taken, plain, atol=2e-6)
