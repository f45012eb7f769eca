"""Floating-point operations of a decoder, counted from its shape.

Dimension key
    T  positions of a sequence
"""

from collections.abc import Sequence

from jaxcontam.models.config import DecoderConfig, LatentShape


def forward_flops(config: DecoderConfig, lengths: Sequence[int]) -> float:
    """Least floating-point operations of one forward pass over sequences.

    Two for each weight of a matrix product at each position, the head's included, and
    attention over the keys that a position sees, T / 2 of them on average. A delta rule
    reads and writes its state token by token. Norms, biases, activations, rotations,
    convolutions and the softmax are left out, so the share of a device's peak that
    follows is not too high.

    Args:
        config: Shape of the decoder.
        lengths: Positions of each sequence.

    Source:
        The usual count, as in Kaplan et al., arXiv:2001.08361, table 1, but with the
        causal half of attention alone.
    """
    n_weights = product_weights(config) + config.vocab_size * config.d_model
    # Queries with keys and weights with values: 2 for each of a head's dimensions.
    per_key = 2 * config.n_heads * (config.head_dim + config.d_values)
    n_delta = sum(config.delta_layers)
    n_keys = sum(
        _keys_seen(length, window)
        for length in lengths
        for window in config.windows or (None,) * (config.n_layers - n_delta)
    )
    # What the state holds for a key, the change of it, and what it holds for a query.
    per_token = 0 if (delta := config.delta) is None else 6 * delta.d_state
    by_token = 2 * n_weights + n_delta * per_token
    return float(by_token * sum(lengths) + per_key * n_keys)


def product_weights(config: DecoderConfig) -> int:
    """Weights of the blocks' products per token; no biases or embeddings.

    Only the experts that a token uses count.
    """
    D, E = config.d_model, config.head_dim
    n_queries = config.n_heads * (3 if config.attention_gate else 2)
    attention = (n_queries + 2 * config.n_kv_heads) * E * D
    if config.latent is not None:
        attention = _latent_weights(config, config.latent)
    each = (3 if config.gated else 2) * D
    mlp, dense = each * config.d_ff, each * config.d_dense
    if (experts := config.experts) is not None:
        mlp = experts.n_used * mlp + experts.n * D + each * experts.d_shared
        mlp += D if experts.d_shared and experts.shared_gated else 0
    n_sparse = config.n_layers - config.n_dense
    n_delta = sum(config.delta_layers)
    mixing = (config.n_layers - n_delta) * attention
    if (delta := config.delta) is not None:
        # Queries, keys and values; gate and output; two rates of each head.
        width = delta.d_mixed + 2 * delta.n_values * delta.d_values + 2 * delta.n_values
        mixing += n_delta * D * width
    return mixing + config.n_dense * dense + n_sparse * mlp


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
