"""The decoder: embedding, a scan over stacked blocks, final norm, head.

Products take operands in the dtype of the weights (float32, or bfloat16 where they
were read so) and add up in float32; the residual stream and the norms are float32.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of a prefix
    L  layers
    D  model width
    H  query heads
    G  key and value heads
    R  query heads a key head serves, R = H / G
    E  width of a head
    V  vocabulary
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.attention import Memory, View, attend
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.fused_attention import Hardware, hardware
from jaxcontam.models.layers import Experts, Linear, Mlp, Norm, drawn
from jaxcontam.models.rope import rotate, rotation
from jaxcontam.models.sharding import Layout, keeps_no_gathered


class Decoder(nnx.Module):
    """A decoder-only transformer that returns hidden states, not logits.

    The head is applied by the scoring kernel or the loss, block by block, so that
    no `[B, T, V]` array need exist.
    """

    def __init__(
        self, config: DecoderConfig, *, rngs: nnx.Rngs, on: Hardware | None = None
    ):
        """Weights at GPT-2's initial scale.

        Args:
            config: Shape.
            rngs: Seeds the weights.
            on: Hardware that the decoder is compiled for, which chooses the attention
                kernel; None is JAX's default device now. It is part of the graph
                definition, so that traced functions read no global state.
        """
        self.config = config
        self.hardware = hardware() if on is None else on
        D, V = config.d_model, config.vocab_size
        self.embedding = drawn(rngs, (V, D))
        if config.positions == "learned":
            self.position_embedding = drawn(rngs, (config.context, D))

        @nnx.split_rngs(splits=config.n_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stacked(rngs: nnx.Rngs) -> Block:
            return Block(config, rngs=rngs)

        self.blocks = stacked(rngs)
        self.final_norm = Norm(config, D)
        if not config.tied:
            self.head = drawn(rngs, (V, D))
        if config.head_bias:
            self.head_bias = nnx.Param(jnp.zeros((V,)))

    @property
    def head_VD(self) -> jax.Array:
        """Rows whose products with a hidden state are the logits.

        A bias is a column more, which a 1 at the end of each hidden state meets.
        """
        head_VD = (self.embedding if self.config.tied else self.head)[...]
        if not self.config.head_bias:
            return head_VD
        bias_V = self.head_bias[...].astype(head_VD.dtype)
        return jnp.concatenate([head_VD, bias_V[:, None]], axis=1)

    @property
    def dtype(self) -> str:
        """Of the operands of matrix products."""
        return str(self.embedding[...].dtype)

    def __call__(
        self,
        tokens_BT: jax.Array,
        memory: Memory | None = None,
        *,
        remat: bool = False,
        layout: Layout | None = None,
    ) -> jax.Array:
        """Hidden state after each token.

        Args:
            tokens_BT: int32 ids in [0, V); T at most the context. Position t sees
                tokens 0..t of its own row, so padding at the end changes nothing.
            memory: Of a prefix that stands before every row; see `remember`.
            remat: Compute each block again when gradients are taken, instead of keeping
                what it computed: memory of one block in place of all.
            layout: The layers hold this device's parts of their weights, within
                `shard_map`; the weights outside of them are whole.

        Returns:
            `hidden_BTD` float32, after the final norm; a 1 more at the end where the
            head has a bias.
        """
        return self._run(tokens_BT, memory, remat=remat, layout=layout)[0]

    def remember(
        self,
        tokens_P: jax.Array,
        length: jax.Array,
        *,
        layout: Layout | None = None,
    ) -> tuple[jax.Array, Memory]:
        """Read a prefix once, for any number of continuations.

        Args:
            tokens_P: int32 ids, padding at the end.
            length: int32 scalar, ids that are no padding.
            layout: As in `__call__`.

        Returns:
            Hidden states `[P, D]` and the memory of all layers.
        """
        hidden_BPD, (keys, values) = self._run(
            tokens_P[None], None, keep=True, layout=layout
        )
        lengths_L = jnp.broadcast_to(length, (self.config.n_layers,))
        return hidden_BPD[0], Memory(keys[:, 0], values[:, 0], lengths_L)

    def extend(self, token: jax.Array, memory: Memory) -> tuple[jax.Array, Memory]:
        """Read one more id after a prefix.

        Args:
            token: int32 scalar.
            memory: Of the prefix, with room for the id: P above its length. Padding
                is written over.

        Returns:
            The hidden state `[D]` after the id, and the memory one id longer.
        """
        hidden_BTD, (keys, values) = self._run(token[None, None], memory, keep=True)
        place = memory.length[0]
        write = jax.lax.dynamic_update_slice_in_dim
        longer = Memory(
            write(memory.keys, keys[:, 0], place, axis=1),
            write(memory.values, values[:, 0], place, axis=1),
            memory.length + 1,
        )
        return hidden_BTD[0, 0], longer

    def _run(
        self,
        tokens_BT: jax.Array,
        memory: Memory | None,
        *,
        keep: bool = False,
        remat: bool = False,
        layout: Layout | None = None,
    ) -> tuple[jax.Array, Any]:
        """Hidden states and, if asked, the keys and values of every layer."""
        _, T = tokens_BT.shape
        config = self.config
        if config.context < T:
            raise ValueError(f"T must be at most {config.context}, got {T}")
        positions_T = jnp.arange(T)
        if memory is not None:
            positions_T += memory.length[0]
        hidden_BTD = self.embedding[...][tokens_BT].astype(jnp.float32)
        if config.embedding_scale != 1.0:
            hidden_BTD *= config.embedding_scale
        turn = local_turn = is_local_L = None
        if config.positions == "learned":
            hidden_BTD += self.position_embedding[...][positions_T][None]
        else:
            turn = rotation(config, positions_T)
        if config.local_rope_theta is not None:
            local_turn = rotation(config, positions_T, local=True)
            is_local_L = jnp.array([size is not None for size in config.windows])
        graphdef, stacked = nnx.split(self.blocks)
        windows_L = None
        if any(config.windows):
            # A window as long as the context hides nothing.
            windows_L = jnp.array([size or config.context for size in config.windows])

        def step(hidden_BTD: jax.Array, layer):
            weights, window, is_local, prefix = layer
            if layout is not None:
                weights = layout.gather_layer(weights)
            own_turn = turn
            if local_turn is not None:
                choose = functools.partial(jnp.where, is_local)
                own_turn = jax.tree.map(choose, local_turn, turn)
            view = View(own_turn, positions_T, window, prefix, self.hardware)
            hidden_BTD, kept = nnx.merge(graphdef, weights)(hidden_BTD, view)
            return hidden_BTD, kept if keep else None

        layers = (stacked, windows_L, is_local_L, memory)
        if remat:
            # The scan itself keeps the compiler from merging the two computations.
            step = jax.checkpoint(step, prevent_cse=False)
        elif layout is not None and layout.axes:
            # Else the whole weights of all layers would be kept for the gradients.
            step = jax.checkpoint(step, prevent_cse=False, policy=keeps_no_gathered)
        hidden_BTD, kept = jax.lax.scan(step, hidden_BTD, layers)
        hidden_BTD = self.final_norm(hidden_BTD)
        if config.head_bias:
            ones_BT1 = jnp.ones((*tokens_BT.shape, 1), jnp.float32)
            hidden_BTD = jnp.concatenate([hidden_BTD, ones_BT1], axis=-1)
        return hidden_BTD, kept


class Block(nnx.Module):
    """Attention and feed-forward, each with its norms, added to the stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D = config.d_model
        self.attention = Attention(config, rngs=rngs)
        feed_forward = Mlp if config.experts is None else Experts
        self.mlp = feed_forward(config, rngs=rngs)
        if config.pre_norms:
            self.attention_norm = Norm(config, D)
        if config.pre_norms and not config.shared_norm:
            self.mlp_norm = Norm(config, D)
        if config.post_norms:
            self.attention_post_norm = Norm(config, D)
            self.mlp_post_norm = Norm(config, D)

    def __call__(
        self, hidden_BTD: jax.Array, view: View
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """The residual stream after this block; keys and values of its attention."""
        config = self.config
        read_BTD = self.attention_norm(hidden_BTD) if config.pre_norms else hidden_BTD
        mixed_BTD, kept = self.attention(read_BTD, view)
        if config.parallel:
            if not config.shared_norm:
                read_BTD = self.mlp_norm(hidden_BTD)
            return hidden_BTD + mixed_BTD + self.mlp(read_BTD), kept
        if config.post_norms:
            mixed_BTD = self.attention_post_norm(mixed_BTD)
        hidden_BTD += mixed_BTD
        read_BTD = self.mlp_norm(hidden_BTD) if config.pre_norms else hidden_BTD
        fed_BTD = self.mlp(read_BTD)
        if config.post_norms:
            fed_BTD = self.mlp_post_norm(fed_BTD)
        return hidden_BTD + fed_BTD, kept


class Attention(nnx.Module):
    """Causal self-attention with grouped key and value heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, E = config.d_model, config.head_dim
        n_fused = (config.n_heads + 2 * config.n_kv_heads) * E
        self.qkv = Linear(D, n_fused, bias=config.qkv_bias, rngs=rngs)
        self.out = Linear(config.n_heads * E, D, bias=config.output_bias, rngs=rngs)
        if config.query_key_norm is not None:
            is_whole = config.query_key_norm == "whole"
            self.query_norm = Norm(config, config.n_heads * E if is_whole else E)
            self.key_norm = Norm(config, config.n_kv_heads * E if is_whole else E)

    def __call__(
        self, hidden_BTD: jax.Array, view: View
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Mixed values after the output projection, `[B, T, D]`; keys and values."""
        B, T, _ = hidden_BTD.shape
        config = self.config
        H, G, E = config.n_heads, config.n_kv_heads, config.head_dim
        fused = self.qkv(hidden_BTD)
        q, k, v = jnp.split(fused, [H * E, (H + G) * E], axis=-1)
        if config.query_key_norm == "whole":
            q, k = self.query_norm(q), self.key_norm(k)
        q_BTHE, k_BTGE = q.reshape(B, T, H, E), k.reshape(B, T, G, E)
        v_BTGE = v.reshape(B, T, G, E)
        if config.query_key_norm == "head":
            q_BTHE, k_BTGE = self.query_norm(q_BTHE), self.key_norm(k_BTGE)
        if view.turn is not None:
            q_BTHE = rotate(q_BTHE, view.turn, config)
            k_BTGE = rotate(k_BTGE, view.turn, config)
        dtype = self.qkv.kernel[...].dtype
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E).astype(dtype)
        k_BTGE, v_BTGE = k_BTGE.astype(dtype), v_BTGE.astype(dtype)
        mixed_BTGRE = attend(q_BTGRE, k_BTGE, v_BTGE, view, config)
        return self.out(mixed_BTGRE.reshape(B, T, H * E)), (k_BTGE, v_BTGE)
