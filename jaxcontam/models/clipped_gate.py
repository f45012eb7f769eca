"""The cut gate of gpt-oss's experts.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    F  feed-forward width
"""

import jax
import jax.numpy as jnp

from jaxcontam.models.shapes import GateClip


def clipped_gate(gate_BTF: jax.Array, up_BTF: jax.Array, clip: GateClip) -> jax.Array:
    """A gate with its sigmoid, times one more than the other projection, both cut.

    Gates are cut from above alone; their sigmoid already flattens below.
    """

    # Recomputed in the backward pass: that costs less than to save its steps.
    @jax.checkpoint
    def product(gate_BTF: jax.Array, up_BTF: jax.Array) -> jax.Array:
        gate_BTF = jnp.minimum(gate_BTF, clip.limit)
        up_BTF = jnp.clip(up_BTF, -clip.limit, clip.limit)
        return gate_BTF * jax.nn.sigmoid(clip.slope * gate_BTF) * (up_BTF + 1.0)

    return product(gate_BTF, up_BTF)
