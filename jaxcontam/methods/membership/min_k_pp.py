"""Min-K%++: how far a text's least likely tokens lie below the model's expectation."""

import numpy as np

from jaxcontam.methods.membership.min_k import (
    FRACTION,
    mean_of_lowest,
    n_lowest,
    name_at,
)
from jaxcontam.methods.membership.score import ScoredText, ScoreMethod, moments_of

LEAST_VARIANCE = 1e-12
"""Where one token has all the mass, the variance is 0 but for rounding."""


def min_k_pp(text: ScoredText, *, fraction: float = FRACTION) -> float:
    """Mean of the lowest standardised log-probabilities of a text's tokens.

    A token's z is (log p(x_t) - mu_t) / sigma_t with mu_t and sigma_t the mean and the
    standard deviation of log p under the model's own distribution at that place. A
    ranking, not a p-value. Higher is more likely a member.

    Args:
        text: Its log-probabilities and moments are read.
        fraction: Share of tokens to keep, in (0, 1]; see `n_lowest`.

    Returns:
        Standard deviations.

    Raises:
        ValueError: If `fraction` is outside (0, 1], there is no token, or there are no
            moments.

    Source:
        Zhang et al., arXiv:2404.02936. Variances are centred sums and
        at least 1e-12; the authors' code subtracts squares, which can go below 0.
    """
    means_T, variances_T, _ = moments_of(text)
    sigmas_T = np.sqrt(np.maximum(variances_T, LEAST_VARIANCE))
    return mean_of_lowest((text.logprobs - means_T) / sigmas_T, fraction)


def min_k_pp_at(fraction: float) -> ScoreMethod:
    """Min-K%++ with another share of tokens, such as `min_k_pp_10` for 0.1.

    Raises:
        ValueError: If `fraction` is outside (0, 1].
    """
    n_lowest(1, fraction)
    return ScoreMethod(
        name=name_at("min_k_pp", fraction),
        score=lambda text: min_k_pp(text, fraction=fraction),
        reads=("moments",),
        setting=f"k={100 * fraction:g}%",
        needs="log-probabilities of the whole vocabulary",
        cost="1 pass",
        finds="as min_k, with places where everything is unlikely counting less",
        source="Zhang et al. 2024, arXiv:2404.02936",
        departure="variance as a centred sum, at least 1e-12; keeps at least one token",
    )


METHOD = min_k_pp_at(FRACTION)
