"""Layers of a decoder's blocks: feed-forward, mixture of experts, linear maps, norms.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    F  feed-forward width
    W  width of the first product, 2 F where it is gated, else F
    X  experts
    K  experts that a token uses
    I  inputs of a linear map
    O  its outputs
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.config import DecoderConfig, ExpertShape

# GPT-2's initial scale.
_INIT_STD = 0.02

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


class Mlp(nnx.Module):
    """Feed-forward layer; gated ones keep gate and up side by side in `up`."""

    def __init__(
        self, config: DecoderConfig, *, rngs: nnx.Rngs, d_ff: int | None = None
    ):
        self.config = config
        D, F = config.d_model, d_ff or config.d_ff
        width = 2 * F if config.gated else F
        self.up = Linear(D, width, bias=config.mlp_bias, rngs=rngs)
        self.down = Linear(F, D, bias=config.mlp_bias, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array) -> jax.Array:
        """Output of the layer, `[B, T, D]` float32."""
        return self.down(_activated(self.up(hidden_BTD), self.config))


class Experts(nnx.Module):
    """Mixture of experts: a router sends each token to a few feed-forward layers.

    Every expert is computed for every token, one expert after the other, with weight 0
    where the router did not choose it: no token depends on its batch mates, but the
    work is that of all experts. (Mixtral: 4 times what routing needs.)
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        assert config.experts is not None
        self.config = config
        D, F, X = config.d_model, config.d_ff, config.experts.n
        width = 2 * F if config.gated else F
        self.router = Linear(D, X, bias=False, rngs=rngs)
        self.up, self.down = Kernels(X, D, width, rngs), Kernels(X, F, D, rngs)
        if config.experts.d_shared:
            self.shared = Mlp(config, rngs=rngs, d_ff=config.experts.d_shared)
            self.shared_gate = Linear(D, 1, bias=False, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array) -> jax.Array:
        """Weighted sum of the experts' outputs, `[B, T, D]` float32."""
        experts = self.config.experts
        assert experts is not None
        shares_BTX = _shares(self.router(hidden_BTD), experts)

        # The backward pass recomputes an expert: its saved activations would be wide
        # arrays of all experts.
        @jax.checkpoint
        def add(total_BTD: jax.Array, expert):
            up_DW, down_FD, share_BT = expert
            hidden_BTF = _activated(_product(hidden_BTD, up_DW), self.config)
            out_BTD = _product(hidden_BTF, down_FD) * share_BT[..., None]
            # An overflow of an expert that the token does not use makes no nan.
            return total_BTD + jnp.where(share_BT[..., None] > 0, out_BTD, 0.0), None

        shares_XBT = jnp.moveaxis(shares_BTX, -1, 0)
        layers = (self.up.kernel[...], self.down.kernel[...], shares_XBT)
        mixed_BTD, _ = jax.lax.scan(add, jnp.zeros_like(hidden_BTD), layers)
        if experts.d_shared:
            gate_BT1 = jax.nn.sigmoid(self.shared_gate(hidden_BTD))
            mixed_BTD += gate_BT1 * self.shared(hidden_BTD)
        return mixed_BTD


def _shares(logits_BTX: jax.Array, experts: ExpertShape) -> jax.Array:
    """Weight of each expert for each token, `[B, T, X]`; 0 where it is not used."""
    probs_BTX = jax.nn.softmax(logits_BTX, axis=-1)
    chosen_BTK, index_BTK = jax.lax.top_k(probs_BTX, experts.n_used)
    if experts.normalised:
        chosen_BTK /= chosen_BTK.sum(axis=-1, keepdims=True)
    one_hot_BTKX = jax.nn.one_hot(index_BTK, experts.n)
    return jnp.sum(one_hot_BTKX * chosen_BTK[..., None], axis=-2)


class Kernels(nnx.Module):
    """Kernels of X linear maps: `kernel` is `[X, I, O]`."""

    def __init__(self, n: int, n_in: int, n_out: int, rngs: nnx.Rngs):
        self.kernel = init_weight(rngs, (n, n_in, n_out))


class Linear(nnx.Module):
    """Affine map; `kernel` is `[I, O]`."""

    def __init__(self, n_in: int, n_out: int, *, bias: bool, rngs: nnx.Rngs):
        self.kernel = init_weight(rngs, (n_in, n_out))
        if bias:
            self.bias = nnx.Param(jnp.zeros((n_out,)))
        self.has_bias = bias

    def __call__(self, x_BTI: jax.Array) -> jax.Array:
        """`x @ kernel + bias`, `[B, T, O]` float32."""
        y_BTO = _product(x_BTI, self.kernel[...])
        return y_BTO + self.bias[...][None, None] if self.has_bias else y_BTO


class Norm(nnx.Module):
    """RMS norm or layer norm over the last axis of an array of any rank."""

    def __init__(self, config: DecoderConfig, width: int):
        self.kind, self.eps = config.norm, config.norm_eps
        self.offset = config.norm_offset
        self.scale = nnx.Param(jnp.full((width,), 1.0 - self.offset))
        if config.norm == "layer":
            self.bias = nnx.Param(jnp.zeros((width,)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalised `x`, of its shape, float32."""
        outer = tuple(range(x.ndim - 1))
        if self.kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        scale = self.scale[...]
        if self.offset:
            scale = self.offset + scale
        x = x * jnp.expand_dims(scale, outer)
        return x + jnp.expand_dims(self.bias[...], outer) if self.kind == "layer" else x


def init_weight(rngs: nnx.Rngs, shape: tuple[int, ...]) -> nnx.Param:
    """A normal weight at GPT-2's initial scale."""
    return nnx.Param(_INIT_STD * jax.random.normal(rngs.params(), shape))


def _activated(up_BTW: jax.Array, config: DecoderConfig) -> jax.Array:
    """Activation of a feed-forward layer's first product, gated or not, `[B, T, F]`."""
    # Recomputed in the backward pass: that costs less than to save its steps.
    activate = jax.checkpoint(_ACTIVATIONS[config.activation])
    if config.gated:
        gate_BTF, up_BTF = jnp.split(up_BTW, 2, axis=-1)
        return activate(gate_BTF) * up_BTF
    return activate(up_BTW)


def _product(x_BTI: jax.Array, kernel_IO: jax.Array) -> jax.Array:
    """`x @ kernel` in the kernel's dtype, added up in float32."""
    x_BTI = x_BTI.astype(kernel_IO.dtype)
    if kernel_IO.dtype == jnp.float32:
        return _summed(x_BTI, kernel_IO)
    return _rounded_product(x_BTI, kernel_IO)


def _summed(x_BTI: jax.Array, kernel_IO: jax.Array) -> jax.Array:
    return jnp.matmul(x_BTI, kernel_IO, preferred_element_type=jnp.float32)


# Without it the float32 cotangent would widen the other operand of both products of
# the gradient, which a GPU then computes in TF32, at half the speed of bfloat16.
@jax.custom_vjp
def _rounded_product(x_BTI: jax.Array, kernel_IO: jax.Array) -> jax.Array:
    """`_summed`, whose gradient takes the cotangent in the kernel's dtype."""
    return _summed(x_BTI, kernel_IO)


def _rounded_forward(x_BTI: jax.Array, kernel_IO: jax.Array):
    return _summed(x_BTI, kernel_IO), (x_BTI, kernel_IO)


def _rounded_backward(kept: tuple[jax.Array, jax.Array], cotangent_BTO: jax.Array):
    _, transposed = jax.vjp(jnp.matmul, *kept)
    return transposed(cotangent_BTO.astype(kept[1].dtype))


_rounded_product.defvjp(_rounded_forward, _rounded_backward)
