"""The decoder: embedding, a scan over stacked blocks, final norm, head.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    D  model width
    H  query heads
    G  key and value heads
    R  query heads a key head serves, R = H / G
    E  width of a head
    F  feed-forward width
    V  vocabulary
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.config import DecoderConfig

# Queries attend in blocks of this many, each to its own prefix: most of the upper
# triangle of the score matrix is never computed. Blocks of 128 are as fast and take
# more memory to compile.
_QUERY_BLOCK = 256
# GPT-2's initial scale.
_INIT_STD = 0.02

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
}


class Decoder(nnx.Module):
    """A decoder-only transformer that returns hidden states, not logits.

    The head is applied by the scoring kernel or the loss, block by block, so that
    no `[B, T, V]` array need exist.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, V = config.d_model, config.vocab_size
        self.embedding = _weight(rngs, (V, D))
        if config.positions == "learned":
            self.position_embedding = _weight(rngs, (config.context, D))

        @nnx.split_rngs(splits=config.n_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> Block:
            return Block(config, rngs=rngs)

        self.blocks = stacked(rngs)
        self.final_norm = Norm(config)
        if not config.tied:
            self.head = _weight(rngs, (V, D))

    @property
    def head_VD(self) -> jax.Array:
        """Rows whose products with a hidden state are the logits."""
        return (self.embedding if self.config.tied else self.head)[...]

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """Hidden state after each token.

        Args:
            tokens_BT: int32 ids in [0, V); T at most the context. Position t sees
                tokens 0..t of its own row, so padding at the end changes nothing.

        Returns:
            `hidden_BTD` after the final norm, in the weights' dtype.
        """
        _, T = tokens_BT.shape
        config = self.config
        if config.context < T:
            raise ValueError(f"T must be at most {config.context}, got {T}")
        hidden_BTD = self.embedding[...][tokens_BT]
        rotation_TE = None
        if config.positions == "learned":
            hidden_BTD = hidden_BTD + self.position_embedding[...][None, :T]
        else:
            rotation_TE = _rotation(T, config.head_dim, config.rope_theta)
        graphdef, stacked = nnx.split(self.blocks)

        def step(hidden_BTD: jax.Array, layer) -> tuple[jax.Array, None]:
            return nnx.merge(graphdef, layer)(hidden_BTD, rotation_TE), None

        hidden_BTD, _ = jax.lax.scan(step, hidden_BTD, stacked)
        return self.final_norm(hidden_BTD)


class Block(nnx.Module):
    """Attention and feed-forward, each after a norm and added to the stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.attention_norm = Norm(config)
        self.attention = Attention(config, rngs=rngs)
        self.mlp_norm = Norm(config)
        self.mlp = Mlp(config, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array, rotation_TE) -> jax.Array:
        """The residual stream after this block; shapes as its input."""
        hidden_BTD += self.attention(self.attention_norm(hidden_BTD), rotation_TE)
        return hidden_BTD + self.mlp(self.mlp_norm(hidden_BTD))


class Attention(nnx.Module):
    """Causal self-attention with grouped key and value heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, E = config.d_model, config.head_dim
        n_fused = (config.n_heads + 2 * config.n_kv_heads) * E
        self.qkv = Linear(D, n_fused, bias=config.attention_bias, rngs=rngs)
        self.out = Linear(config.n_heads * E, D, bias=config.attention_bias, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array, rotation_TE) -> jax.Array:
        """Mixed values after the output projection, `[B, T, D]`."""
        B, T, _ = hidden_BTD.shape
        H, G, E = self.config.n_heads, self.config.n_kv_heads, self.config.head_dim
        fused = self.qkv(hidden_BTD)
        q_BTHE = fused[..., : H * E].reshape(B, T, H, E)
        k_BTGE = fused[..., H * E : (H + G) * E].reshape(B, T, G, E)
        v_BTGE = fused[..., (H + G) * E :].reshape(B, T, G, E)
        if rotation_TE is not None:
            q_BTHE, k_BTGE = _rotate(q_BTHE, rotation_TE), _rotate(k_BTGE, rotation_TE)
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E)
        mixed = _causal_attention(q_BTGRE, k_BTGE, v_BTGE)
        return self.out(mixed.reshape(B, T, H * E))


class Mlp(nnx.Module):
    """Feed-forward layer; gated ones keep gate and up side by side in `up`."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, F = config.d_model, config.d_ff
        width = 2 * F if config.gated else F
        self.up = Linear(D, width, bias=config.mlp_bias, rngs=rngs)
        self.down = Linear(F, D, bias=config.mlp_bias, rngs=rngs)

    def __call__(self, hidden_BTD: jax.Array) -> jax.Array:
        """The layer's output, `[B, T, D]`."""
        activate = _ACTIVATIONS[self.config.activation]
        wide = self.up(hidden_BTD)
        if self.config.gated:
            gate_BTF, up_BTF = jnp.split(wide, 2, axis=-1)
            return self.down(activate(gate_BTF) * up_BTF)
        return self.down(activate(wide))


class Linear(nnx.Module):
    """Affine map; `kernel` is [inputs, outputs]."""

    def __init__(self, n_in: int, n_out: int, *, bias: bool, rngs: nnx.Rngs):
        self.kernel = _weight(rngs, (n_in, n_out))
        if bias:
            self.bias = nnx.Param(jnp.zeros((n_out,)))
        self.has_bias = bias

    def __call__(self, x: jax.Array) -> jax.Array:
        """`x @ kernel + bias` over the last axis."""
        y = x @ self.kernel[...]
        return y + self.bias[...][None, None] if self.has_bias else y


class Norm(nnx.Module):
    """RMS norm or layer norm over the last axis, in float32."""

    def __init__(self, config: DecoderConfig):
        self.kind, self.eps = config.norm, config.norm_eps
        self.scale = nnx.Param(jnp.ones((config.d_model,)))
        if config.norm == "layer":
            self.bias = nnx.Param(jnp.zeros((config.d_model,)))

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Normalised `x_BTD`, in its own dtype."""
        x = x_BTD.astype(jnp.float32)
        if self.kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        x = x * self.scale[...][None, None]
        if self.kind == "layer":
            x = x + self.bias[...][None, None]
        return x.astype(x_BTD.dtype)


def _weight(rngs: nnx.Rngs, shape: tuple[int, ...]) -> nnx.Param:
    return nnx.Param(_INIT_STD * jax.random.normal(rngs.params(), shape))


def _rotation(T: int, E: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of the rotary angles, `[T, E / 2]` each."""
    # On the host: XLA's float32 power is off by several units in the last place, which
    # thousands of positions multiply.
    powers = np.arange(0, E, 2, dtype=np.float32) / np.float32(E)
    frequencies = np.float32(1) / np.float32(theta) ** powers
    angles = jnp.arange(T, dtype=jnp.float32)[:, None] * frequencies[None]
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(x_BTHE: jax.Array, rotation) -> jax.Array:
    """Rotate pairs (e, e + E/2) by the position's angle."""
    cos, sin = (part[None, :, None, :] for part in rotation)
    first, second = jnp.split(x_BTHE, 2, axis=-1)
    return jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def _causal_attention(
    q_BTGRE: jax.Array, k_BTGE: jax.Array, v_BTGE: jax.Array
) -> jax.Array:
    """Softmax attention, block of queries by block, each over its own prefix."""
    T, E = q_BTGRE.shape[1], q_BTGRE.shape[-1]
    blocks = []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        seen = jnp.arange(start, stop)[:, None] >= jnp.arange(stop)[None]
        scores = jnp.einsum(
            "btgre,bsge->bgrts",
            q_BTGRE[:, start:stop],
            k_BTGE[:, :stop],
            preferred_element_type=jnp.float32,
        )
        scores = jnp.where(seen[None, None, None], scores * E**-0.5, -1e30)
        weights = jax.nn.softmax(scores, axis=-1).astype(v_BTGE.dtype)
        blocks.append(jnp.einsum("bgrts,bsge->btgre", weights, v_BTGE[:, :stop]))
    return jnp.concatenate(blocks, axis=1)
