"""Min-K% Prob: how surprising a text's least likely tokens are."""

import math

import numpy as np

from jaxcontam.methods.method import ScoreMethod


def min_k(scores: np.ndarray, *, fraction: float = 0.2) -> float:
    """Mean log-probability of a text's least likely tokens.

    A score, not a p-value: it ranks texts by how few surprises they hold, and means
    nothing across models or tokenizers. Higher is more likely a member.

    Args:
        scores: (n_scores, n_tokens) float32, nats; row 0 the log-probabilities.
        fraction: Share of tokens to keep, in (0, 1], rounded up.

    Returns:
        Nats per token, at most 0.

    Raises:
        ValueError: If `fraction` is outside (0, 1] or there is no token.

    Source:
        Shi et al., arXiv:2310.16789. Rounds up where the authors' code rounds down,
        so that a short text keeps at least one token.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    logprobs = scores[0].astype(np.float64)
    if len(logprobs) == 0:
        raise ValueError("a text must have at least one scored token")
    # 0.2 * 15 is a hair above 3 in binary and must still keep 3 tokens.
    keep = max(1, math.ceil(fraction * len(logprobs) - 1e-9))
    return float(np.sort(logprobs)[:keep].mean())


METHOD = ScoreMethod(
    name="min_k",
    score=min_k,
    cost="1 pass",
    finds="presence in any order, as a ranking beside unseen texts; proves nothing",
    source="Shi et al. 2023, arXiv:2310.16789",
)
