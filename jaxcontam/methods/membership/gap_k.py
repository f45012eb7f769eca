"""Gap-K%: how far a text's tokens lie below the tokens that the model would take."""

import numpy as np

from jaxcontam.methods.membership.min_k import FRACTION, mean_of_lowest
from jaxcontam.methods.membership.min_k_pp import LEAST_VARIANCE
from jaxcontam.methods.membership.score import ScoredText, ScoreMethod, moments_of

WINDOW = 3
"""Neighbouring tokens whose gaps are averaged; the default of the authors' code."""


def gap_k(
    text: ScoredText, *, fraction: float = FRACTION, window: int = WINDOW
) -> float:
    """Mean of the lowest smoothed gaps to the model's likeliest tokens.

    A token's gap is (log p(x_t) - max_v log p(v)) / sigma_t, with sigma_t the standard
    deviation of log p under the model's own distribution there; gaps are averaged over
    each run of `window` tokens. At most 0, and 0 for a greedy text; higher is more
    likely a member. A text shorter than the window is not smoothed.

    Args:
        text: Its log-probabilities and moments are read.
        fraction: Share of runs to keep, in (0, 1]; see `n_lowest`.
        window: Tokens a run, at least 1.

    Raises:
        ValueError: If `fraction` is outside (0, 1], there is no token, or there are no
            moments.

    Source:
        Kwak and Kim, arXiv:2601.19936. Their code clamps the variance at 1e-8.
    """
    _, variances_T, tops_T = moments_of(text)
    gaps_T = (text.logprobs - tops_T) / np.sqrt(np.maximum(variances_T, LEAST_VARIANCE))
    if len(gaps_T) >= window:
        gaps_T = np.convolve(gaps_T, np.full(window, 1 / window), mode="valid")
    return mean_of_lowest(gaps_T, fraction)


METHOD = ScoreMethod(
    name="gap_k",
    score=gap_k,
    reads=("moments",),
    setting=f"k={100 * FRACTION:g}%, window={WINDOW}",
    needs="log-probabilities of the whole vocabulary",
    cost="1 pass",
    finds="as min_k_pp, against the likeliest token, in runs of tokens",
    source="Kwak and Kim 2026, arXiv:2601.19936",
    departure="variance at least 1e-12, not 1e-8",
)
