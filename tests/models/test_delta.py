"""The gated delta rule in chunks against its recurrence, token by token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontam.models.delta import delta_rule

B, N, K, V = 2, 3, 5, 4
# Less than a chunk of 64, whole chunks, and a rest.
LENGTHS = (1, 7, 128, 150)


def draw(T):
    rng = np.random.default_rng(T)
    q, k = rng.normal(size=(2, B, T, N, K))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    share, decay = rng.uniform(size=(2, B, T, N))
    return (
        (q, k, rng.normal(size=(B, T, N, V))),
        (share, -decay),
        rng.normal(size=(B, N, K, V)),
    )


def recurrence(qkv, rates, state):
    """The rule as its source writes it, in float64."""
    outputs = []
    for t in range(qkv[0].shape[1]):
        q, k, v = (x[:, t] for x in qkv)
        share, decay = (x[:, t, :, None] for x in rates)
        state = state * np.exp(decay)[..., None]
        missed = v - np.einsum("bnk,bnkv->bnv", k, state)
        state = state + k[..., None] * (share * missed)[..., None, :]
        outputs.append(np.einsum("bnk,bnkv->bnv", q, state))
    return np.stack(outputs, axis=1), state


def as_float32(drawn):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), drawn)


@pytest.mark.parametrize("T", LENGTHS)
def test_chunks_give_what_the_recurrence_gives(T):
    drawn = draw(T)
    for found, expected in zip(
        delta_rule(*as_float32(drawn)), recurrence(*drawn), strict=True
    ):
        # Float32 sums over a chunk, of numbers near 1.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def loss(np, outputs):
    out, state = outputs
    return np.sin(out).sum() + np.cos(state).sum()


def test_gradient_is_the_slope_of_the_recurrence():
    drawn, rng = draw(70), np.random.default_rng(0)
    gradient = jax.grad(lambda drawn: loss(jnp, delta_rule(*drawn)))(as_float32(drawn))
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), drawn)

    def at(step):
        moved = jax.tree.map(lambda x, way: x + step * way, drawn, direction)
        return loss(np, recurrence(*moved))

    products = jax.tree.map(lambda x, way: (x * way).sum(), gradient, direction)
    # Central differences in float64 err by step squared, gradients by float32 sums.
    slope = (at(1e-5) - at(-1e-5)) / 2e-5
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), slope, rtol=1e-4)


def test_steep_decay_over_a_chunk_overflows_nothing():
    qkv, (share, _), state = draw(128)
    drawn = as_float32((qkv, (share, np.full_like(share, -40.0)), state))
    gradients = jax.grad(lambda drawn: delta_rule(*drawn)[0].sum())(drawn)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))
