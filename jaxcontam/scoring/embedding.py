"""Text embeddings: the mean of a decoder's final hidden states.

Dimension key
    N  texts
    B  texts of a batch
    T  tokens, padding at the end
    D  model width
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.scoring.local import default_batch_tokens
from jaxcontam.scoring.run_batches import plan_batches


def text_embeddings(checkpoint: Checkpoint, texts: Sequence[str]) -> np.ndarray:
    """Unit vector of each text: the normalised mean of its tokens' hidden states.

    The cosine of two texts is the product of their vectors. Cosines of a plain language
    model are high for any two texts of one language: compare them with those of
    unrelated texts.

    Returns:
        (N, D) float32; zeros for a text without tokens, whose cosines are 0.

    Source:
        Mean pooling as in Reimers and Gurevych, arXiv:1908.10084, of a decoder that was
        not trained for it. Shi et al., arXiv:2310.16789, take SimCSE, an encoder.
    """
    config = checkpoint.config
    encoded = [
        np.array(one.ids[: config.context], np.int32)
        for one in checkpoint.tokenizer.encode_batch(
            list(texts), add_special_tokens=False
        )
    ]
    found_ND = np.zeros((len(texts), config.d_model), np.float32)
    filled = [i for i, ids in enumerate(encoded) if len(ids)]
    graphdef, state = nnx.split(checkpoint.decoder)
    for batch in plan_batches(
        [len(encoded[i]) for i in filled],
        context=config.context,
        batch_tokens=default_batch_tokens(),
    ):
        tokens_BT = np.zeros((batch.n_rows, batch.length), np.int32)
        lengths_B = np.ones(batch.n_rows, np.int32)
        rows = [filled[i] for i in batch.rows]
        for b, i in enumerate(rows):
            tokens_BT[b, : len(encoded[i])] = encoded[i]
            lengths_B[b] = len(encoded[i])
        means_BD = _mean_states(graphdef, state, tokens_BT, lengths_B)
        found_ND[rows] = np.asarray(means_BD)[: len(rows)]
    norms_N = np.linalg.norm(found_ND, axis=1)
    return found_ND / np.where(norms_N > 0, norms_N, 1.0)[:, None]


@jax.jit(static_argnames="graphdef")
def _mean_states(
    graphdef: nnx.GraphDef, state: nnx.State, tokens_BT: jax.Array, lengths_B: jax.Array
) -> jax.Array:
    """Mean hidden state of each row, `[B, D]`."""
    _, T = tokens_BT.shape
    decoder: Decoder = nnx.merge(graphdef, state)
    with jax.default_matmul_precision(decoder.precision):
        # Without the trailing 1 of a head with a bias.
        hidden_BTD = decoder(tokens_BT)[..., : decoder.config.d_model]
    counts_BT1 = (jnp.arange(T)[None] < lengths_B[:, None])[..., None]
    sums_BD = jnp.sum(hidden_BTD, axis=1, where=counts_BT1)
    return sums_BD / lengths_B[:, None].astype(jnp.float32)
