"""The decoder: embedding, a scan over stacked blocks, final norm, head.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    L  layers
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
from flax import nnx

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.rope import rotate, rotation

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
    "relu": jax.nn.relu,
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
        self.final_norm = Norm(config, D)
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
        if config.embedding_scale != 1.0:
            hidden_BTD = hidden_BTD * config.embedding_scale
        turn = None
        if config.positions == "learned":
            hidden_BTD = hidden_BTD + self.position_embedding[...][None, :T]
        else:
            turn = rotation(config, T)
        graphdef, stacked = nnx.split(self.blocks)
        windows_L = None
        if any(config.windows):
            windows_L = jnp.array([window or T for window in config.windows])

        def step(hidden_BTD: jax.Array, layer) -> tuple[jax.Array, None]:
            weights, window = layer
            return nnx.merge(graphdef, weights)(hidden_BTD, turn, window), None

        hidden_BTD, _ = jax.lax.scan(step, hidden_BTD, (stacked, windows_L))
        return self.final_norm(hidden_BTD)


class Block(nnx.Module):
    """Attention and feed-forward, each after a norm and added to the stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D = config.d_model
        self.attention_norm = Norm(config, D)
        self.attention = Attention(config, rngs=rngs)
        self.mlp_norm = Norm(config, D)
        self.mlp = Mlp(config, rngs=rngs)
        if config.post_norms:
            self.attention_post_norm = Norm(config, D)
            self.mlp_post_norm = Norm(config, D)

    def __call__(self, hidden_BTD: jax.Array, turn, window) -> jax.Array:
        """The residual stream after this block.

        Args:
            hidden_BTD: The stream before it.
            turn: Of `rotation`, or None where positions are learned.
            window: Tokens that a position sees; None where no layer has a window.
        """
        mixed_BTD = self.attention(self.attention_norm(hidden_BTD), turn, window)
        if self.config.parallel:
            return hidden_BTD + mixed_BTD + self.mlp(self.mlp_norm(hidden_BTD))
        if self.config.post_norms:
            hidden_BTD = hidden_BTD + self.attention_post_norm(mixed_BTD)
            return hidden_BTD + self.mlp_post_norm(self.mlp(self.mlp_norm(hidden_BTD)))
        hidden_BTD = hidden_BTD + mixed_BTD
        return hidden_BTD + self.mlp(self.mlp_norm(hidden_BTD))


class Attention(nnx.Module):
    """Causal self-attention with grouped key and value heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, E = config.d_model, config.head_dim
        n_fused = (config.n_heads + 2 * config.n_kv_heads) * E
        self.qkv = Linear(D, n_fused, bias=config.qkv_bias, rngs=rngs)
        self.out = Linear(config.n_heads * E, D, bias=config.output_bias, rngs=rngs)
        if config.query_key_norm:
            self.query_norm, self.key_norm = Norm(config, E), Norm(config, E)

    def __call__(self, hidden_BTD: jax.Array, turn, window) -> jax.Array:
        """Mixed values after the output projection, `[B, T, D]`; see `Block`."""
        B, T, _ = hidden_BTD.shape
        config = self.config
        H, G, E = config.n_heads, config.n_kv_heads, config.head_dim
        fused = self.qkv(hidden_BTD)
        q_BTHE = fused[..., : H * E].reshape(B, T, H, E)
        k_BTGE = fused[..., H * E : (H + G) * E].reshape(B, T, G, E)
        v_BTGE = fused[..., (H + G) * E :].reshape(B, T, G, E)
        if config.query_key_norm:
            q_BTHE, k_BTGE = self.query_norm(q_BTHE), self.key_norm(k_BTGE)
        if turn is not None:
            q_BTHE, k_BTGE = rotate(q_BTHE, turn), rotate(k_BTGE, turn)
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E)
        mixed = _causal_attention(
            q_BTGRE,
            k_BTGE,
            v_BTGE,
            window,
            scale=config.attention_scale or E**-0.5,
            softcap=config.attention_softcap,
        )
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

    def __init__(self, config: DecoderConfig, width: int):
        self.kind, self.eps = config.norm, config.norm_eps
        self.scale = nnx.Param(jnp.ones((width,)))
        if config.norm == "layer":
            self.bias = nnx.Param(jnp.zeros((width,)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalised `x`, in its own dtype."""
        wide = x.astype(jnp.float32)
        outer = tuple(range(x.ndim - 1))
        if self.kind == "layer":
            wide = wide - wide.mean(axis=-1, keepdims=True)
        square = jnp.mean(wide * wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(square + self.eps)
        wide = wide * jnp.expand_dims(self.scale[...], outer)
        if self.kind == "layer":
            wide = wide + jnp.expand_dims(self.bias[...], outer)
        return wide.astype(x.dtype)


def softcapped(x: jax.Array, cap: float | None) -> jax.Array:
    """Smoothly limit `x` to plus and minus `cap`; None leaves it."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def _weight(rngs: nnx.Rngs, shape: tuple[int, ...]) -> nnx.Param:
    return nnx.Param(_INIT_STD * jax.random.normal(rngs.params(), shape))


def _causal_attention(
    q_BTGRE: jax.Array,
    k_BTGE: jax.Array,
    v_BTGE: jax.Array,
    window,
    *,
    scale: float,
    softcap: float | None,
) -> jax.Array:
    """Softmax attention, block of queries by block, each over its own prefix."""
    T = q_BTGRE.shape[1]
    blocks = []
    for start in range(0, T, _QUERY_BLOCK):
        stop = min(start + _QUERY_BLOCK, T)
        distance = jnp.arange(start, stop)[:, None] - jnp.arange(stop)[None]
        seen = distance >= 0
        if window is not None:
            seen &= distance < window
        scores = jnp.einsum(
            "btgre,bsge->bgrts",
            q_BTGRE[:, start:stop],
            k_BTGE[:, :stop],
            preferred_element_type=jnp.float32,
        )
        scores = softcapped(scores * scale, softcap)
        scores = jnp.where(seen[None, None, None], scores, -1e30)
        weights = jax.nn.softmax(scores, axis=-1).astype(v_BTGE.dtype)
        blocks.append(jnp.einsum("bgrts,bsge->btgre", weights, v_BTGE[:, :stop]))
    return jnp.concatenate(blocks, axis=1)
