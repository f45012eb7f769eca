"""The decoder: embedding, scans over stacked blocks, final norm, head.

Matrix products take operands in the dtype of the weights (float32, or bfloat16 where
they were read as such) and accumulate in float32; the residual stream and the norms are
float32.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of a prefix
    D  model width
    H  query heads
    G  key and value heads
    R  query heads a key head serves, R = H / G
    E  width of a head
    Y  width of all query heads, Y = H * E
    Z  width of all key or value heads, Z = G * E
    V  vocabulary
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.attention import AttentionContext, attend
from jaxcontam.models.cache import Cache, cache_of, extended, length_of
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.delta import GatedDelta
from jaxcontam.models.fused_attention import Hardware, hardware
from jaxcontam.models.latent import LatentAttention
from jaxcontam.models.layers import Experts, Linear, Mlp, Norm, init_weight
from jaxcontam.models.precision import matmul_precision
from jaxcontam.models.rope import rotary_cos_sin, rotate, unrotated
from jaxcontam.models.sharding import WeightSharding, saves_no_gathered
from jaxcontam.models.stacks import STACKS, layer_stacks, scan_runs, stack_config


class Decoder(nnx.Module):
    """A decoder-only transformer that returns hidden states, not logits.

    The scoring kernel or the loss applies the head block by block, so that no
    `[B, T, V]` array need exist.
    """

    blocks: "Block"

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
        self.embedding = init_weight(rngs, (V, D))
        if config.positions == "learned":
            self.position_embedding = init_weight(rngs, (config.context, D))

        stacks = layer_stacks(config)
        for stack in STACKS:
            if n_layers := stacks.count(stack):
                blocks = _stacked(stack_config(config, stack), n_layers, rngs)
                setattr(self, stack, blocks)
        self.final_norm = Norm(config, D)
        if not config.tied:
            self.head = init_weight(rngs, (V, D))
        if config.head_bias:
            self.head_bias = nnx.Param(jnp.zeros((V,)))

    @property
    def head_VD(self) -> jax.Array:
        """Output embedding: its products with a hidden state are the logits.

        The bias is an extra column; hidden states carry a trailing 1.
        """
        head_VD = (self.embedding if self.config.tied else self.head)[...]
        if not self.config.head_bias:
            return head_VD
        bias_V = self.head_bias[...].astype(head_VD.dtype)
        return jnp.concatenate([head_VD, bias_V[:, None]], axis=1)

    @property
    def dtype(self) -> str:
        """Matmul precision: `float32`, or `bfloat16`, faster but less accurate."""
        return str(self.embedding[...].dtype)

    @property
    def precision(self) -> str:
        """What whoever runs the decoder sets as JAX's default matmul precision."""
        return matmul_precision(self.dtype, self.hardware)

    def __call__(
        self,
        tokens_BT: jax.Array,
        cache: Cache | None = None,
        *,
        remat: bool = False,
        unroll: bool = False,
        sharding: WeightSharding | None = None,
    ) -> jax.Array:
        """Hidden state after each token.

        Args:
            tokens_BT: int32 ids in [0, V); T at most the context. Position t sees
                tokens 0..t of its own row, so padding at the end changes nothing.
            cache: What is kept of a prefix before every row; see `prefill`.
            remat: Recompute each block in the backward pass instead of saving its
                activations.
            unroll: Compile each layer by itself: what a layer saves for its gradient
                is not copied to and from a stack of all layers.
            sharding: How the layers' weights are divided, within `shard_map`; the
                weights outside of the layers are whole.

        Returns:
            `hidden_BTD` float32, after the final norm; with a trailing 1 where the head
            has a bias.
        """
        found = self._run(
            tokens_BT, cache, remat=remat, unroll=unroll, sharding=sharding
        )
        return found[0]

    def prefill(
        self,
        tokens_P: jax.Array,
        length: jax.Array,
        *,
        sharding: WeightSharding | None = None,
    ) -> tuple[jax.Array, Cache]:
        """Read a prefix once, for any number of continuations.

        Args:
            tokens_P: int32 ids, padding at the end.
            length: int32 scalar, ids that are not padding.
            sharding: As in `__call__`.

        Returns:
            Hidden states `[P, D]`, and what all layers keep.
        """
        hidden_BPD, kept = self._run(
            tokens_P[None], None, keep=True, length=length, sharding=sharding
        )
        lengths = {
            stack: jnp.broadcast_to(length, first.shape[:1])
            for stack, (first, _) in kept.items()
        }
        return hidden_BPD[0], cache_of(kept, lengths)

    def decode(self, token: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Read one id after a prefix.

        Args:
            token: int32 scalar.
            cache: What is kept of the prefix; P exceeds its length, and the first
                padding is overwritten.

        Returns:
            The hidden state `[D]` after the id, and the cache with the id.
        """
        hidden_BTD, kept = self._run(token[None, None], cache, keep=True)
        return hidden_BTD[0, 0], extended(cache, kept)

    def _run(
        self,
        tokens_BT: jax.Array,
        cache: Cache | None,
        *,
        keep: bool = False,
        length: jax.Array | None = None,
        remat: bool = False,
        unroll: bool = False,
        sharding: WeightSharding | None = None,
    ) -> tuple[jax.Array, Any]:
        """Hidden states and, if asked, what the layers of each stack keep."""
        _, T = tokens_BT.shape
        config = self.config
        if config.context < T:
            raise ValueError(f"T must be at most {config.context}, got {T}")
        positions_T = jnp.arange(T)
        if cache is not None:
            positions_T += length_of(cache)
        hidden_BTD = self.embedding[...][tokens_BT].astype(jnp.float32)
        if config.embedding_scale != 1.0:
            hidden_BTD *= config.embedding_scale
        rotary = local_rotary = is_local_L = None
        if config.positions == "learned":
            hidden_BTD += self.position_embedding[...][positions_T][None]
        else:
            rotary = rotary_cos_sin(config, positions_T)
        if config.local_rope_theta is not None:
            local_rotary = rotary_cos_sin(config, positions_T, local=True)
            is_local_L = jnp.array([size is not None for size in config.windows])
        elif config.rotated_layers and rotary is not None:
            local_rotary = unrotated(rotary)
            is_local_L = ~jnp.array(config.rotated_layers)
        windows_L = None
        if any(config.windows):
            # A window as long as the context hides nothing.
            windows_L = jnp.array([size or config.context for size in config.windows])

        def step(stack: str, hidden_BTD: jax.Array, layer):
            weights, window, is_local, prefix = layer
            if sharding is not None:
                weights = sharding.gather_layer(weights, stack)
            own_rotary = rotary
            if local_rotary is not None:
                choose = functools.partial(jnp.where, is_local)
                own_rotary = jax.tree.map(choose, local_rotary, rotary)
            context = AttentionContext(
                own_rotary, positions_T, window, prefix, self.hardware, length=length
            )
            block = nnx.merge(graphdefs[stack], weights)
            hidden_BTD, kept = block(hidden_BTD, context)
            return hidden_BTD, kept if keep else None

        def one_layer(stack: str) -> Callable[..., tuple[jax.Array, Any]]:
            own = functools.partial(step, stack)
            if remat:
                # The scan itself keeps the compiler from merging the two computations.
                return jax.checkpoint(own, prevent_cse=False)
            if sharding is not None and sharding.axes:
                # Else the whole weights of all layers would be saved for the gradients.
                return jax.checkpoint(own, prevent_cse=False, policy=saves_no_gathered)
            return own

        stacks = layer_stacks(config)
        graphdefs, inputs = {}, {}
        for stack in sorted(set(stacks)):
            graphdefs[stack], weights = nnx.split(getattr(self, stack))
            own = np.flatnonzero([name == stack for name in stacks])
            window_L, local_L = (
                x if x is None or len(own) == len(stacks) else x[own]
                for x in (windows_L, is_local_L)
            )
            prefix = None if cache is None else cache[stack]
            inputs[stack] = (weights, window_L, local_L, prefix)
        hidden_BTD, kept = scan_runs(
            {stack: one_layer(stack) for stack in inputs},
            hidden_BTD,
            inputs,
            stacks,
            unroll=unroll,
        )
        hidden_BTD = self.final_norm(hidden_BTD)
        if config.logit_scale != 1.0:
            hidden_BTD *= config.logit_scale
        if config.head_bias:
            ones_BT1 = jnp.ones((*tokens_BT.shape, 1), jnp.float32)
            hidden_BTD = jnp.concatenate([hidden_BTD, ones_BT1], axis=-1)
        return hidden_BTD, kept


def abstract_decoder(config: DecoderConfig, on: Hardware | None = None) -> Decoder:
    """A decoder of shapes, as it would be on this hardware; nothing is allocated."""
    on = hardware() if on is None else on
    return nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), on=on))


def _stacked(config: DecoderConfig, n_layers: int, rngs: nnx.Rngs) -> "Block":
    """Blocks whose weights have a first axis over the layers."""

    @nnx.split_rngs(splits=n_layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def stacked(rngs: nnx.Rngs) -> Block:
        return Block(config, rngs=rngs)

    return stacked(rngs)


class Block(nnx.Module):
    """Attention and feed-forward with their norms, added to the residual stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D = config.d_model
        attention = Attention if config.latent is None else LatentAttention
        if config.delta is not None:
            attention = GatedDelta
        self.attention = attention(config, rngs=rngs)
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
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Residual stream after this block; what its attention keeps."""
        config = self.config
        read_BTD = self.attention_norm(hidden_BTD) if config.pre_norms else hidden_BTD
        mixed_BTD, kept = self.attention(read_BTD, context)
        if config.parallel:
            if not config.shared_norm:
                read_BTD = self.mlp_norm(hidden_BTD)
            fed_BTD = self._fed(read_BTD, context)
            return hidden_BTD + mixed_BTD + fed_BTD, kept
        if config.post_norms:
            mixed_BTD = self.attention_post_norm(mixed_BTD)
        if config.residual_scale != 1.0:
            mixed_BTD *= config.residual_scale
        hidden_BTD += mixed_BTD
        read_BTD = self.mlp_norm(hidden_BTD) if config.pre_norms else hidden_BTD
        fed_BTD = self._fed(read_BTD, context)
        if config.post_norms:
            fed_BTD = self.mlp_post_norm(fed_BTD)
        if config.residual_scale != 1.0:
            fed_BTD *= config.residual_scale
        return hidden_BTD + fed_BTD, kept

    def _fed(self, read_BTD: jax.Array, context: AttentionContext) -> jax.Array:
        if isinstance(self.mlp, Experts):
            return self.mlp(read_BTD, context.hardware.platform)
        return self.mlp(read_BTD)


class Attention(nnx.Module):
    """Causal self-attention with grouped key and value heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.config = config
        D, E = config.d_model, config.head_dim
        n_queries = config.n_heads * (2 if config.attention_gate else 1)
        n_fused = (n_queries + 2 * config.n_kv_heads) * E
        self.qkv = Linear(D, n_fused, bias=config.qkv_bias, rngs=rngs, rounds=True)
        self.out = Linear(config.n_heads * E, D, bias=config.output_bias, rngs=rngs)
        if config.attention_sinks:
            self.sinks = nnx.Param(jnp.zeros((config.n_heads,)))
        if config.query_key_norm is not None:
            is_whole = config.query_key_norm == "whole"
            self.query_norm = Norm(config, config.n_heads * E if is_whole else E)
            self.key_norm = Norm(config, config.n_kv_heads * E if is_whole else E)

    def __call__(
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Mixed values after the output projection, `[B, T, D]`; keys and values."""
        B, T, _ = hidden_BTD.shape
        config = self.config
        H, G, E = config.n_heads, config.n_kv_heads, config.head_dim
        qkv, gate_BTY = self.qkv(hidden_BTD), None
        q_BTY, k_BTZ, v_BTZ = jnp.split(
            qkv, [qkv.shape[-1] - 2 * G * E, qkv.shape[-1] - G * E], axis=-1
        )
        if config.attention_gate:
            # Of each head its query, then its gate.
            pairs_BTHE = jnp.split(q_BTY.reshape(B, T, H, 2 * E), 2, axis=-1)
            q_BTY, gate_BTY = (x.reshape(B, T, H * E) for x in pairs_BTHE)
        if config.query_key_norm == "whole":
            q_BTY, k_BTZ = self.query_norm(q_BTY), self.key_norm(k_BTZ)
        if (clip := config.qkv_clip) is not None:
            q_BTY, k_BTZ, v_BTZ = (
                jnp.clip(x, -clip, clip) for x in (q_BTY, k_BTZ, v_BTZ)
            )
        q_BTHE = q_BTY.reshape(B, T, H, E)
        k_BTGE, v_BTGE = k_BTZ.reshape(B, T, G, E), v_BTZ.reshape(B, T, G, E)
        if config.query_key_norm == "head":
            q_BTHE, k_BTGE = self.query_norm(q_BTHE), self.key_norm(k_BTGE)
        if context.rotary is not None:
            q_BTHE = rotate(q_BTHE, context.rotary, config)
            k_BTGE = rotate(k_BTGE, context.rotary, config)
        dtype = self.qkv.kernel[...].dtype
        q_BTGRE = q_BTHE.reshape(B, T, G, H // G, E).astype(dtype)
        k_BTGE, v_BTGE = k_BTGE.astype(dtype), v_BTGE.astype(dtype)
        if config.attention_sinks:
            context = context._replace(sinks=self.sinks[...].reshape(G, H // G))
        mixed_BTGRE = attend(q_BTGRE, k_BTGE, v_BTGE, context, config)
        mixed_BTY = mixed_BTGRE.reshape(B, T, H * E)
        if gate_BTY is not None:
            mixed_BTY *= jax.nn.sigmoid(gate_BTY.astype(jnp.float32))
        return self.out(mixed_BTY), (k_BTGE, v_BTGE)
