"""An input of each layer beside the stream, made of the tokens.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    L  layers
    D  model width
    P  width of the input
"""

import jax
import jax.numpy as jnp
from flax import nnx

from jaxcontam.models.config import DecoderConfig
from jaxcontam.models.layers import ACTIVATIONS, Linear, Norm, init_weight


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
