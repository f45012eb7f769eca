"""Shape of a decoder: everything that differs between families, as data."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder-only transformer.

    Attributes:
        vocab_size: V, rows of the embedding.
        d_model: D, width of the residual stream.
        n_layers: Blocks.
        n_heads: Query heads.
        n_kv_heads: Key and value heads; divides `n_heads`.
        head_dim: Width of a head.
        d_ff: Width of the feed-forward layer.
        context: Most tokens that one forward pass reads.
        positions: `rotary` (half-split rotation of queries and keys) or `learned`.
        rope_theta: Base of the rotary frequencies.
        norm: `rms` (scale alone) or `layer` (scale and bias).
        norm_eps: Added to the variance.
        activation: `silu`, `gelu` (erf) or `gelu_tanh`.
        gated: Multiply the activation by a second projection.
        attention_bias: Biases of the query, key, value and output projections.
        mlp_bias: Biases of the feed-forward projections.
        tied: The head is the embedding.
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    context: int
    positions: Literal["rotary", "learned"]
    rope_theta: float = 10_000.0
    norm: Literal["rms", "layer"]
    norm_eps: float
    activation: Literal["silu", "gelu", "gelu_tanh"]
    gated: bool
    attention_bias: bool
    mlp_bias: bool
    tied: bool

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads, got {self.n_kv_heads} "
                f"and {self.n_heads}"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(f"head_dim must be even, got {self.head_dim}")


def llama_shape(
    *,
    vocab_size: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    context: int,
) -> DecoderConfig:
    """A LLaMA-shaped decoder with tied embeddings: what is trained here."""
    return DecoderConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=d_model // n_heads,
        d_ff=d_ff,
        context=context,
        positions="rotary",
        norm="rms",
        norm_eps=1e-5,
        activation="silu",
        gated=True,
        attention_bias=False,
        mlp_bias=False,
        tied=True,
    )


def gpt2_shape(
    *, vocab_size: int, d_model: int, n_layers: int, n_heads: int, context: int
) -> DecoderConfig:
    """A GPT-2-shaped decoder."""
    return DecoderConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=d_model // n_heads,
        d_ff=4 * d_model,
        context=context,
        positions="learned",
        norm="layer",
        norm_eps=1e-5,
        activation="gelu_tanh",
        gated=False,
        attention_bias=True,
        mlp_bias=True,
        tied=True,
    )
