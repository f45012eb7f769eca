"""Which experts a token uses, and with which weights.

Dimension key
    B  sequences in the batch
    T  tokens in a sequence
    X  experts
    K  experts that a token uses
    N  groups of experts
"""

import jax
import jax.numpy as jnp

from jaxcontam.models.config import ExpertShape

# transformers' and DeepSeek's own.
_LEAST_TOTAL = 1e-20


def chosen_experts(
    logits_BTX: jax.Array, experts: ExpertShape, preference_X: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Weights of the experts that each token uses, and their numbers, `[B, T, K]`.

    `preference_X` is added to the scores for the choice alone.
    """
    if experts.scores == "sigmoid":
        scores_BTX = jax.nn.sigmoid(logits_BTX)
    else:
        scores_BTX = jax.nn.softmax(logits_BTX, axis=-1)
    ranked_BTX = scores_BTX
    if preference_X is not None:
        ranked_BTX = ranked_BTX + preference_X[None, None]
    if experts.n_groups > 1:
        ranked_BTX = _in_best_groups(ranked_BTX, experts)
    chosen_BTK, index_BTK = jax.lax.top_k(ranked_BTX, experts.n_used)
    if ranked_BTX is not scores_BTX:
        chosen_BTK = jnp.take_along_axis(scores_BTX, index_BTK, axis=-1)
    if experts.normalised:
        total_BT1 = chosen_BTK.sum(axis=-1, keepdims=True)
        # Sigmoids of all may be 0, a softmax's largest are not.
        is_sigmoid = experts.scores == "sigmoid"
        chosen_BTK /= total_BT1 + _LEAST_TOTAL if is_sigmoid else total_BT1
    return chosen_BTK * experts.scale if experts.scale != 1.0 else chosen_BTK, index_BTK


def _in_best_groups(ranked_BTX: jax.Array, experts: ExpertShape) -> jax.Array:
    """The scores, minus infinity where the expert's group is not among the best."""
    N = experts.n_groups
    groups_BTNX = ranked_BTX.reshape(*ranked_BTX.shape[:2], N, -1)
    best, _ = jax.lax.top_k(groups_BTNX, experts.group_best)
    _, index = jax.lax.top_k(best.sum(axis=-1), experts.n_groups_used)
    used_BTN = jax.nn.one_hot(index, N).sum(axis=-2) > 0
    return jnp.where(used_BTN[..., None], groups_BTNX, -jnp.inf).reshape(
        ranked_BTX.shape
    )
