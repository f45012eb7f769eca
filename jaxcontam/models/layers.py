"""Layers of a decoder's blocks: feed-forward, experts, linear maps, norms, own inputs.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    F  feed-forward width
    W  width of the first product, 2 F where it is gated, else F
    N  tokens of the batch, N = B * T
    X  experts
    K  experts that a token uses
    A  choices, A = N * K
    R  rows of a block, all of one expert
    M  blocks
    S  rows of all blocks, S = M * R
    I  inputs of a linear map
    O  its outputs
    L  layers
    P  width of a layer's own input

In `_in_best_groups` N are groups of experts.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.config import DecoderConfig, ExpertShape, GateClip

# Rows of a block of tokens of one expert: fewer read its weights more often, more are
# padding. Below half a block an expert, all experts are computed for all tokens.
_EXPERT_ROWS = 64
# GPT-2's initial scale.
_INIT_STD = 0.02

# Kernels of both layers, `[X, D, W]` and `[X, F, D]`, and biases of both, or None.
_Layers = tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array] | None]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}
"""Activations by their name in a config."""


class Mlp(nnx.Module):
    """Feed-forward layer; gated ones keep gate and up side by side in `up`."""

    def __init__(
        self, config: DecoderConfig, *, rngs: nnx.Rngs, d_ff: int | None = None
    ):
        self.config = config
        D, F = config.d_model, d_ff or config.d_ff
        width = 2 * F if config.gated else F
        self.up = Linear(D, width, bias=config.mlp_bias, rngs=rngs, rounds=True)
        self.down = Linear(F, D, bias=config.mlp_bias, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array) -> jax.Array:
        """Output of the layer, `[B, T, D]` float32."""
        return self.down(_activated(self.up(hidden_BTD), self.config))


class Experts(nnx.Module):
    """Mixture of experts: a router sends each token to a few feed-forward layers.

    No token is left out, whatever its batch mates choose. CPUs and TPUs compute the
    experts that tokens chose, in the order of the experts. Elsewhere every expert is
    computed for every token, with weight 0 where the router did not choose it.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        assert config.experts is not None
        self.config = config
        D, F, X = config.d_model, config.d_ff, config.experts.n
        width = 2 * F if config.gated else F
        biased = config.experts.biased
        self.router = Linear(D, X, bias=biased, rngs=rngs)
        self.up = Kernels(X, D, width, rngs, bias=biased)
        self.down = Kernels(X, F, D, rngs, bias=biased)
        if config.experts.has_preference:
            self.preference = nnx.Param(jnp.zeros((X,)))
        if config.experts.d_shared:
            self.shared = Mlp(config, rngs=rngs, d_ff=config.experts.d_shared)
        if config.experts.d_shared and config.experts.shared_gated:
            self.shared_gate = Linear(D, 1, bias=False, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array, platform: str = "cpu") -> jax.Array:
        """Weighted sum of the experts' outputs, `[B, T, D]` float32.

        The way is chosen for the device type `platform`.
        """
        experts, (B, T, D) = self.config.experts, hidden_BTD.shape
        assert experts is not None
        preference_X = self.preference[...] if experts.has_preference else None
        found = chosen_experts(self.router(hidden_BTD), experts, preference_X)
        hidden_ND = hidden_BTD.reshape(B * T, D)
        chosen_NK, index_NK = (x.reshape(B * T, experts.n_used) for x in found)
        biases = (self.up.bias[...], self.down.bias[...]) if experts.biased else None
        layers = (self.up.kernel[...], self.down.kernel[...], biases)
        is_worth = index_NK.size >= experts.n * _EXPERT_ROWS // 2
        compute = {"cpu": _by_blocks, "tpu": _by_groups}.get(platform)
        if compute is not None and is_worth:
            out_NKD = compute(hidden_ND, index_NK, layers, self.config)
            mixed_ND = jnp.sum(out_NKD * chosen_NK[..., None], axis=1)
        else:
            # Weight of each expert for each token; 0 where it is not used.
            one_hot_NKX = jax.nn.one_hot(index_NK, experts.n)
            shares_NX = jnp.sum(one_hot_NKX * chosen_NK[..., None], axis=-2)
            mixed_ND = _all_experts(hidden_ND, shares_NX, layers, self.config)
        mixed_BTD = mixed_ND.reshape(B, T, D)
        if experts.d_shared:
            shared_BTD = self.shared(hidden_BTD)
            if experts.shared_gated:
                shared_BTD = jax.nn.sigmoid(self.shared_gate(hidden_BTD)) * shared_BTD
            mixed_BTD += shared_BTD
        return mixed_BTD


def _all_experts(
    hidden_ND: jax.Array, shares_NX: jax.Array, layers: _Layers, config: DecoderConfig
) -> jax.Array:
    """Every expert for every token, one expert after the other, `[N, D]`."""

    # The backward pass recomputes an expert: its saved activations would be wide
    # arrays of all experts.
    @jax.checkpoint
    def add(total_ND: jax.Array, expert):
        layers, share_N = expert
        out_ND = _one_expert(hidden_ND, layers, config) * share_N[:, None]
        # An overflow of an expert that the token does not use makes no nan.
        return total_ND + jnp.where(share_N[:, None] > 0, out_ND, 0.0), None

    mixed_ND, _ = jax.lax.scan(add, jnp.zeros_like(hidden_ND), (layers, shares_NX.T))
    return mixed_ND


def _one_expert(
    hidden_ND: jax.Array, layers: _Layers, config: DecoderConfig
) -> jax.Array:
    """Output of one expert, whose layers have no axis X, `[N, D]`."""
    up_DW, down_FD, biases = layers
    up_NW = _product(hidden_ND, up_DW)
    if biases is not None:
        up_NW += biases[0][None]
    out_ND = _product(_activated(up_NW, config), down_FD)
    return out_ND if biases is None else out_ND + biases[1][None]


def _by_blocks(
    hidden_ND: jax.Array, index_NK: jax.Array, layers: _Layers, config: DecoderConfig
) -> jax.Array:
    """Outputs of the experts that each token uses, `[N, K, D]`, in blocks of one each.

    expert   0 0 0 . | 1 1 1 1 | 1 . . . | 3 3 . . | (none) ...
    """
    (N, K), (X, R) = index_NK.shape, (layers[0].shape[0], _EXPERT_ROWS)
    n_blocks = (N * K + X * (R - 1)) // R
    slot_A, ends_X = _slots(index_NK.reshape(-1), X, R)
    expert_M = jnp.searchsorted(ends_X, jnp.arange(n_blocks), side="right")
    token_S = jnp.zeros(n_blocks * R, jnp.int32).at[slot_A].set(jnp.arange(N * K) // K)

    def compute(expert: jax.Array, token_R: jax.Array) -> jax.Array:
        of_one = jax.tree.map(lambda stacked: stacked[expert], layers)
        return _one_expert(hidden_ND[token_R], of_one, config)

    def block(_, chosen: tuple[jax.Array, jax.Array]):
        expert, token_R = chosen
        nothing = jnp.zeros((R, hidden_ND.shape[1]), jnp.float32)
        return None, jax.lax.cond(
            expert < X, compute, lambda *_: nothing, expert, token_R
        )

    _, out_MRD = jax.lax.scan(
        jax.checkpoint(block), None, (expert_M, token_S.reshape(n_blocks, R))
    )
    return out_MRD.reshape(n_blocks * R, -1)[slot_A].reshape(N, K, -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _by_groups(
    hidden_ND: jax.Array, index_NK: jax.Array, layers: _Layers, config: DecoderConfig
) -> jax.Array:
    """As `_by_blocks`, in products of groups of rows, which a TPU has a kernel for.

    The kernel has no batch axis: tokens that are mapped over are more tokens.
    """
    grouped = jax.custom_batching.custom_vmap(functools.partial(_grouped, config))

    @grouped.def_vmap
    def fold(n: int, is_mapped: Sequence[Any], *operands: Any):
        assert not any(jax.tree.leaves(is_mapped[2])), "models differ in their experts"
        hidden, index = (
            (x if own else jnp.broadcast_to(x, (n, *x.shape))).reshape(-1, x.shape[-1])
            for x, own in zip(operands[:2], is_mapped[:2], strict=True)
        )
        out = grouped(hidden, index, operands[2])
        return out.reshape(n, -1, *out.shape[1:]), True

    return grouped(hidden_ND, index_NK, layers)


# `custom_vmap` has no reverse mode; a gradient that is mapped over is not to be had.
def _by_groups_forward(hidden_ND, index_NK, layers, config):
    def grouped(hidden_ND: jax.Array, layers: _Layers) -> jax.Array:
        return _grouped(config, hidden_ND, index_NK, layers)

    return jax.vjp(grouped, hidden_ND, layers)


def _by_groups_backward(config, transposed, cotangent_NKD):
    hidden_ND, layers = transposed(cotangent_NKD)
    return hidden_ND, None, layers


_by_groups.defvjp(_by_groups_forward, _by_groups_backward)


def _grouped(
    config: DecoderConfig, hidden_ND: jax.Array, index_NK: jax.Array, layers: _Layers
) -> jax.Array:
    (N, K), X = index_NK.shape, layers[0].shape[0]
    chosen_A = index_NK.reshape(-1)
    slot_A, ends_X = _slots(chosen_A, X, 1)
    expert_A = jnp.zeros_like(chosen_A).at[slot_A].set(chosen_A)
    token_A = jnp.zeros(N * K, jnp.int32).at[slot_A].set(jnp.arange(N * K) // K)
    sizes_X = jnp.diff(ends_X, prepend=0)

    def product(rows_AI: jax.Array, kernel_XIO: jax.Array) -> jax.Array:
        # More passes than one are none for bfloat16, and do not compile.
        is_exact = kernel_XIO.dtype == jnp.bfloat16
        return jax.lax.ragged_dot(
            rows_AI.astype(kernel_XIO.dtype),
            kernel_XIO,
            sizes_X,
            precision=jax.lax.Precision.DEFAULT if is_exact else None,
            preferred_element_type=jnp.float32,
        )

    up_XDW, down_XFD, biases = layers
    up_AW = product(hidden_ND[token_A], up_XDW)
    if biases is not None:
        up_AW += biases[0][expert_A]
    out_AD = product(_activated(up_AW, config), down_XFD)
    if biases is not None:
        out_AD += biases[1][expert_A]
    return out_AD[slot_A].reshape(N, K, -1)


def _slots(expert_A: jax.Array, n: int, rows: int) -> tuple[jax.Array, jax.Array]:
    """Slots of choices, each expert from a whole block on; blocks to each one's end."""
    of_expert_AX = expert_A[:, None] == jnp.arange(n)[None]
    before_AX = jnp.cumsum(of_expert_AX, axis=0)
    blocks_X = -(-before_AX[-1] // rows)
    ends_X = jnp.cumsum(blocks_X)
    rank_A = jnp.take_along_axis(before_AX, expert_A[:, None], axis=1)[:, 0] - 1
    return (ends_X - blocks_X)[expert_A] * rows + rank_A, ends_X


class Kernels(nnx.Module):
    """Kernels of X linear maps: `kernel` is `[X, I, O]`, `bias` `[X, O]`."""

    def __init__(self, n: int, n_in: int, n_out: int, rngs: nnx.Rngs, *, bias: bool):
        self.kernel = init_weight(rngs, (n, n_in, n_out))
        if bias:
            self.bias = nnx.Param(jnp.zeros((n, n_out)))


class Linear(nnx.Module):
    """Affine map; `kernel` is `[I, O]`."""

    def __init__(
        self, n_in: int, n_out: int, *, bias: bool, rngs: nnx.Rngs, rounds: bool = False
    ):
        self.kernel = init_weight(rngs, (n_in, n_out))
        if bias:
            self.bias = nnx.Param(jnp.zeros((n_out,)))
        self.has_bias, self.rounds = bias, rounds

    def __call__(self, x_BTI: jax.Array) -> jax.Array:
        """`x @ kernel + bias`, `[B, T, O]` float32.

        Of the kernel's dtype where it `rounds`: half the bytes of a wide array that the
        next product would round anyway.
        """
        kernel_IO = self.kernel[...]
        return self._with_bias(_product(x_BTI, kernel_IO, rounds=self.rounds))

    def to_heads(
        self, x_BTI: jax.Array, counts: Sequence[int], *, at_once: bool
    ) -> list[jax.Array]:
        """The same as groups of heads, each `[B, T, N, E]`, N of `counts`.

        By a product that has heads as an axis if `at_once`, else by cutting its last
        axis: that is a copy on a TPU, whose tiles are wider than most heads.
        """
        total, *stops = sum(counts), *itertools.accumulate(counts[:-1])
        if at_once:
            kernel_IO = self.kernel[...]
            kernel_INE = kernel_IO.reshape(kernel_IO.shape[0], total, -1)
            y_BTNE = self._with_bias(_product(x_BTI, kernel_INE, rounds=self.rounds))
            return jnp.split(y_BTNE, stops, axis=2)
        y_BTO = self(x_BTI)
        E = y_BTO.shape[-1] // total
        parts = jnp.split(y_BTO, [n * E for n in stops], axis=-1)
        return [part.reshape(*part.shape[:2], -1, E) for part in parts]

    def of_heads(self, x_BTNE: jax.Array, *, at_once: bool) -> jax.Array:
        """The map of heads side by side, `[B, T, O]`, I = N * E; as `to_heads`."""
        if not at_once:
            return self(x_BTNE.reshape(*x_BTNE.shape[:2], -1))
        kernel_IO = self.kernel[...]
        kernel_NEO = kernel_IO.reshape(*x_BTNE.shape[2:], -1)
        return self._with_bias(_product(x_BTNE, kernel_NEO, rounds=self.rounds))

    def _with_bias(self, y: jax.Array) -> jax.Array:
        if not self.has_bias:
            return y
        bias = self.bias[...].reshape(y.shape[2:])[None, None]
        return (y.astype(jnp.float32) + bias).astype(y.dtype)


class Norm(nnx.Module):
    """RMS norm or layer norm over the last axis of an array of any rank."""

    def __init__(self, config: DecoderConfig, width: int):
        self.kind, self.eps = config.norm, config.norm_eps
        self.offset, self.has_weights = config.norm_offset, config.norm_weights
        if not self.has_weights:
            return
        self.scale = nnx.Param(jnp.full((width,), 1.0 - self.offset))
        if config.norm == "layer":
            self.bias = nnx.Param(jnp.zeros((width,)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalised `x`, of its shape, float32."""
        outer, x = tuple(range(x.ndim - 1)), x.astype(jnp.float32)
        if self.kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        if not self.has_weights:
            return x
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

    def activate(x: jax.Array) -> jax.Array:
        return ACTIVATIONS[config.activation](x.astype(jnp.float32)).astype(x.dtype)

    # Recomputed in the backward pass: that costs less than to save its steps.
    activate = jax.checkpoint(activate)
    if config.gated:
        gate_BTF, up_BTF = jnp.split(up_BTW, 2, axis=-1)
        if config.gate_clip is not None:
            return clipped_gate(gate_BTF, up_BTF, config.gate_clip)
        return activate(gate_BTF) * up_BTF
    return activate(up_BTW)


def _product(x: jax.Array, kernel: jax.Array, *, rounds: bool = False) -> jax.Array:
    """`x @ kernel` of operands in the kernel's dtype, added up in float32.

    Of more axes than two the kernel has `[I, N, E]`, and makes heads of x, or
    `[N, E, O]`, and takes the heads that x has.
    """
    x = x.astype(kernel.dtype)
    if kernel.dtype == jnp.float32:
        return _summed(x, kernel)
    return _rounded_product(x, kernel, rounds)


def _contracted(x: jax.Array, kernel: jax.Array, **how: Any) -> jax.Array:
    # Of kernels of three axes, those of heads: an x of heads has four.
    n = 2 if (x.ndim, kernel.ndim) == (4, 3) else 1
    axes = range(x.ndim - n, x.ndim), range(n)
    return jax.lax.dot_general(x, kernel, (axes, ((), ())), **how)


def _summed(x: jax.Array, kernel: jax.Array, rounds: bool = False) -> jax.Array:
    def product(x: jax.Array, kernel: jax.Array, of_sum: jnp.dtype) -> jax.Array:
        y = _contracted(x, kernel, preferred_element_type=of_sum)
        return y.astype(kernel.dtype) if rounds else y

    wide = functools.partial(product, of_sum=jnp.dtype(jnp.float32))
    if not rounds:
        return wide(x, kernel)
    # Its sum is float32 in any case, but a CPU's library is slower if asked to round.
    narrow = functools.partial(product, of_sum=kernel.dtype)
    return jax.lax.platform_dependent(x, kernel, cpu=wide, default=narrow)


# Without it the float32 cotangent would widen the other operand of both products of
# the gradient, which a GPU then computes in TF32, at half the speed of bfloat16.
@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rounded_product(x: jax.Array, kernel: jax.Array, rounds: bool) -> jax.Array:
    """`_summed`, whose gradient takes the cotangent in the kernel's dtype."""
    return _summed(x, kernel, rounds)


def _rounded_forward(x: jax.Array, kernel: jax.Array, rounds: bool):
    return _summed(x, kernel, rounds), (x, kernel)


def _rounded_backward(
    rounds: bool, kept: tuple[jax.Array, jax.Array], cotangent: jax.Array
):
    _, transposed = jax.vjp(_contracted, *kept)
    return transposed(cotangent.astype(kept[1].dtype))


_rounded_product.defvjp(_rounded_forward, _rounded_backward)


def chosen_experts(
    logits_BTX: jax.Array, experts: ExpertShape, preference_X: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Weights of the experts that each token uses, and their numbers, `[B, T, K]`.

    `preference_X` is added to the scores for the choice alone.
    """
    if experts.scores == "sigmoid":
        scores_BTX = jax.nn.sigmoid(logits_BTX)
    else:
        scores_BTX = jax.nn.softmax(logits_BTX, axis=-1)
    ranked_BTX = scores_BTX
    if preference_X is not None:
        ranked_BTX = ranked_BTX + preference_X[None, None]
    if experts.n_groups > 1:
        ranked_BTX = _in_best_groups(ranked_BTX, experts)
    chosen_BTK, index_BTK = jax.lax.top_k(ranked_BTX, experts.n_used)
    if ranked_BTX is not scores_BTX:
        chosen_BTK = jnp.take_along_axis(scores_BTX, index_BTK, axis=-1)
    if experts.normalised:
        total_BT1 = chosen_BTK.sum(axis=-1, keepdims=True)
        if experts.scores == "sigmoid":
            # All may be 0; the number is transformers' and DeepSeek's own.
            total_BT1 += 1e-20
        chosen_BTK /= total_BT1
    return chosen_BTK * experts.scale if experts.scale != 1.0 else chosen_BTK, index_BTK


def _in_best_groups(ranked_BTX: jax.Array, experts: ExpertShape) -> jax.Array:
    """The scores, minus infinity where the expert's group is not among the best."""
    N = experts.n_groups
    groups_BTNX = ranked_BTX.reshape(*ranked_BTX.shape[:2], N, -1)
    best, _ = jax.lax.top_k(groups_BTNX, experts.group_best)
    _, index = jax.lax.top_k(best.sum(axis=-1), experts.n_groups_used)
    used_BTN = jax.nn.one_hot(index, N).sum(axis=-2) > 0
    return jnp.where(used_BTN[..., None], groups_BTNX, -jnp.inf).reshape(
        ranked_BTX.shape
    )


def clipped_gate(gate_BTF: jax.Array, up_BTF: jax.Array, clip: GateClip) -> jax.Array:
    """A gate with its sigmoid, times one more than the other projection, both cut.

    Gates are cut from above alone; their sigmoid already flattens below.
    """

    # Recomputed in the backward pass: that costs less than to save its steps.
    @jax.checkpoint
    def product(gate_BTF: jax.Array, up_BTF: jax.Array) -> jax.Array:
        gate_BTF = jnp.minimum(gate_BTF, clip.limit)
        up_BTF = jnp.clip(up_BTF, -clip.limit, clip.limit)
        return gate_BTF * jax.nn.sigmoid(clip.slope * gate_BTF) * (up_BTF + 1.0)

    return product(gate_BTF, up_BTF)


class LayerInputs(nnx.Module):
    """Inputs of all layers: an embedding for each, and a map of the stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        width = config.n_layers * config.d_layer_input
        self.embedding = init_weight(rngs, (config.vocab_size, width))
        self.projection = Linear(config.d_model, width, bias=False, rngs=rngs)
        self.norm = Norm(config, config.d_layer_input)

    def __call__(self, tokens_BT: jax.Array, embedded_BTD: jax.Array) -> jax.Array:
        """Inputs of the layers, `[L, B, T, P]` float32; the stream is the embedding."""
        config, P = self.config, self.config.d_layer_input
        shape = (*tokens_BT.shape, config.n_layers, P)
        own_BTLP = self.embedding[...][tokens_BT].astype(jnp.float32).reshape(shape)
        mapped_BTLP = (
            self.projection(embedded_BTD).reshape(shape) * config.d_model**-0.5
        )
        both_BTLP = (self.norm(mapped_BTLP) + own_BTLP * P**0.5) * 0.5**0.5
        return jnp.moveaxis(both_BTLP, 2, 0)


class LayerInput(nnx.Module):
    """Addition of a block to the stream, from its layer's input."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, P = config.d_model, config.d_layer_input
        self.gate = Linear(D, P, bias=False, rngs=rngs)
        self.projection = Linear(P, D, bias=False, rngs=rngs)
        self.norm = Norm(config, D)

    def __call__(self, hidden_BTD: jax.Array, input_BTP: jax.Array) -> jax.Array:
        """The addition, `[B, T, D]` float32."""
        gate_BTP = ACTIVATIONS[self.config.activation](self.gate(hidden_BTD))
        return self.norm(self.projection(gate_BTP * input_BTP))
