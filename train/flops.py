"""Floating-point operations of a decoder, counted from its shape.

Dimension key
    T  positions of a sequence
"""

from collections import Counter
from collections.abc import Sequence

from jaxcontam.models.config import DecoderConfig, LatentShape
from jaxcontam.models.stacks import REUSED, layer_stacks, stack_config


def forward_flops(config: DecoderConfig, lengths: Sequence[int]) -> float:
    """Least floating-point operations of one forward pass over sequences of lengths T.

    Two for each weight of a matrix product at each position, the head's included, and
    attention over the keys that a position sees, T / 2 of them on average. A delta rule
    reads and writes its state token by token. Norms, biases, activations, rotations,
    convolutions and the softmax are left out, so the share of a device's peak that
    follows is not too high.

    Source:
        The usual count, as in Kaplan et al., arXiv:2001.08361, table 1, but with the
        causal half of attention alone.
    """
    n_tokens, head = sum(lengths), config.vocab_size * config.d_model
    total = 2 * (product_weights(config) + head) * n_tokens
    windows = config.windows or (None,) * config.n_layers
    for stack, window in zip(layer_stacks(config), windows, strict=True):
        shape = stack_config(config, stack)
        if shape.delta is not None:
            # What the state holds for a key, its change, what it holds for a query.
            total += 6 * shape.delta.d_state * n_tokens
            continue
        # Queries with keys and weights with values: 2 for each of a head's dimensions.
        per_key = 2 * shape.n_heads * (shape.head_dim + shape.d_values)
        total += per_key * sum(_keys_seen(length, window) for length in lengths)
    return float(total)


def product_weights(config: DecoderConfig) -> int:
    """Weights of the blocks' products for a token: no biases, no unused experts."""
    counts = Counter(layer_stacks(config))
    total = sum(
        n * _block_weights(stack_config(config, stack), reuses=stack in REUSED)
        for stack, n in counts.items()
    )
    # Made of the stream, then a gate and a map back in each layer.
    return total + 3 * config.n_layers * config.d_layer_input * config.d_model


def _block_weights(config: DecoderConfig, *, reuses: bool) -> int:
    """Weights of one block's products."""
    D, H, E = config.d_model, config.n_heads, config.head_dim
    n_kv = 0 if reuses else config.n_kv_heads * (1 if config.values_are_keys else 2)
    attention = ((3 if config.attention_gate else 2) * H + n_kv) * E * D
    if config.latent is not None:
        attention = _latent_weights(config, config.latent)
    if (delta := config.delta) is not None:
        # Queries, keys and values; gate and output; two rates of each head.
        width = delta.d_mixed + 2 * delta.n_values * delta.d_values + 2 * delta.n_values
        attention = D * width
    each = (3 if config.gated else 2) * D
    mlp = each * config.d_ff
    if (experts := config.experts) is not None:
        mlp = experts.n_used * mlp + experts.n * D + each * experts.d_shared
        mlp += D if experts.d_shared and experts.shared_gated else 0
    return attention + mlp


def _latent_weights(config: DecoderConfig, latent: LatentShape) -> int:
    """Weights of the products of attention with narrow vectors in one block."""
    D, H, E, V = config.d_model, config.n_heads, config.head_dim, latent.d_values
    R, Q, K = config.n_rotated, latent.query_rank, latent.rank
    queries = D * H * E if Q is None else Q * (D + H * E)
    return queries + D * (K + R) + K * H * (E - R + V) + H * V * D


def _keys_seen(T: int, window: int | None) -> float:
    """Query-key pairs of one sequence in one layer."""
    if window is None or window >= T:
        return T * T / 2
    return window * T - window * window / 2
