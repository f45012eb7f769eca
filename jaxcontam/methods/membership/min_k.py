"""Min-K% Prob: how surprising a text's least likely tokens are."""

import numpy as np

from jaxcontam.methods.membership.score import ScoredText, ScoreMethod

FRACTION = 0.2
"""Share of tokens that count unless another is asked for, as in the paper."""


def min_k(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean log-probability of a text's least likely tokens.

    A score, not a p-value: it ranks texts by how few surprises they hold, and means
    nothing across models or tokenizers. Higher is more likely a member. With a fraction
    of 1 it is `loss`.

    Args:
        text: Its log-probabilities are read.
        fraction: Share of tokens to keep, in (0, 1]; see `n_lowest`.

    Returns:
        Nats per token, at most 0.

    Raises:
        ValueError: If `fraction` is outside (0, 1] or there is no token.

    Source:
        Shi et al., arXiv:2310.16789. Rounds down as the authors' code does, but keeps
        at least one token of a short text.
    """
    if fraction == 1:
        # The same sum in the same order as `loss`, so that the two are equal.
        return text.mean_logprob
    return mean_of_lowest(text.logprobs.astype(np.float64), fraction)


def mean_of_lowest(values: np.ndarray, fraction: float) -> float:
    """Mean of the lowest `n_lowest` values of a text.

    Raises:
        ValueError: See `n_lowest`.
    """
    return float(np.sort(values)[: n_lowest(len(values), fraction)].mean())


def n_lowest(n: int, fraction: float) -> int:
    """Number of tokens that a fraction of `n` keeps: rounded down, at least one.

    Rounds the float product, as the released code of Min-K% and Min-K%++ does: 29 % of
    100 tokens are 28, because 100 * 0.29 is a hair below 29 in binary.

    Raises:
        ValueError: If `fraction` is outside (0, 1] or there is no token.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction}")
    if n == 0:
        raise ValueError("a text must have at least one scored token")
    return max(1, int(n * fraction))


def name_at(name: str, fraction: float) -> str:
    """Name of a score at a fraction: its own at `FRACTION`, else with percent."""
    return name if fraction == FRACTION else f"{name}_{100 * fraction:g}"


def min_k_at(fraction: float) -> ScoreMethod:
    """Min-K% Prob with another share of tokens, such as `min_k_10` for 0.1.

    Raises:
        ValueError: If `fraction` is outside (0, 1].
    """
    n_lowest(1, fraction)
    return ScoreMethod(
        name=name_at("min_k", fraction),
        label="Min-K% Prob",
        score=lambda text: min_k(text, fraction=fraction),
        setting=f"k={100 * fraction:g}%",
        cost="1 pass",
        finds="presence in any order, as a ranking beside unseen texts; proves nothing",
        source="Shi et al. 2023, arXiv:2310.16789",
        departure="keeps at least one token; theirs keeps none of a text shorter than "
        "1 / k",
    )


METHOD = min_k_at(FRACTION)
