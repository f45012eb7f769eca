"""Attention sinks: a score of each head for attending to nothing.

Dimension key
    B  sequences in the batch
    Q  queries
    S  keys
    G  key and value heads
    R  query heads a key head serves
"""

import jax
import jax.numpy as jnp


def softmax_with_sinks(scores_BGRQS: jax.Array, sinks_GR: jax.Array) -> jax.Array:
    """Softmax over the keys and one more score, whose weight is left out.

    Scores are float32 and masked; the weights of the keys sum to less than 1.
    """
    B, _, _, Q, _ = scores_BGRQS.shape
    sinks_BGRQ1 = jnp.broadcast_to(
        sinks_GR[None, :, :, None, None], (B, *sinks_GR.shape, Q, 1)
    )
    both = jnp.concatenate([scores_BGRQS, sinks_BGRQ1], axis=-1)
    return jax.nn.softmax(both, axis=-1)[..., :-1]
