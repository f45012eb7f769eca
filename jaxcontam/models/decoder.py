"""The decoder: embedding, scans over stacked blocks, final norm, head.

Matrix products take operands in the dtype of the weights (float32, or bfloat16 where
they were read as such) and accumulate in float32; the residual stream and the norms are
float32.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    P  tokens of a prefix
    D  model width
    V  vocabulary
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.attention import (
    AttentionContext,
    Cache,
    cache_of,
    extended,
    length_of,
)
from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.delta import GatedDelta
from jaxcontam.models.fused_attention import Hardware, hardware, matmul_precision
from jaxcontam.models.layers import (
    Experts,
    LayerInput,
    LayerInputs,
    Mlp,
    Norm,
    init_weight,
)
from jaxcontam.models.rope import rotary_cos_sin, unrotated
from jaxcontam.models.self_attention import Attention, LatentAttention
from jaxcontam.models.sharding import WeightSharding, saves_no_gathered
from jaxcontam.models.stacks import (
    REUSED,
    STACKS,
    layer_stacks,
    scan_runs,
    stack_config,
)


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

        `on` is the hardware that the decoder is compiled for, None JAX's default device
        now: it chooses the attention kernel, and is part of the graph definition, so
        that traced functions read no global state.
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
                shape = stack_config(config, stack)
                blocks = _stacked(shape, n_layers, rngs, reuses=stack in REUSED)
                setattr(self, stack, blocks)
        if config.d_layer_input:
            self.layer_inputs = LayerInputs(config, rngs=rngs)
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
        """JAX's default matmul precision, for whoever runs the decoder to set."""
        return matmul_precision(self.dtype, self.hardware)

    def __call__(
        self,
        tokens_BT: jax.Array,
        cache: Cache | None = None,
        *,
        remat: bool = False,
        unroll: bool = False,
        sharding: WeightSharding | None = None,
        segments_BT: jax.Array | None = None,
    ) -> jax.Array:
        """Hidden state after each token.

        Args:
            tokens_BT: Ids in [0, V); T at most the context. Position t sees tokens 0..t
                of its own row, so padding at the end changes nothing.
            cache: What is kept of a prefix before every row; see `prefill`.
            remat: Recompute each block in the backward pass.
            unroll: Compile each layer by itself: what it saves for its gradient is not
                copied to and from a stack of all layers.
            sharding: How the layers' weights are divided, within `shard_map`.
            segments_BT: Tokens attend to those of their own segment alone.

        Returns:
            `hidden_BTD` float32, after the final norm; with a trailing 1 where the head
            has a bias.
        """
        found = self._run(
            tokens_BT,
            cache,
            remat=remat,
            unroll=unroll,
            sharding=sharding,
            segments_BT=segments_BT,
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

        `length` counts the ids before the padding. Gives hidden states `[P, D]`, and
        what all layers keep.
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
        """Read one int32 id after a prefix: hidden state `[D]`, and the longer cache.

        P exceeds the cache's length, and the first padding is overwritten.
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
        segments_BT: jax.Array | None = None,
    ) -> tuple[jax.Array, Any]:
        """Hidden states and, if asked, what the layers of each stack keep."""
        _, T = tokens_BT.shape
        config = self.config
        if segments_BT is not None and "delta_blocks" in layer_stacks(config):
            raise ValueError("a delta rule keeps no segments apart")
        if config.context < T:
            raise ValueError(f"T must be at most {config.context}, got {T}")
        positions_T = jnp.arange(T)
        if cache is not None:
            positions_T += length_of(cache)
        hidden_BTD = self.embedding[...][tokens_BT].astype(jnp.float32)
        if config.embedding_scale != 1.0:
            hidden_BTD *= config.embedding_scale
        input_LBTP = None
        if config.d_layer_input:
            input_LBTP = self.layer_inputs(tokens_BT, hidden_BTD)
        rotary = local_rotary = is_local_L = window_rotary = None
        if config.positions == "learned":
            hidden_BTD += self.position_embedding[...][positions_T][None]
        else:
            rotary = rotary_cos_sin(config, positions_T)
        if config.local is not None:
            of_windows = stack_config(config, "local_blocks")
            window_rotary = rotary_cos_sin(of_windows, positions_T)
        elif config.local_rope_theta is not None:
            local_rotary = rotary_cos_sin(config, positions_T, local=True)
            is_local_L = jnp.array([size is not None for size in config.windows])
        elif config.rotated_layers and rotary is not None:
            local_rotary = unrotated(rotary)
            is_local_L = ~jnp.array(config.rotated_layers)
        windows_L = None
        if any(config.windows):
            # A window as long as the context hides nothing.
            windows_L = jnp.array([size or config.context for size in config.windows])

        # Keys and values that later layers reuse, by the stack that makes them.
        reused: dict[str, tuple[jax.Array, jax.Array]] = {}
        for stack in set(REUSED.values()) if config.n_reusing else ():
            of_stack = stack_config(config, stack)
            shape = (*tokens_BT.shape, of_stack.n_kv_heads, of_stack.head_dim)
            reused[stack] = (jnp.zeros(shape, self.dtype), jnp.zeros(shape, self.dtype))

        def step(stack: str, carry, layer):
            hidden_BTD, reused = carry
            weights, window, is_local, prefix, input_BTP = layer
            source = REUSED.get(stack, "")
            if cache is not None and source:
                prefix = jax.tree.map(lambda x: x[-1], cache[source])
            if sharding is not None:
                weights = sharding.gather_layer(weights, stack)
            own_rotary = rotary
            if window_rotary is not None and stack.startswith("local_"):
                own_rotary = window_rotary
            if local_rotary is not None:
                choose = functools.partial(jnp.where, is_local)
                own_rotary = jax.tree.map(choose, local_rotary, rotary)
            context = AttentionContext(
                own_rotary,
                positions_T,
                window,
                prefix,
                self.hardware,
                length=length,
                reused=reused.get(source),
                layer_input=input_BTP,
                segments=segments_BT,
            )
            block = nnx.merge(graphdefs[stack], weights)
            hidden_BTD, kept = block(hidden_BTD, context)
            if stack in reused:
                reused = reused | {stack: kept}
            return (hidden_BTD, reused), kept if keep else None

        def one_layer(stack: str) -> Callable[..., tuple[Any, Any]]:
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
            window_L, local_L, layer_input_L = (
                x if x is None or len(own) == len(stacks) else x[own]
                for x in (windows_L, is_local_L, input_LBTP)
            )
            prefix = None if cache is None else cache.get(stack)
            inputs[stack] = (weights, window_L, local_L, prefix, layer_input_L)
        (hidden_BTD, _), kept = scan_runs(
            {stack: one_layer(stack) for stack in inputs},
            (hidden_BTD, reused),
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
        return hidden_BTD, {k: made for k, made in kept.items() if made is not None}


def abstract_decoder(config: DecoderConfig, on: Hardware | None = None) -> Decoder:
    """A decoder of shapes, as it would be on this hardware; nothing is allocated."""
    on = hardware() if on is None else on
    return nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), on=on))


def _stacked(
    config: DecoderConfig, n_layers: int, rngs: nnx.Rngs, *, reuses: bool
) -> "Block":
    """Blocks whose weights have a first axis over the layers."""

    @nnx.split_rngs(splits=n_layers)
    @nnx.vmap(in_axes=0, out_axes=0)
    def stacked(rngs: nnx.Rngs) -> Block:
        return Block(config, rngs=rngs, reuses=reuses)

    return stacked(rngs)


class Block(nnx.Module):
    """Attention and feed-forward with their norms, added to the residual stream."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs, reuses: bool = False):
        self.config = config
        D = config.d_model
        if config.delta is not None:
            self.attention = GatedDelta(config, rngs=rngs)
        elif config.latent is not None:
            self.attention = LatentAttention(config, rngs=rngs)
        else:
            self.attention = Attention(config, rngs=rngs, reuses=reuses)
        feed_forward = Mlp if config.experts is None else Experts
        self.mlp = feed_forward(config, rngs=rngs)
        if config.pre_norms:
            self.attention_norm = Norm(config, D)
        if config.pre_norms and not config.shared_norm:
            self.mlp_norm = Norm(config, D)
        if config.post_norms:
            self.attention_post_norm = Norm(config, D)
            self.mlp_post_norm = Norm(config, D)
        if config.d_layer_input:
            self.layer_input = LayerInput(config, rngs=rngs)
        if config.layer_scaled:
            self.scale = nnx.Param(jnp.ones((1,)))

    def __call__(
        self, hidden_BTD: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
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
        hidden_BTD += fed_BTD
        if context.layer_input is not None:
            hidden_BTD += self.layer_input(hidden_BTD, context.layer_input)
        if config.layer_scaled:
            hidden_BTD *= jax.lax.stop_gradient(self.scale[...])[None, None]
        return hidden_BTD, kept

    def _fed(self, read_BTD: jax.Array, context: AttentionContext) -> jax.Array:
        if isinstance(self.mlp, Experts):
            return self.mlp(read_BTD, context.hardware.platform)
        return self.mlp(read_BTD)
